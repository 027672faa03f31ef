"""The groups of a scope while they grow: the group of each op, the readers of each value, the values in memory.

This is bookkeeping; `fuse.py` decides which ops join which groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.stitch.fusion.anchor import Anchor
from hlo_disc.stitch.fusion.group import Group, Place, reads
from hlo_disc.stitch.schedule import CONTROL, HOST, Schedule


@dataclass(eq=False)
class Growing:
    """A group to be. anchor: its place in the order of the graph. views: what it computes whoever else wants it.

    memory: what it reads in memory, or in registers, whatever that is. span: the places of its first and last op, once
    they are known. costly: how many of its first `counted` ops are more than constants, views and the like.
    """

    schedule: Schedule
    ops: dict[Op, None] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    place: Place | None = None
    anchor: int = 0
    views: tuple[Op, ...] = ()
    memory: tuple[Value, ...] = ()
    span: tuple[int, int] | None = None
    counted: int = 0
    costly: int = 0

    def finished(self) -> Group:
        if self.schedule is CONTROL or not self.outputs:
            return Group(self.schedule, tuple(self.ops), self.memory, tuple(self.outputs))
        return Group.of(self.schedule, self._in_order(), self.outputs, self.place)

    def _in_order(self) -> list[Op]:
        """Operands before users, in the order in which the outputs need them: alike groups come out alike."""
        roots = [*self.outputs, *(self.place.starts if self.place else ())]
        return backward_slice([v for v in roots if isinstance(v, Value)], {*self.ops, *self.views}, reads)


class Growth:
    """The groups of a scope so far. free: ops that every group computes for itself, because they cost nothing.

    in_memory: values that are needed there. owner: the group of an op. readers: the groups that read a value.
    """

    def __init__(self, ops: Sequence[Op], free: Collection[Op]):
        self.position = {op: i for i, op in enumerate(ops)}
        self.free = free
        self.groups: list[Growing] = []
        self.in_memory: set[Value] = set()
        self.owner: dict[Op, Growing] = {}
        self.readers: dict[Value, list[Growing]] = {}

    def start(self, schedule: Schedule, ops: Sequence[Op], outputs: list[Value], place: Place | None = None) -> Growing:
        """A group of ops, or one that copies its outputs into a place."""
        group = Growing(schedule, dict.fromkeys(ops), outputs, place)
        self.groups.append(group)
        group.anchor = max((self.position[op] for op in ops), default=0)
        if place is None:
            self.in_memory.update(outputs)
        for op in ops:
            self.owner[op] = group
        for op in ops:
            self._reads(op, group)
        if not ops:
            for value in outputs:
                self.read(value, group)
        return group

    def start_anchor(self, schedule: Schedule, anchor: Anchor) -> None:
        """A group around a dot. Its operands are walked in memory, whatever they are."""
        group = Growing(schedule, dict.fromkeys(anchor.ops), [anchor.ops[-1].result])
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

    def start_reading(
        self,
        schedule: Schedule,
        op: Op,
        operands: Sequence[Value],
        scalars: Sequence[Value],
        registers: Collection[Value],
    ) -> None:
        """A group of one op that finds operands in memory, scalars in registers, and leaves its results there."""
        group = Growing(schedule, {op: None}, list(op.results))
        group.memory = tuple(dict.fromkeys((*operands, *scalars)))
        group.anchor = self.position[op]
        self.groups.append(group)
        self.owner[op] = group
        self.in_memory.update(v for v in (*op.results, *operands) if v not in registers)
        for value in group.memory:
            self.readers.setdefault(value, []).append(group)

    def start_host(self, chain: Sequence[Op], anchor: Op) -> Growing:
        """A group of one scalar, which `anchor` makes, computed in the host flow by a chain of ops."""
        group = Growing(HOST, dict.fromkeys(chain), [anchor.result], anchor=self.position[anchor])
        self.groups.append(group)
        self.owner[anchor] = group
        for op in chain:
            self._reads(op, group)
        return group

    def add(self, op: Op, group: Growing) -> None:
        group.ops[op] = None
        if group.span is not None:
            at, (first, last) = self.position[op], group.span
            group.span = min(first, at), max(last, at)
        self.owner[op] = group
        self._reads(op, group)

    def read(self, x: Value, group: Growing) -> None:
        """Note that the group reads a value; a free one joins it, unless the group needs it in memory anyway."""
        if x.op is not None and x.op in self.free and x not in group.memory:
            if x.op not in group.ops:
                group.ops[x.op] = None
                self._reads(x.op, group)
        elif x.op not in group.ops:
            self.readers.setdefault(x, []).append(group)

    def _reads(self, op: Op, group: Growing) -> None:
        for x in reads(op):
            self.read(x, group)

    def first(self, group: Growing) -> int:
        """The place of the group's first op in the graph."""
        return self._span(group)[0]

    def last(self, group: Growing) -> int:
        """The place of the group's last op in the graph."""
        return self._span(group)[1]

    def _span(self, group: Growing) -> tuple[int, int]:
        if group.span is None:
            places = [self.position[op] for op in group.ops if op not in self.free]
            if not places:
                return group.anchor, group.anchor
            group.span = min(places), max(places)
        return group.span

    def is_full(self, group: Growing) -> bool:
        """Has it as many ops as it may, without constants, views and what else costs next to nothing?"""
        most = group.schedule.most_ops
        if most is None or len(group.ops) < most:
            return False
        new = islice(group.ops, group.counted, None)
        group.costly += sum([op not in self.free and kind(op) != "view" for op in new])
        group.counted = len(group.ops)
        return group.costly >= most
