"""Dots with few results and much to sum, shared among blocks: one kernel sums parts of K, a second one adds them up.

partial[s, i, j] = sum over part s of K          result = epilogue(sum over s of partial)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op, Value, copied, make_op
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import CompileError
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import PART, Static
from hlo_disc.stitch.schedules.dot.product import Axis, Product
from hlo_disc.stitch.schedules.row.choices import row_choices
from hlo_disc.stitch.schedules.two_launches import Half, TwoLaunches
from hlo_disc.stitch.variant import Choice, Condition, decided

if TYPE_CHECKING:
    from hlo_disc.stitch.schedules.dot.teams.team_dot import TeamDot
    from hlo_disc.stitch.schedules.dot.variant import DotVariant

# Parts of K. Results that are few: their sums of all parts take 4 MiB. Products a result that are many.
SLICES = 16
FEW_RESULTS, MANY_PRODUCTS = 1 << 16, 1 << 13


def shared_dot(whole: DotVariant | TeamDot, device: Device, facts: ShapeFacts, static: Static) -> Choice | None:
    """Return the choice that shares a dot among blocks; None if its results are never few, or its sums never long."""
    p = whole.product
    depth = p.inner[0].size
    few = (real := static.size(depth)).is_const and real.value < MANY_PRODUCTS
    if not p.axes or few or facts.at_most(Dim.const(MANY_PRODUCTS), depth) is Truth.NO:
        return None
    results = dim_product(axis.size for axis in p.axes)
    if facts.at_most(results, Dim.const(FEW_RESULTS)) is Truth.NO:
        return None
    shape = (Dim.const(SLICES), *(axis.size for axis in p.axes))
    sums = Value(p.dtype, shape)
    part = replace(whole.group, outputs=(sums,), place=None)
    end = _end(p, sums)
    try:
        *_, final = decided(row_choices(end, facts, device, Static()), facts, device.fast_limit)
    except CompileError:  # the epilogue is no row group of its own
        return None
    if final.variant.workspace:
        return None
    room = Value(p.dtype, (Dim.min(results, FEW_RESULTS) * SLICES,))
    partial = replace(whole, group=part, product=_sliced(p, sums), slices=SLICES)
    given = {sums: sums} | dict(zip(p.epilogue.inputs[1:], p.reads, strict=True))  # by values with merged axes
    shared = TwoLaunches(
        f"{partial.name}_shared",
        whole.group,
        Half(partial, (*whole.group.inputs, sums), part.symbols),
        Half(final.variant, (*(given[v] for v in end.inputs), *whole.group.outputs), end.symbols),
        (sums,),
        (room,),
        whole.key(),
    )
    return Choice(shared, (Condition(results, "<=", FEW_RESULTS), Condition(depth, ">=", MANY_PRODUCTS)))


def _sliced(p: Product, sums: Value) -> Product:
    """Return the product with the number of the part as its first axis, and no epilogue."""
    return replace(
        p,
        axes=(Axis(Dim.const(SLICES), ZERO, ZERO), *p.axes),
        row=None if p.row is None else p.row + 1,
        col=None if p.col is None else p.col + 1,
        epilogue=Group(PART, (), (sums,), (sums,)),
        reads=(),
    )


def _end(p: Product, sums: Value) -> Group:
    """Add up the parts, and continue with the product's epilogue."""
    first = p.epilogue.inputs[0]
    zero = make_op("constant", [], {"value": np.zeros((), p.dtype)}, [(p.dtype, ())], "")
    total = make_op("reduce", [sums, zero.result], {"dims": (0,), "kind": "add"}, [(p.dtype, first.shape)], "")
    ops: list[Op] = [zero, total]
    if first.dtype != p.dtype:
        ops.append(make_op("convert", [total.result], {"dtype": first.dtype}, [(first.dtype, first.shape)], ""))
    values = {first: ops[-1].result}
    ops += [copied(op, values) for op in p.epilogue.ops]
    (output,) = p.epilogue.outputs
    return Group.of(PART, ops, [values.get(output, output)])
