"""The memory plan: which intermediate values share a slot in the one arena of a call.

A value reuses a slot whose last reader has run, if the facts prove that one of the two sizes holds the other. Steps are
counted from 0 through all scopes. A loop needs the values that it reads from outside, or carries, until it ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Branches, Carried, Loop, Plan, Scope
from hlo_disc.stitch.schedule import CONTROL


@dataclass(eq=False)
class Slot:
    """A part of the arena, `size` bytes at least, free again after step `until`."""

    size: Dim
    until: int


def value_bytes(value: Value) -> Dim:
    """Return the bytes of the value in memory; bool takes a byte."""
    return dim_product(value.shape) * value.dtype.itemsize


def plan_memory(
    lives: Mapping[Value, tuple[int, int]], facts: ShapeFacts, exact: bool = False
) -> tuple[dict[Value, Slot], list[Slot]]:
    """Assign slots to values that live from one step to another, both included. exact: only equal sizes share one."""
    slots: list[Slot] = []
    places: dict[Value, Slot] = {}
    samples = functools.cache(functools.partial(_samples, facts))
    for value, (start, end) in sorted(lives.items(), key=lambda item: item[1]):
        size = value_bytes(value)
        slot = _take([s for s in slots if s.until < start], size, facts, None if exact else samples)
        if slot is None:
            slot = Slot(size, end)
            slots.append(slot)
        slot.until = end
        places[value] = slot
    return places, slots


def _take(
    free: Sequence[Slot], size: Dim, facts: ShapeFacts, samples: Callable[[Dim], tuple[int, ...]] | None
) -> Slot | None:
    """A slot that a size can have, of equal size without `samples`."""
    for slot in free:
        if slot.size == size:
            return slot
    if samples is None:
        return None
    # A proof that fails costs the most: first look whether some sizes tell at once that there is none.
    wanted = samples(size)
    found = [(samples(slot.size), slot) for slot in free]
    for sample, slot in sorted(found, key=lambda pair: pair[0]):
        if all(x <= y for x, y in zip(wanted, sample, strict=True)) and facts.at_most(size, slot.size) is Truth.YES:
            return slot
    for sample, slot in sorted(found, key=lambda pair: pair[0], reverse=True):
        if all(y <= x for x, y in zip(wanted, sample, strict=True)) and facts.at_most(slot.size, size) is Truth.YES:
            slot.size = size
            return slot
    return None


def _samples(facts: ShapeFacts, size: Dim) -> tuple[int, ...]:
    """Evaluate a size at likely values of its symbols, and with all of them 1 and 3."""
    points = [dict.fromkeys(size.symbols, n) for n in (1, 3)]
    try:
        return facts.likely(size), *(size.evaluate(point) for point in points)
    except ZeroDivisionError:
        return facts.likely(size), 0, 0


class Lives:
    """First and last step of every value that needs a place in the arena, in `steps`.

    order: the step of each group.
    workspace: memory that a group needs while it runs. stored: registers that kernels read in memory, too. elsewhere:
    values whose memory the caller brings.
    """

    def __init__(
        self,
        plan: Plan,
        workspace: Callable[[Group], Iterable[Value]],
        stored: Collection[Value],
        elsewhere: Collection[Value],
    ):
        self.plan, self.workspace, self.stored, self.elsewhere = plan, workspace, stored, elsewhere
        self.steps: dict[Value, tuple[int, int]] = {}
        self.buffers: dict[Value, list[Value]] = {}  # that take turns in being a moving value
        self.order: dict[Group, int] = {}
        self.at = -1  # before the first step
        self._scope(plan.scope)

    def _define(self, value: Value) -> None:
        root = self.plan.root(value)
        if root in self.plan.moving or root in self.elsewhere:
            return
        if root not in self.plan.registers or root in self.stored:
            self.steps[root] = (self.steps.get(root, (self.at, 0))[0], self.at)

    def _use(self, value: Value) -> None:
        for root in self._storage(value):
            if root in self.steps:
                self.steps[root] = (self.steps[root][0], self.at)

    def _storage(self, value: Value) -> list[Value]:
        root = self.plan.root(value)
        return [x for v in self.buffers[root] for x in self._storage(v)] if root in self.buffers else [root]

    def _scope(self, scope: Scope) -> None:
        for group in scope.groups:
            self.at += 1
            self.order[group] = self.at
            for value in group.inputs:
                self._use(value)
            if group.schedule is not CONTROL:
                for value in group.written:
                    self._define(value)
                self.steps.update((value, (self.at, self.at)) for value in self.workspace(group))
                continue
            (op,) = group.ops
            if op in self.plan.loops:
                self._loop(self.plan.loops[op])
            else:
                self._branches(self.plan.branches[op])
        self.at += 1
        for value in scope.outputs:
            self._use(value)

    def _loop(self, loop: Loop) -> None:
        start = self.at
        for c in loop.carried:
            if c.spare is not None:
                self.steps[c.spare] = (start, start)
        for together in _taking_turns(loop.carried):
            storage = [v for c in together for v in (c.entry, c.spare) if v is not None]
            self.buffers.update((c.result, storage) for c in together)
        self.at += 1
        for c in loop.carried:
            if c.in_register:
                self._define(c.before)
        self._scope(loop.cond)
        self._scope(loop.body)
        self.at += 1
        for value, (first, last) in self.steps.items():
            if first <= start <= last:
                self.steps[value] = (first, self.at)
        for c in loop.carried:
            self._define(c.result)

    def _branches(self, branches: Branches) -> None:
        for value in branches.results:
            self._define(value)
        for scope in branches.scopes:
            self._scope(scope)
        for value in branches.results:
            self._define(value)


def _taking_turns(carried: Sequence[Carried]) -> list[list[Carried]]:
    """Return the moving values of a loop, with those whose buffers they take."""
    groups: dict[int, list[Carried]] = {k: [c] for k, c in enumerate(carried) if not c.in_register and not c.in_place}
    for k in list(groups):
        other = carried[k].follows
        if other is not None and groups[other] is not groups[k]:
            groups[other] += groups[k]
            groups.update((n, groups[other]) for n in list(groups) if carried[n] in groups[other])
    return list({id(group): group for group in groups.values()}.values())
