"""Fusion of control flow: a region is a scope of its own, and the values of loops and branches get their memory.

A loop owns the memory of its carried values. Its initial value is one that nobody else needs, or a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, copied
from hlo_disc.dynamic_hlo.ops.axes import Part, whole
from hlo_disc.stitch.fusion.group import copy_group
from hlo_disc.stitch.fusion.scope import Branches, Carried, Loop, Plan, Scope
from hlo_disc.stitch.schedule import CONTROL, Schedule


class Enclosing(Protocol):
    """The scope that the control flow is in, as far as its groups and values are made here."""

    graph: Graph
    plan: Plan
    row: Schedule

    def fuse_region(self, region: Graph, owned: Collection[Value]) -> Scope:
        """The groups of a region; owned: its inputs that it may change."""
        ...

    def may_change(self, op: Op, number: int) -> bool:
        """May the op change an operand in place?"""
        ...

    def take_over(self, op: Op, number: int, target: Value) -> bool:
        """Let `target` have the memory of an operand that the op may change; False when it needs memory of its own."""
        ...

    def consume(self, op: Op, numbers: Sequence[int]) -> None:
        """Note that the op changes operands, whatever becomes of them."""
        ...

    def place(self, op: Op, target: Value, part: Part) -> None:
        """A group that writes a part of `target`."""
        ...

    def start_reading(
        self, schedule: Schedule, op: Op, operands: Sequence[Value], scalars: Sequence[Value] = ()
    ) -> None:
        """A group of one op that finds operands in memory, scalars in registers, and leaves its results there."""
        ...


def start_control(fusion: Enclosing, op: Op) -> None:
    """A group for an op with regions."""
    (_start_while if op.name == "while" else _start_case)(fusion, op)


def _region(region: Region) -> Region:
    """Copy a region, with values of its own: regions of several ops may be one object."""
    values = {v: Value(v.dtype, v.shape, None, i) for i, v in enumerate(region.inputs)}
    inputs = tuple(values.values())
    ops = [copied(op, values) for op in region.ops]
    return Region(inputs, tuple(ops), tuple(values[v] for v in region.outputs))


def _scope(fusion: Enclosing, region: Region, owned: Sequence[Value]) -> Scope:
    graph = fusion.graph
    names = ("",) * len(region.inputs)
    own = Graph(graph.name, region.inputs, names, region.outputs, region.ops, graph.facts, {})
    return fusion.fuse_region(own, owned)


def with_copies(scope: Scope, plan: Plan, row: Schedule, taken: set[Value], kept: Collection[int] = ()) -> Scope:
    """An output that is an input, a constant, the memory of another output or of no fixed place gets a copy.

    row: the schedule of copies. taken: memory that is no output's either. kept: outputs, by number, that are fine so.
    """
    made = {plan.root(v) for group in scope.groups for v in group.written} - plan.moving - set(scope.inputs)
    outputs, copies = [], []
    for number, value in enumerate(scope.outputs):
        if number not in kept:
            if plan.root(value) in taken or plan.root(value) not in made:
                group, value = copy_group(value, row)
                copies.append(group)
            taken.add(plan.root(value))
        outputs.append(value)
    return replace(scope, outputs=tuple(outputs), groups=(*scope.groups, *copies))


# Loops.


def _start_while(fusion: Enclosing, op: Op) -> None:
    plan, count = fusion.plan, op.attrs["carried"]
    test, step = _region(op.attrs["cond"]), _region(op.attrs["body"])
    cond = _scope(fusion, test, ())
    body = _scope(fusion, step, [v for v in step.inputs[:count] if v.shape])
    in_place, follows = _turns(body, plan, count)
    settled = {*in_place, *follows, *(k for k in range(count) if not step.inputs[k].shape)}
    body = with_copies(body, plan, fusion.row, {step.inputs[k] for k in (*in_place, *follows.values())}, settled)
    carried = []
    for k, (before, after, result) in enumerate(zip(step.inputs, body.outputs, op.results, strict=False)):
        entry, spare = op.operands[k], None
        if entry.shape and not fusion.take_over(op, k, result):
            entry = Value(entry.dtype, entry.shape)
            fusion.place(op, entry, whole(op.operands[k]))
        if k in in_place:
            plan.reused[before] = plan.reused[result] = entry
        elif entry.shape:
            plan.moving |= {before, result}
            if k not in follows:
                spare = Value(entry.dtype, entry.shape)
                plan.moving.add(plan.root(after))
        carried.append(Carried(entry, before, after, result, k in in_place, spare, follows.get(k)))
    plan.loops[op] = Loop(tuple(carried), cond, body)
    invariant = op.operands[count:]
    plan.aliases |= dict(zip(test.inputs, [*step.inputs[:count], *invariant], strict=True))
    plan.aliases |= dict(zip(step.inputs[count:], invariant, strict=True))
    entries = [c.entry for c in carried if not c.in_register]
    fusion.start_reading(CONTROL, op, [*entries, *invariant], [c.entry for c in carried if c.in_register])


def _turns(body: Scope, plan: Plan, count: int) -> tuple[set[int], dict[int, int]]:
    """The carried values that are changed in place, and those that become what another one was, with its number."""
    numbers = {value: k for k, value in enumerate(body.inputs[:count]) if value.shape}
    found = {k: numbers[plan.root(after)] for k, after in enumerate(body.outputs) if plan.root(after) in numbers}
    in_place = {k for k, other in found.items() if k == other}
    follows: dict[int, int] = {}
    for k, other in found.items():
        if k != other and other not in in_place and other not in follows.values():
            follows[k] = other
    return in_place, follows


# Branches.


def _start_case(fusion: Enclosing, op: Op) -> None:
    plan, operands = fusion.plan, op.operands[1:]
    regions = [_region(branch) for branch in op.attrs["branches"]]
    owned = [k for k in range(len(operands)) if fusion.may_change(op, k + 1)]
    scopes = [_scope(fusion, region, [region.inputs[k] for k in owned]) for region in regions]
    fusion.consume(op, [k + 1 for k in owned])
    in_place: dict[int, int] = {}
    for number in range(len(op.results)):
        for k in owned:
            if k not in in_place.values() and all(plan.root(s.outputs[number]) is s.inputs[k] for s in scopes):
                in_place[number] = k
    settled = {*in_place, *(number for number, value in enumerate(op.results) if not value.shape)}
    for i, scope in enumerate(scopes):
        scopes[i] = with_copies(scope, plan, fusion.row, {scope.inputs[k] for k in in_place.values()}, settled)
        made = {plan.root(v): r for v, r in zip(scopes[i].outputs, op.results, strict=True)}
        plan.reused |= {root: result for root, result in made.items() if result.shape and root not in scope.inputs}
    for scope in scopes:
        plan.aliases |= dict(zip(scope.inputs, operands, strict=True))
    for number, k in in_place.items():
        fusion.take_over(op, k + 1, op.results[number])
    plan.branches[op] = Branches(op.operands[0], tuple(scopes), op.results)
    fusion.start_reading(CONTROL, op, operands, op.operands[:1])
