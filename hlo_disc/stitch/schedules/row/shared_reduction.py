"""Reductions shared among blocks: one kernel reduces slices of the columns, another one their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.graph import Op, Value, copied, make_op
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.space import row_space
from hlo_disc.stitch.schedules.row.variant import RowVariant
from hlo_disc.stitch.schedules.two_launches import Half, TwoLaunches


def sliced(whole: RowVariant, slices: int, most: int) -> TwoLaunches | None:
    """Split a group of one level of reductions over one axis, and ops after it, into two halves.

    slices: into how many the axis is cut. most: so many results of a reduction there are at most when they are taken.
    """
    group, space = whole.group, whole.space
    if len(space.passes) != 1 or len(space.passes[0].cols) != 1 or group.place:
        return None
    reductions = space.passes[0].reductions
    if not reductions or space.scans:
        return None
    above = set(backward_slice([x for op in reductions for x in op.operands], group.ops))
    results = tuple(v for op in reductions for v in op.results)
    front = whole.lanes_on_rows
    work = of_slices(results, slices, front)
    scalars = [x for op in reductions for x in op.operands[len(op.results) :]]
    inits = set(backward_slice(scalars, group.ops))
    first = [op for op in group.ops if op in above or op in reductions]
    partial = replace(Group.of(group.schedule, first, results), inputs=group.inputs)
    made = dict(zip(results, work, strict=True))
    ops: list[Op] = [op for op in group.ops if op in inits]
    new: dict[Value, Value] = {}
    for op in reductions:
        axis = 0 if front else op.results[0].rank
        ends = _end(op, [made[v] for v in op.results], axis, space.passes[0].cols[0], slices)
        ops += ends
        new.update(zip(op.results, ends[-1].results, strict=True))
    values = dict(new)
    for op in group.ops:
        if op in reductions or op in ops:
            continue
        ops.append(copied(op, values))
    outputs = [values.get(v, v) for v in group.outputs]
    kept = set(backward_slice(outputs, ops))
    end = Group.of(group.schedule, [op for op in ops if op in kept], outputs)
    if set(end.inputs) - set(work) - set(group.inputs):
        return None
    end_space = row_space(end.ops, end.outputs, whole.facts)
    part_space = row_space(partial.ops, partial.outputs, whole.facts)
    if isinstance(end_space, str) or isinstance(part_space, str):
        return None
    first_half = replace(whole, group=partial, space=part_space, slices=slices)
    return TwoLaunches(
        first_half.name,
        group,
        Half(first_half, (*group.inputs, *work), partial.symbols),
        Half(replace(whole, group=end, space=end_space), (*end.inputs, *group.outputs), end.symbols),
        work,
        rooms(results, slices, most),
    )


def rooms(results: Sequence[Value], slices: int, most: int) -> tuple[Value, ...]:
    """Return the memory for the results of slices, each with at most `most`."""
    return tuple(Value(v.dtype, (Dim.min(dim_product(v.shape), most) * slices,)) for v in results)


def of_slices(results: Sequence[Value], slices: int, front: bool) -> tuple[Value, ...]:
    """Return the results of slices, along the first axis or the last one."""
    count = Dim.const(slices)
    return tuple(Value(v.dtype, (count, *v.shape) if front else (*v.shape, count)) for v in results)


def _end(op: Op, work: Sequence[Value], axis: int, cols: Dim, slices: int) -> list[Op]:
    """Build the ops that reduce the results of slices; a region reduces only non-empty slices."""
    attrs = op.attrs | {"dims": (axis,)}
    ops: list[Op] = []
    if op.name == "reduce_with":
        span = Dim.max((cols + (slices - 1)) // slices, Dim.const(1))
        count = Dim.min(Dim.const(slices), (cols + (span - 1)) // span)
        ops = [_first(v, axis, count, op.loc) for v in work]
        work = [cut.result for cut in ops]
    types = [(v.dtype, v.shape) for v in op.results]
    return [*ops, make_op(op.name, [*work, *op.operands[len(work) :]], attrs, types, op.loc)]


def _first(value: Value, axis: int, count: Dim, loc: str) -> Op:
    """Take the first `count` elements of an axis."""
    limit = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    attrs: Attributes = {"start": (Dim.const(0),) * value.rank, "limit": limit, "stride": (1,) * value.rank}
    return make_op("slice", [value], attrs, [(value.dtype, limit)], loc)
