"""Fusion: which ops share a kernel. From a DHLO graph to groups in an order in which they can run.

Ops are visited from the outputs up. An op joins the group of its users when one tiling of rows still covers the whole
(`row_space`); when it has users elsewhere too it may join the first of them and leave its result in memory as well. A
dot anchors a group and pulls in its consumers (the epilogue). What assembles a value from parts (concatenate, pad,
dynamic_update_slice) becomes one group a part, writing in place. Regions of control flow are scopes of their own
(`nest.py`); scalars that decide or count are computed in the host flow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Shape, Value, has_effect, uses
from hlo_disc.dynamic_hlo.ops.cost import EXPENSIVE, free_ops
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.errors import CompileError
from hlo_disc.stitch.codegen.elementwise import ELEMENTWISE
from hlo_disc.stitch.fusion.anchor import Anchor, anchors, unneeded
from hlo_disc.stitch.fusion.group import Group, Place, reads
from hlo_disc.stitch.fusion.host_scalars import element_chain, host_ops
from hlo_disc.stitch.fusion.nest import start_control, with_copies
from hlo_disc.stitch.fusion.reuse import Use, find_reuse
from hlo_disc.stitch.fusion.scope import Plan, Scope
from hlo_disc.stitch.fusion.space import REDUCTIONS, row_space
from hlo_disc.stitch.hostflow.late_memory import stages
from hlo_disc.stitch.prepare.normalise import kind

# Views that cost nothing to compute in every group that reads them, once their operand is in memory.
COPIED_VIEWS = ("broadcast", "reshape", "slice", "real", "imag")
# Kinds of ops that are a group of their own, which reads its operands in memory and leaves all its results there.
WHOLE = ("call", "control", "host")
# Kinds of ops that are a group of their own with what only they read, computed where they read it.
LAZY = ("scatter", "sort")
# A group that has grown to this many ops takes no more: its kernel would only compile slower.
MAX_OPS = 64


@dataclass(eq=False)
class _Growing:
    kind: str
    ops: dict[Op, None] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    place: Place | None = None
    anchor: int = 0
    views: tuple[Op, ...] = ()
    memory: tuple[Value, ...] = ()
    changes: Value | None = None  # the value whose memory it writes into


class _Conflict(Exception):
    """A group reads memory that has been changed before: the op that changes it, and which operand."""

    def __init__(self, use: Use):
        self.use = use


def fuse(graph: Graph) -> Plan:
    """The groups of a whole program."""
    plan = Plan()
    scope = fuse_scope(graph, plan, (), nested=False)
    plan.scope = with_copies(scope, plan, set())
    return plan


def fuse_scope(graph: Graph, plan: Plan, owned: Collection[Value], nested: bool) -> Scope:
    """The groups of a program or, as a graph of its own, of a region. The plan is told of what is inside.

    owned: inputs whose memory the scope may change. nested: it is a region.
    """
    banned: set[Use] = set()
    separate: dict[Op, Use] = {}
    while True:
        fusion = Fusion(graph, plan, owned, nested, banned, separate)
        try:
            return fusion.run()
        except _Conflict as conflict:
            # First the readers of the old value become groups of their own, so that they can run before; if that does
            # not help, the value is copied.
            readers = fusion.reuse.readers[fusion.reuse.family[fusion.old_value(conflict.use)]]
            fresh = [op for op in readers if op not in separate]
            if conflict.use in separate.values() or not fresh:
                banned.add(conflict.use)
            separate.update(dict.fromkeys(fresh, conflict.use))


def is_stored_constant(op: Op | None) -> bool:
    return op is not None and op.name == "constant" and op.attrs["value"].size != 1


class Fusion:
    """One attempt at the groups of a scope."""

    fuse_scope = staticmethod(fuse_scope)

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        owned: Collection[Value],
        nested: bool,
        banned: Collection[Use],
        separate: Collection[Op],
    ):
        self.graph, self.facts, self.plan, self.nested, self.separate = graph, graph.facts, plan, nested, separate
        self.users = uses(graph)
        self.position = {op: i for i, op in enumerate(graph.ops)}
        self.free = free_ops(graph.ops, kind)
        self.reuse = find_reuse(graph, self.users, self.free, owned, banned)
        self.registers = self._registers()
        self.stages = stages(graph.ops)
        self.in_memory: set[Value] = set()
        self.owner: dict[Op, _Growing] = {}
        self.readers: dict[Value, list[_Growing]] = {}
        self.groups: list[_Growing] = []
        self.aliases: dict[Value, Value] = {}
        self.changed: dict[Value, Use] = {}  # by the value that came of it
        self.consumed: dict[Op, list[Use]] = {}  # further operands that an op may change
        self.notes: list[str] = []

    def run(self) -> Scope:
        """The scope's groups. Raises _Conflict when a value that is read again has been changed in place."""
        self.wanted = set(self._wanted())
        self.in_memory.update(v for v in self.graph.roots if v.shape or not self.nested)
        found = anchors(self.graph, self.users, self.free)
        for anchor in found:
            self._start_anchor(anchor)
        self.host = host_ops(self.graph.ops, self.wanted, self.registers, self.free, self.owner, self.nested)
        self.registers.update(v for op in self.host for v in op.results)
        for value in self.wanted:
            self._need_register(value)
        for op in unneeded(self.graph, found, self.users, self.in_memory):
            self.owner[op] = self.groups[0]
        for op in reversed(self.graph.ops):
            if op not in self.owner and op not in self.free and not is_stored_constant(op):
                self._visit(op)
        for value in sorted(self.in_memory, key=lambda v: self.position[v.op] if v.op else -1):
            if value.op in self.free:
                self._start("row", [], [value])
        scope = Scope(self.graph.inputs, self.graph.outputs, tuple(self._ordered()))
        self.plan.aliases |= self.aliases
        kept = {v: self.old_value(use) for v, use in self.changed.items() if v not in self.plan.moving}
        self.plan.reused |= kept
        self.plan.registers |= self.registers
        self.plan.notes += self.notes
        return scope

    # Registers.

    def _registers(self) -> set[Value]:
        """Scalars that the host flow has in registers: a region's, and those that control flow results in."""
        found = {v for v in self.graph.inputs if self.nested and not v.shape}
        return found | {v for op in self.graph.ops if op.name in ("while", "case") for v in op.results if not v.shape}

    def _wanted(self) -> Iterator[Value]:
        """Scalars that the host flow needs: what decides, what is carried, what a region returns."""
        for op in self.graph.ops:
            if op.name == "while":
                yield from (x for x in op.operands[: op.attrs["carried"]] if not x.shape)
            elif op.name in ("case", "define"):
                yield op.operands[0]
        yield from (v for v in self.graph.outputs if self.nested and not v.shape)

    def _need_register(self, value: Value) -> None:
        """What a kernel makes is loaded; all else is in a register, or can be computed at once."""
        if value not in self.registers and value.op not in self.free:
            self.in_memory.add(value)

    # Visiting.

    def _visit(self, op: Op) -> None:
        needed = any(self.users[v] or v in self.in_memory or v in self.wanted for v in op.results)
        if not needed and not has_effect(op):
            return
        if op in self.host:
            self._start_host(op)
            return
        match kind(op):
            case "assemble":
                self._assemble(op)
            case "view" | "alias" if op in self.reuse.views or self._is_alias(op):
                self.aliases[op.result] = op.operands[0]
                self.in_memory.add(op.operands[0])
            case "scatter":
                self._scatter(op)
            case "sort":
                self._start("sort", [op], [v for v in op.results if self.users[v] or v in self.in_memory])
            case "control" if op.name in ("check", "define"):
                self.start_reading("host", op, (), op.operands)
            case "control":
                start_control(self, op)
            case name if name in WHOLE:
                self._start_whole(name, op)
            case _:
                self._join_or_start(op)

    def _is_alias(self, op: Op) -> bool:
        """A reshape that does more than add or drop axes of size 1 reads its operand's memory under another shape.

        So does any reshape between two values that are in memory anyway, and a bitcast to elements of another width.
        """
        if kind(op) == "alias":
            return True
        if op.name != "reshape":
            return False
        segments = reshape_segments(op.result.shape, op.operands[0].shape, self.facts)
        trivial = all(len(left) <= 1 and len(right) <= 1 for left, right in segments)
        only_memory = op.result in self.in_memory and not self.readers.get(op.result)
        return not trivial or only_memory or op.operands[0].op is None

    def _join_or_start(self, op: Op) -> None:
        used = [v for v in op.results if self.users[v] or v in self.in_memory]
        if op in self.separate:
            self._start("row", [op], used)
            return
        groups = list(dict.fromkeys(g for v in used for g in self.readers.get(v, ())))
        outside = any(v in self.in_memory for v in used)
        if op.name in COPIED_VIEWS and len(groups) > 1:
            rest = [g for g in groups if not self._may_join(op, g, [g], outside=False)]
            if not rest and not outside:
                return
            groups = rest
        target = min(groups, key=self._first, default=None)
        if target is not None and self._may_join(op, target, groups, outside):
            return
        self._start("row", [op], used)

    def _may_join(self, op: Op, target: _Growing, groups: list[_Growing], outside: bool) -> bool:
        """Join `target`, the first of the groups that read the result, if that is legal."""
        if target.kind in WHOLE or any(self._is_changed_by(target, x) for x in reads(op)):
            return False
        others = [g for g in groups if g is not target]
        keep = outside or bool(others)
        if keep and self.stages and self.stages[op] != max(map(self.stages.__getitem__, target.ops), default=0):
            return False  # it may be needed for a size that the group waits for
        if target.kind in ("dot", "attention", *LAZY):
            if keep or not self._feeds(op, target):
                return False
            self._add(op, target)
            return True
        if self._size(target) >= MAX_OPS and op.name not in COPIED_VIEWS:
            return False
        ordered = all(self._first(g) > self._last(target) for g in others)
        return (not keep or (ordered and target.place is None)) and self._try_join(op, target, keep)

    def _size(self, group: _Growing) -> int:
        """The ops of a group, without constants and what else costs nothing."""
        size = len(group.ops)
        return size if size < MAX_OPS else sum(op not in self.free for op in group.ops)

    def _try_join(self, op: Op, group: _Growing, keep: bool) -> bool:
        kept = [v for v in op.results if keep and self._is_kept(v, op, group)]
        outputs = [*group.outputs, *kept]
        # Nothing else can spoil a row group: not looking at it halves the time of fusion.
        if keep or op.name in REDUCTIONS or op.name in EXPENSIVE:
            space = row_space([*group.ops, op], outputs, self.facts)
            if isinstance(space, str):
                self.notes.append(f"{op.name} ({op.loc or 'unknown line'}) starts a kernel of its own: {space}")
                return False
        group.outputs = outputs
        self.in_memory.update(kept)
        self._add(op, group)
        return True

    def _is_kept(self, value: Value, op: Op, group: _Growing) -> bool:
        """Is a result needed in memory, of an op of which some result is?"""
        others = any(g is not group for g in self.readers.get(value, ()))
        return len(op.results) == 1 or value in self.in_memory or others

    def _add(self, op: Op, group: _Growing) -> None:
        group.ops[op] = None
        self.owner[op] = group
        self._reads(op, group)

    def _feeds(self, op: Op, group: _Growing) -> bool:
        """What only an epilogue reads is computed there, unless that would repeat expensive work.

        So is what only a scatter or a sort reads.
        """
        if kind(op) not in ("view", "elementwise", "gather") or op.result in group.memory:
            return False
        if group.kind in LAZY and self._size(group) >= MAX_OPS:
            return False
        once = group.kind in ("dot", *LAZY) and op.result.shape == self._walked(group)
        return op.name not in EXPENSIVE or once

    def _walked(self, group: _Growing) -> Shape:
        """The shape over which a group computes everything once: the result's, or a scatter's updates'."""
        value = group.outputs[0]
        if group.kind == "scatter" and value.op is not None:
            value = value.op.operands[value.op.attrs["count"] + 1]
        return value.shape

    def _start(self, kind_: str, ops: Sequence[Op], outputs: list[Value], place: Place | None = None) -> _Growing:
        group = _Growing(kind_, dict.fromkeys(ops), outputs, place)
        self.groups.append(group)
        group.anchor = max((self.position[op] for op in ops), default=0)
        for op in ops:
            self.owner[op] = group
        for value in outputs if place is None else ():
            self.in_memory.add(value)
        for op in ops:
            self._reads(op, group)
        if not ops:
            for value in outputs:
                self._read(value, group)
        return group

    def _start_anchor(self, anchor: Anchor) -> None:
        """A group around a dot. Its operands are walked in memory, whatever they are."""
        group = _Growing(anchor.kind, dict.fromkeys(anchor.ops), [anchor.ops[-1].result])
        group.views, group.memory = anchor.views, anchor.memory
        group.anchor = max(self.position[op] for op in anchor.ops)
        self.groups.append(group)
        self.in_memory.update(group.outputs)
        self.in_memory.update(anchor.memory)
        for value in anchor.memory:
            self.readers.setdefault(value, []).append(group)
        for op in anchor.ops:
            self.owner[op] = group
        for op in anchor.ops:
            if kind(op) != "dot":
                self._reads(op, group)

    def _start_whole(self, kind_: str, op: Op) -> None:
        """A group of one op that walks its operands in memory, whatever they are."""
        self.start_reading(kind_, op, op.operands)

    def start_reading(self, kind_: str, op: Op, operands: Sequence[Value], scalars: Sequence[Value] = ()) -> None:
        """A group of one op that finds operands in memory, scalars in registers, and leaves its results there."""
        group = _Growing(kind_, {op: None}, list(op.results))
        group.memory = tuple(dict.fromkeys((*operands, *scalars)))
        group.anchor = self.position[op]
        self.groups.append(group)
        self.owner[op] = group
        self.in_memory.update(v for v in (*op.results, *operands) if v not in self.registers)
        for value in group.memory:
            self.readers.setdefault(value, []).append(group)

    def _start_host(self, op: Op) -> None:
        """A group of one scalar, computed in the host flow from registers and what lies in memory."""
        chain = [op] if op.name in ELEMENTWISE else element_chain(op)[::-1]
        group = _Growing("host", dict.fromkeys(chain), [op.result], anchor=self.position[op])
        self.groups.append(group)
        self.owner[op] = group
        for link in chain:
            self._reads(link, group)
        for x in dict.fromkeys(x for link in group.ops for x in link.operands):
            if x.op not in group.ops:
                self._need_register(x)

    def _reads(self, op: Op, group: _Growing) -> None:
        """Note what the group reads; a free operand joins it, unless the group needs it in memory anyway."""
        for x in reads(op):
            self._read(x, group)

    def _read(self, x: Value, group: _Growing) -> None:
        if x.op is not None and x.op in self.free and x not in group.memory:
            if x.op not in group.ops:
                group.ops[x.op] = None
                self._reads(x.op, group)
        elif x.op not in group.ops:
            self.readers.setdefault(x, []).append(group)

    def _first(self, group: _Growing) -> int:
        return min((self.position[op] for op in group.ops if op not in self.free), default=group.anchor)

    def _last(self, group: _Growing) -> int:
        return max((self.position[op] for op in group.ops if op not in self.free), default=group.anchor)

    # Values assembled from parts, and values changed in place.

    def _assemble(self, op: Op) -> None:
        target = op.result
        self.in_memory.add(target)
        parts = _parts(op)
        if self.take_over(op, 0, target):
            parts = parts[1:]
        for x, starts, strides in parts:
            self.place(op, target, x, starts, strides)

    def take_over(self, op: Op, number: int, target: Value) -> bool:
        """Let `target` have the memory of an operand that the op may change; False when it needs memory of its own."""
        if (op, number) not in self.reuse.taken:
            return False
        self.changed[target] = (op, number)
        self.in_memory.add(op.operands[number])
        return True

    def old_value(self, use: Use) -> Value:
        return use[0].operands[use[1]]

    def _is_changed_by(self, group: _Growing, x: Value) -> bool:
        """Is `x` what the group changes in place? Then it must not read it."""
        family = self.reuse.family
        if x not in family:
            return False
        written = [group.place.target] if group.place else group.outputs
        return any(family[x] is family.get(self.old_value(self.changed[v])) for v in written if v in self.changed)

    def place(self, op: Op, target: Value, x: Value, starts: tuple[Dim | Value, ...], strides: tuple[int, ...]) -> None:
        """A group that writes `x` into a part of `target`."""
        group = self._start("row", [], [x], Place(target, target.shape, starts, strides, tuple(range(target.rank))))
        group.anchor = self.position[op]
        for start in starts:
            if isinstance(start, Value):
                self._read(start, group)

    def _scatter(self, op: Op) -> None:
        """What the op changes is written into its results, unless it lies there; then it changes them in place."""
        for number, (target, x) in enumerate(zip(op.results, op.operands, strict=False)):
            if not self.take_over(op, number, target):
                self.place(op, target, x, (ZERO,) * x.rank, (1,) * x.rank)
        self._start("scatter", [op], list(op.results))

    # Order.

    def _ordered(self) -> list[Group]:
        made: dict[Value, list[Group]] = {}
        readers: dict[Value, list[Group]] = {}
        groups = []
        for growing in sorted(self.groups, key=lambda g: g.anchor):
            group = self._finished(growing)
            groups.append(group)
            for value in group.written:
                made.setdefault(value, []).append(group)
            for value in group.inputs:
                readers.setdefault(self._version(value), []).append(group)
        self.definers = _Definers(groups if self.stages else ())
        before = {group: self._before(group, made, readers) for group in groups}
        order: dict[Group, int] = {}
        for group in groups:
            stack = [(group, iter(before[group]))]
            while stack:
                current, rest = stack[-1]
                step = next((g for g in rest if g not in order and g is not current), None)
                if step is not None and all(step is not g for g, _ in stack):
                    stack.append((step, iter(before[step])))
                elif step is None:
                    order.setdefault(current, len(order))
                    stack.pop()
        for group in order:
            if any(order[other] > order[group] for other in before[group]):
                self._explain_cycle(group, order, made, readers)
        return list(order)

    def _finished(self, growing: _Growing) -> Group:
        if growing.kind == "control" or not growing.outputs:
            return Group(growing.kind, tuple(growing.ops), growing.memory, tuple(growing.outputs))
        return Group.of(growing.kind, _in_order(growing), growing.outputs, growing.place)

    def _version(self, value: Value) -> Value:
        """The value whose contents `value` are; what came of a change in place is another."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def _before(self, group: Group, made: dict[Value, list[Group]], readers: dict[Value, list[Group]]) -> list[Group]:
        """The groups that must have run when this one does."""
        found: list[Group] = []
        for value in group.inputs:
            found += made.get(self._version(value), [])
        for value in group.written:  # parts are written in order: later ones may overwrite
            parts = made[value]
            found += parts[: parts.index(group)]
        found += self.definers.before(group)
        for use in self._changes(group):
            old = self._version(self.old_value(use))
            found += made.get(old, [])
            found += [g for g in readers.get(old, []) if use not in self._changes(g)]
        return found

    def _changes(self, group: Group) -> list[Use]:
        """What the group changes in place."""
        own = [self.changed[value] for value in group.written if value in self.changed]
        return own + [use for op in group.ops for use in self.consumed.get(op, ())]

    def _explain_cycle(
        self,
        group: Group,
        order: dict[Group, int],
        made: dict[Value, list[Group]],
        readers: dict[Value, list[Group]],
    ) -> NoReturn:
        """Groups wait for each other: for a change in place, if that is in the way of anything."""
        uses = {use: [g for g in order if use in self._changes(g)] for g in order for use in self._changes(g)}
        for use, writers in uses.items():
            old = self._version(self.old_value(use))
            last = [order[g] for g in readers.get(old, []) if g not in writers]
            if last and max(last) > min(order[w] for w in writers):
                raise _Conflict(use)
        for use in uses:
            raise _Conflict(use)
        raise CompileError(f"groups wait for each other: {[op.name for op in group.ops]}")


class _Definers:
    """The groups that define sizes, and those that check them."""

    def __init__(self, groups: Iterable[Group]):
        host = [g for g in groups if g.kind == "host"]
        self.made = {g.ops[0].attrs["symbol"]: g for g in host if g.ops[0].name == "define"}
        self.checks: dict[str, list[Group]] = {}
        for group in host if self.made else ():
            if group.ops[0].name == "check":
                for name in group.symbols:
                    self.checks.setdefault(name, []).append(group)

    def before(self, group: Group) -> list[Group]:
        """What has to run before a group because of the sizes that it mentions."""
        names = [name for name in group.symbols if name in self.made] if self.made else []
        is_check = group.kind == "host" and group.ops[0].name == "check"
        checks = [g for name in names for g in self.checks.get(name, ())]
        return [self.made[name] for name in names] + ([] if is_check else checks)


def _in_order(group: _Growing) -> list[Op]:
    """Operands before users, in the order in which the outputs need them: alike groups come out alike."""
    order: dict[Op, None] = {}
    roots = [*group.outputs, *(group.place.starts if group.place else ())]
    todo = [(v.op, False) for v in reversed(roots) if isinstance(v, Value)]
    while todo:
        op, ready = todo.pop()
        if op is None or op in order or not (op in group.ops or op in group.views):
            continue
        if ready:
            order[op] = None
        else:
            todo.append((op, True))
            todo += [(x.op, False) for x in reversed(reads(op))]
    return list(order)


def _parts(op: Op) -> list[tuple[Value, tuple[Dim | Value, ...], tuple[int, ...]]]:
    """What an assembling op writes, in order: (value, starts, strides)."""
    zero = Dim.const(0)
    rank = op.result.rank
    ones = (1,) * rank
    origin: tuple[Dim | Value, ...] = (zero,) * rank
    if op.name == "concatenate":
        axis, at, parts = op.attrs["dim"], zero, []
        for x in op.operands:
            parts.append((x, (*origin[:axis], at, *origin[axis + 1 :]), ones))
            at = at + x.shape[axis]
        return parts
    if op.name == "dynamic_update_slice":
        x, update, *starts = op.operands
        return [(x, origin, ones), (update, tuple(starts), ones)]
    base, x = op.operands
    return [(base, origin, ones), (x, op.attrs["starts"], op.attrs["strides"])]
