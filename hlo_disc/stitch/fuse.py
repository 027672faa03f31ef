"""Fusion: which ops share a kernel. From a DHLO graph to groups in an order in which they can run.

Ops are visited from the outputs up. An op joins the group of its users when one tiling of rows still covers the whole
(`row_space`); when it has users elsewhere too it may join the first of them and leave its result in memory as well. A
dot anchors a group and pulls in its consumers (the epilogue). What assembles a value from parts (concatenate, pad,
dynamic_update_slice) becomes one group a part, writing in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlo_disc.dynamic_hlo.cost import EXPENSIVE, free_ops
from hlo_disc.dynamic_hlo.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.graph import Graph, Op, Shape, Value, has_effect, uses
from hlo_disc.errors import CompileError
from hlo_disc.stitch.anchor import Anchor, anchors, unneeded
from hlo_disc.stitch.body import reshape_segments
from hlo_disc.stitch.group import Group, Place, reads
from hlo_disc.stitch.normalise import kind
from hlo_disc.stitch.space import REDUCTIONS, row_space

# Views that cost nothing to compute in every group that reads them, once their operand is in memory.
COPIED_VIEWS = ("broadcast", "reshape", "slice", "real", "imag")
# Kinds of ops that are a group of their own, which reads its operands in memory and leaves all its results there.
WHOLE = ("call", "control")
# Kinds of ops that are a group of their own with what only they read, computed where they read it.
LAZY = ("scatter", "sort")
# A group that has grown to this many ops takes no more: its kernel would only compile slower.
MAX_OPS = 64


@dataclass(frozen=True)
class Plan:
    """groups in order; aliases: values that are another's memory under another shape or type; notes: why not fused."""

    groups: tuple[Group, ...]
    aliases: dict[Value, Value]
    notes: tuple[str, ...]


@dataclass(eq=False)
class _Growing:
    kind: str
    ops: dict[Op, None] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    place: Place | None = None
    anchor: int = 0
    views: tuple[Op, ...] = ()
    memory: tuple[Value, ...] = ()


def fuse(graph: Graph) -> Plan:
    return _Fusion(graph).run()


def is_stored_constant(op: Op | None) -> bool:
    return op is not None and op.name == "constant" and op.attrs["value"].size != 1


class _Fusion:
    def __init__(self, graph: Graph):
        self.graph, self.facts = graph, graph.facts
        self.users = uses(graph)
        self.position = {op: i for i, op in enumerate(graph.ops)}
        self.free = free_ops(graph.ops, kind)
        self.in_memory = set(graph.outputs)
        self.owner: dict[Op, _Growing] = {}
        self.readers: dict[Value, list[_Growing]] = {}
        self.groups: list[_Growing] = []
        self.aliases: dict[Value, Value] = {}
        self.notes: list[str] = []

    def run(self) -> Plan:
        found = anchors(self.graph, self.users, self.free)
        for anchor in found:
            self._start_anchor(anchor)
        for op in unneeded(self.graph, found, self.users, self.in_memory):
            self.owner[op] = self.groups[0]
        for op in reversed(self.graph.ops):
            if op not in self.owner and op not in self.free and not is_stored_constant(op):
                self._visit(op)
        for value in sorted(self.in_memory, key=lambda v: self.position[v.op] if v.op else -1):
            if value.op in self.free:
                self._start("row", [], [value])
        return Plan(tuple(self._ordered()), self.aliases, tuple(dict.fromkeys(self.notes)))

    # Visiting.

    def _visit(self, op: Op) -> None:
        if not has_effect(op) and not any(self.users[v] or v in self.in_memory for v in op.results):
            return
        match kind(op):
            case "assemble":
                self._assemble(op)
            case "view" | "alias" if self._is_alias(op):
                self.aliases[op.result] = op.operands[0]
                self.in_memory.add(op.operands[0])
            case "scatter":
                self._scatter(op)
            case "sort":
                self._start("sort", [op], [v for v in op.results if self.users[v] or v in self.in_memory])
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
        if target.kind in WHOLE:
            return False
        others = [g for g in groups if g is not target]
        keep = outside or bool(others)
        if target.kind in ("dot", "attention", *LAZY):
            if keep or not self._feeds(op, target):
                return False
            self._add(op, target)
            return True
        if len(target.ops) >= MAX_OPS:
            return False
        ordered = all(self._first(g) > self._last(target) for g in others)
        return (not keep or (ordered and target.place is None)) and self._try_join(op, target, keep)

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
        if group.kind in LAZY and len(group.ops) >= MAX_OPS:
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
        group = _Growing(kind_, {op: None}, list(op.results))
        group.memory = tuple(dict.fromkeys(op.operands))
        group.anchor = self.position[op]
        self.groups.append(group)
        self.owner[op] = group
        self.in_memory.update(op.results)
        self.in_memory.update(group.memory)
        for value in group.memory:
            self.readers.setdefault(value, []).append(group)

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

    # Values assembled from parts.

    def _assemble(self, op: Op) -> None:
        target = op.result
        self.in_memory.add(target)
        for x, starts, strides in _parts(op):
            self._place(op, target, x, starts, strides)

    def _place(
        self, op: Op, target: Value, x: Value, starts: tuple[Dim | Value, ...], strides: tuple[int, ...]
    ) -> None:
        """A group that writes `x` into a part of `target`."""
        group = self._start("row", [], [x], Place(target, target.shape, starts, strides, tuple(range(target.rank))))
        group.anchor = self.position[op]
        for start in starts:
            if isinstance(start, Value):
                self._read(start, group)

    def _scatter(self, op: Op) -> None:
        """What the op changes is written into its results; then it changes them in place."""
        for target, x in zip(op.results, op.operands, strict=False):
            self._place(op, target, x, (ZERO,) * x.rank, (1,) * x.rank)
        self._start("scatter", [op], list(op.results))

    # Order.

    def _ordered(self) -> list[Group]:
        made: dict[Value, list[Group]] = {}
        groups = []
        for growing in sorted(self.groups, key=lambda g: g.anchor):
            group = Group.of(growing.kind, _in_order(growing), growing.outputs, growing.place)
            groups.append(group)
            for value in group.written:
                made.setdefault(value, []).append(group)
        order: dict[Group, int] = {}

        def visit(group: Group) -> None:
            stack = [(group, iter(self._before(group, made)))]
            while stack:
                current, rest = stack[-1]
                step = next((g for g in rest if g not in order and g is not current), None)
                if step is not None:
                    stack.append((step, iter(self._before(step, made))))
                    continue
                order.setdefault(current, len(order))
                stack.pop()

        for group in groups:
            visit(group)
        for group in order:
            if any(order[before] > order[group] for before in self._before(group, made)):
                raise CompileError(f"groups wait for each other: {[op.name for op in group.ops]}")
        return list(order)

    def _before(self, group: Group, made: dict[Value, list[Group]]) -> list[Group]:
        found: list[Group] = []
        for value in group.inputs:
            while value in self.aliases:
                value = self.aliases[value]
            found += made.get(value, [])
        for value in group.written:  # parts are written in order: later ones may overwrite
            parts = made[value]
            found += parts[: parts.index(group)]
        return found


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
