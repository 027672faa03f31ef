"""Fusion: which ops share a kernel. A DHLO graph becomes groups, in an order in which they can run.

Ops are visited from the outputs up. An op joins the group of its users if one tiling of rows still covers the whole
(`row_space`). If it has other users, too, it may join the first group and also write its result to memory. A dot
anchors a group and pulls in its consumers (the epilogue). An op that assembles a value from parts (concatenate, pad,
dynamic_update_slice) becomes one group per part, which writes in place. Regions of control flow are scopes of their own
(`nest.py`). The host flow computes scalars that decide or count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, has_effect, is_array, uses
from hlo_disc.dynamic_hlo.ops.axes import Part, whole
from hlo_disc.dynamic_hlo.ops.cost import free_ops, is_slow
from hlo_disc.dynamic_hlo.ops.table import kind, parts_of
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.stitch.fusion.anchor import anchors, unneeded
from hlo_disc.stitch.fusion.group import Place, reads
from hlo_disc.stitch.fusion.growing import Growing, Growth
from hlo_disc.stitch.fusion.host_scalars import element_chain, host_ops
from hlo_disc.stitch.fusion.nest import start_control, with_copies
from hlo_disc.stitch.fusion.ordering import Changes, Conflict, ordered
from hlo_disc.stitch.fusion.reuse import Use, find_reuse, old_value
from hlo_disc.stitch.fusion.scope import Plan, Scope
from hlo_disc.stitch.fusion.space import row_space
from hlo_disc.stitch.prepare.definitions import stages
from hlo_disc.stitch.schedule import HOST, Joins, Schedule

# Views that cost nothing to compute in every group that reads them, once their operand is in memory.
COPIED_VIEWS = ("broadcast", "reshape", "slice", "real", "imag")


def fuse(graph: Graph, schedules: Mapping[str, Schedule]) -> Plan:
    """The groups of a whole program. schedules: by name, "row" among them."""
    plan = Plan()
    scope = fuse_scope(graph, plan, schedules, (), nested=False)
    plan.scope = with_copies(scope, plan, schedules["row"], set())
    return plan


def fuse_scope(
    graph: Graph, plan: Plan, schedules: Mapping[str, Schedule], owned: Collection[Value], nested: bool
) -> Scope:
    """The groups of a program or, as a graph of its own, of a region. The plan is told of what is inside.

    owned: inputs whose memory the scope may change. nested: it is a region.
    """
    banned: set[Use] = set()
    separate: dict[Op, Use] = {}
    while True:
        fusion = Fusion(graph, plan, schedules, owned, nested, banned, separate)
        try:
            return fusion.run()
        except Conflict as conflict:
            # First the readers of the old value become groups of their own, so that they can run before; if that does
            # not help, the value is copied.
            readers = fusion.reuse.readers[fusion.reuse.family[old_value(conflict.use)]]
            fresh = [op for op in readers if op not in separate]
            if conflict.use in separate.values() or not fresh:
                banned.add(conflict.use)
            separate.update(dict.fromkeys(fresh, conflict.use))


def _within(inner: Part, outer: Part) -> Part:
    """A part of a part, neither at places that data says: where it lies in the whole."""
    known, inside = cast("tuple[Dim, ...]", outer.starts), cast("tuple[Dim, ...]", inner.starts)
    rows = list(zip(known, inside, outer.steps, inner.steps, strict=True))
    return Part(inner.value, tuple(i + j * k for i, j, k, _ in rows), tuple(k * step for _, _, k, step in rows))


class Fusion:
    """One attempt at the groups of a scope."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        schedules: Mapping[str, Schedule],
        owned: Collection[Value],
        nested: bool,
        banned: Collection[Use],
        separate: Collection[Op],
    ):
        self.graph, self.facts, self.plan, self.nested, self.separate = graph, graph.facts, plan, nested, separate
        self.schedules, self.row = schedules, schedules["row"]
        self.users = uses(graph)
        self.free = free_ops(graph.ops)
        self.reuse = find_reuse(graph, self.users, self.free, owned, banned)
        self.registers = self._registers()
        self.stages = stages(graph.ops)
        self.growth = Growth(graph.ops, self.free)
        self.in_memory, self.readers = self.growth.in_memory, self.growth.readers
        self.changes = Changes()
        self.splits: list[tuple[Op, str]] = []

    def run(self) -> Scope:
        """The scope's groups. Raises Conflict when a value that is read again has been changed in place."""
        growth, position = self.growth, self.growth.position
        self.wanted = set(self._wanted())
        self.in_memory.update(v for v in self.graph.roots if v.shape or not self.nested)
        found = anchors(self.graph, self.users, self.free, self.schedules)
        for anchor in found:
            growth.start_anchor(self.schedules[anchor.schedule], anchor)
        self.host = host_ops(self.graph.ops, self.wanted, self.registers, self.free, growth.owner, self.nested)
        self.registers.update(v for op in self.host for v in op.results)
        for value in self.wanted:
            self._need_register(value)
        for op in unneeded(self.graph, found, self.users, self.in_memory):
            growth.owner[op] = growth.groups[0]
        for op in reversed(self.graph.ops):
            if op not in growth.owner and op not in self.free and not is_array(op):
                self._visit(op)
        for value in sorted(self.in_memory, key=lambda v: position[v.op] if v.op else -1):
            if value.op in self.free:
                growth.start(self.row, [], [value])
        groups = [growing.finished() for growing in sorted(growth.groups, key=lambda g: g.anchor)]
        scope = Scope(
            self.graph.inputs, self.graph.outputs, tuple(ordered(groups, self.changes, defines=bool(self.stages)))
        )
        self.plan.aliases |= self.changes.aliases
        kept = {v: old_value(use) for v, use in self.changes.changed.items() if v not in self.plan.moving}
        self.plan.reused |= kept
        self.plan.registers |= self.registers
        self.plan.splits += self.splits
        return scope

    # Registers.

    def _registers(self) -> set[Value]:
        """Scalars that the host flow has in registers: a region's, and those that control flow results in."""
        found = {v for v in self.graph.inputs if self.nested and not v.shape}
        return found | {v for op in self.graph.ops if kind(op) == "control" for v in op.results if not v.shape}

    def _wanted(self) -> Iterator[Value]:
        """Scalars that the host flow needs: what decides, what is carried, what a region returns."""
        for op in self.graph.ops:
            if op.name == "while":
                yield from (x for x in op.operands[: op.attrs["carried"]] if not x.shape)
            elif op.name in ("case", "define"):
                yield op.operands[0]
        yield from (v for v in self.graph.outputs if self.nested and not v.shape)

    def _need_register(self, value: Value) -> None:
        """Make a scalar available in a register: the result of a kernel is stored in memory and loaded.

        All other values are in a register, or can be computed at once.
        """
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
                self.changes.aliases[op.result] = op.operands[0]
                self.in_memory.add(op.operands[0])
            case "scatter":
                self._scatter(op)
            case "host":
                self.start_reading(HOST, op, (), op.operands)
            case "control":
                start_control(self, op)
            case name if name in self.schedules:
                self._start(self.schedules[name], op)
            case _:
                self._join_or_start(op)
                if op.name == "slice_padded":  # one of many, for each of which the operand would be computed
                    self.in_memory.add(op.operands[0])
                    self.growth.owner[op].memory += op.operands

    def _is_alias(self, op: Op) -> bool:
        """A reshape that does more than add or drop axes of size 1 reads its operand's memory under another shape.

        So does any reshape between two values that are in memory anyway, and a bitcast to elements of another width.
        What repeats rows of something in memory needs none: its elements are read where they are.
        """
        if kind(op) == "alias":
            return True
        if op.name != "reshape":
            return False
        segments = reshape_segments(op.result.shape, op.operands[0].shape, self.facts)
        last_kept = segments and len(segments[-1][0]) == len(segments[-1][1]) == 1
        if last_kept and self._repeats(op.operands[0]):
            return False
        trivial = all([len(left) <= 1 and len(right) <= 1 for left, right in segments])
        only_memory = op.result in self.in_memory and not self.readers.get(op.result)
        return not trivial or only_memory or op.operands[0].op is None

    def _repeats(self, x: Value) -> bool:
        """Is it a broadcast, under any shape, of a value in memory?"""
        repeated = False
        while x.op is not None and x.op.name in ("broadcast", "reshape") and x not in self.in_memory:
            repeated |= x.op.name == "broadcast"
            (x,) = x.op.operands
        return repeated and (x.op is None or x in self.in_memory)

    # Joining.

    def _join_or_start(self, op: Op) -> None:
        used = [v for v in op.results if self.users[v] or v in self.in_memory]
        if op in self.separate:
            self.growth.start(self.row, [op], used)
            return
        groups = list(dict.fromkeys(g for v in used for g in self.readers.get(v, ())))
        outside = any(v in self.in_memory for v in used)
        if op.name in COPIED_VIEWS and len(groups) > 1:
            rest = [g for g in groups if not self._may_join(op, g, [g], outside=False)]
            if not rest and not outside:
                return
            groups = rest
        target = min(groups, key=self.growth.first, default=None)
        if target is not None and self._may_join(op, target, groups, outside):
            return
        self.growth.start(self.row, [op], used)

    def _may_join(self, op: Op, target: Growing, groups: list[Growing], outside: bool) -> bool:
        """Join `target`, the first of the groups that read the result, if that is legal."""
        joins = target.schedule.joins
        if (
            joins is Joins.NOTHING
            or any([v in target.memory for v in op.results])
            or any([self._is_changed_by(target, x) for x in reads(op) if x in self.reuse.family])
        ):
            return False
        behind = self._readers_of_aliases(op) if outside else []
        if target in behind:
            return False
        others = [g for g in [*groups, *behind] if g is not target]
        keep = outside or bool(others)
        if keep and self.stages and self.stages[op] != max(map(self.stages.__getitem__, target.ops), default=0):
            return False  # it may be needed for a size that the group waits for
        if joins is Joins.READ:
            if keep or not self._feeds(op, target):
                return False
            self.growth.add(op, target)
            return True
        if op.name not in COPIED_VIEWS and self.growth.is_full(target):
            return False
        ordered = all(self.growth.first(g) > self.growth.last(target) for g in others)
        return (not keep or (ordered and target.place is None)) and self._try_join(op, target, keep)

    def _readers_of_aliases(self, op: Op) -> list[Growing]:
        """The groups that read the memory of the results under another shape."""
        aliases = [alias for alias in self.changes.aliases if self.changes.version(alias) in op.results]
        return [group for alias in aliases for group in self.readers.get(alias, ())]

    def _try_join(self, op: Op, group: Growing, keep: bool) -> bool:
        kept = [v for v in op.results if keep and self._is_kept(v, op, group)]
        outputs = [*group.outputs, *kept]
        # Nothing else can spoil a row group: not looking at it halves the time of fusion.
        if keep or kind(op) == "reduce" or is_slow(op):
            space = row_space([*group.ops, op], outputs, self.facts)
            if isinstance(space, str):
                self.splits.append((op, space))
                return False
        group.outputs = outputs
        self.in_memory.update(kept)
        self.growth.add(op, group)
        return True

    def _is_kept(self, value: Value, op: Op, group: Growing) -> bool:
        """Is a result needed in memory, of an op of which some result is?"""
        others = any(g is not group for g in self.readers.get(value, ()))
        return len(op.results) == 1 or value in self.in_memory or others

    def _feeds(self, op: Op, group: Growing) -> bool:
        """May the op, which nothing else reads, be computed where the group reads it? Not if that repeats much work."""
        if kind(op) not in ("view", "elementwise", "gather") or op.result in group.memory:
            return False
        if self.growth.is_full(group):
            return False
        once = group.schedule.once
        return not is_slow(op) or (once is not None and op.result.shape == once(group.outputs[0]))

    def _is_changed_by(self, group: Growing, x: Value) -> bool:
        """Is `x` what the group changes in place? Then it must not read it."""
        family, changed = self.reuse.family, self.changes.changed
        written = [group.place.target] if group.place else group.outputs
        return any(family[x] is family.get(old_value(changed[v])) for v in written if v in changed)

    # Groups of their own.

    def _start(self, schedule: Schedule, op: Op) -> None:
        """A group of a schedule that the op has for itself."""
        if schedule.joins is Joins.NOTHING:
            self.start_reading(schedule, op, op.operands)
        else:
            self.growth.start(schedule, [op], [v for v in op.results if self.users[v] or v in self.in_memory])

    def start_reading(
        self, schedule: Schedule, op: Op, operands: Sequence[Value], scalars: Sequence[Value] = ()
    ) -> None:
        """A group of one op that finds operands in memory, scalars in registers, and leaves its results there."""
        self.growth.start_reading(schedule, op, operands, scalars, self.registers)

    def _start_host(self, op: Op) -> None:
        """A group of one scalar, computed in the host flow from registers and what lies in memory."""
        group = self.growth.start_host([op] if kind(op) == "elementwise" else element_chain(op)[::-1], op)
        for x in dict.fromkeys(x for link in group.ops for x in link.operands):
            if x.op not in group.ops:
                self._need_register(x)

    def fuse_region(self, region: Graph, owned: Collection[Value]) -> Scope:
        """The groups of a region of an op of this scope."""
        return fuse_scope(region, self.plan, self.schedules, owned, nested=True)

    # Values assembled from parts, and values changed in place.

    def _assemble(self, op: Op) -> None:
        target = op.result
        self.in_memory.add(target)
        parts = parts_of(op)
        if self.take_over(op, 0, target):
            parts = parts[1:]
        for part in parts:
            self._place_part(op, part)

    def _place_part(self, op: Op, part: Part) -> None:
        """Write a part of what `op` makes; what is assembled for nothing else by its own parts."""
        x = part.value
        alone = len(self.users[x]) == 1 and x not in self.in_memory
        inner = parts_of(x.op) if alone and x.op is not None else []
        if x.op is None or not inner or any(isinstance(i, Value) for y in (part, *inner) for i in y.starts):
            self.place(op, op.result, part)
            return
        for each in inner:
            self._place_part(op, _within(each, part))
        self.growth.owner[x.op] = self.growth.groups[-1]

    def may_change(self, op: Op, number: int) -> bool:
        """May the op change an operand in place?"""
        return (op, number) in self.reuse.taken

    def take_over(self, op: Op, number: int, target: Value) -> bool:
        """Let `target` have the memory of an operand that the op may change; False when it needs memory of its own."""
        if not self.may_change(op, number):
            return False
        self.changes.changed[target] = (op, number)
        self.in_memory.add(op.operands[number])
        return True

    def consume(self, op: Op, numbers: Sequence[int]) -> None:
        """Note that the op changes operands, whatever becomes of them."""
        self.changes.consumed[op] = [(op, number) for number in numbers]

    def place(self, op: Op, target: Value, part: Part) -> None:
        """A group that writes a part of `target`."""
        where = Place(target, target.shape, part.starts, part.steps, tuple(range(target.rank)))
        group = self.growth.start(self.row, [], [part.value], where)
        group.anchor = self.growth.position[op]
        for start in part.starts:
            if isinstance(start, Value):
                self.growth.read(start, group)

    def _scatter(self, op: Op) -> None:
        """Start the group of a scatter, which changes its results in place.

        Each operand that it changes is written into its result before, unless the result takes over its memory.
        """
        for number, (target, x) in enumerate(zip(op.results, op.operands, strict=False)):
            if not self.take_over(op, number, target):
                self.place(op, target, whole(x))
        self.growth.start(self.schedules["scatter"], [op], list(op.results))
