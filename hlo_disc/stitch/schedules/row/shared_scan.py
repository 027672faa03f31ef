"""Cumulative ops along few, long rows, shared among blocks: one kernel combines parts of the columns, the next starts
each part from all that comes before it."""

from __future__ import annotations

from dataclasses import replace

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.graph import Op, make_op
from hlo_disc.dynamic_hlo.ops.families.combiners import monoid_kind
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.space import row_space
from hlo_disc.stitch.schedules.row.shared_reduction import of_slices, rooms
from hlo_disc.stitch.schedules.row.variant import RowVariant
from hlo_disc.stitch.schedules.two_launches import Half, TwoLaunches


def shared_scan(whole: RowVariant, most: int) -> TwoLaunches | None:
    """Split a group whose cumulative ops read nothing that needs another sweep into two halves.

    most: so many rows there are at most when they are taken.
    """
    group, space = whole.group, whole.space
    if len(space.passes) != 1 or space.passes[0].reductions or len(space.passes[0].cols) != 1:
        return None
    scans = space.passes[0].scans
    above = set(backward_slice([x for op in scans for x in op.operands], group.ops))
    if not scans or any(op in above for op in scans):
        return None
    front, slices = whole.lanes_on_rows, whole.device.parts
    totals = [_total(op) for op in scans]
    results = [v for op in totals for v in op.results]
    work = of_slices(results, slices, front)
    ops = [op for op in group.ops if op in above]
    partial = replace(Group.of(group.schedule, [*ops, *totals], results), inputs=group.inputs)
    part_space = row_space(partial.ops, partial.outputs, whole.facts)
    if isinstance(part_space, str) or part_space.lanes_on_rows != front:
        return None
    last = replace(whole, totals=work, slices=slices)
    return TwoLaunches(
        f"{last.name}_shared",
        group,
        Half(replace(whole, group=partial, space=part_space, slices=slices), (*group.inputs, *work), partial.symbols),
        Half(last, (*group.inputs, *work, *group.outputs), group.symbols),
        work,
        rooms(results, slices, most),
    )


def _total(op: Op) -> Op:
    """Build the reduction of the operands of a cumulative op along the whole axis."""
    dim, n = op.attrs["dim"], len(op.results)
    types = [(v.dtype, (*v.shape[:dim], *v.shape[dim + 1 :])) for v in op.results]
    kind = monoid_kind(op.attrs["body"]) if len(op.operands) == 2 * n else None
    if kind is not None:
        return make_op("reduce", op.operands, {"dims": (dim,), "kind": kind}, types, op.loc)
    return make_op("reduce_with", op.operands, {"dims": (dim,), "body": op.attrs["body"]}, types, op.loc)
