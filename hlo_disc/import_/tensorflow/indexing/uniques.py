"""Unique elements of a vector, and rows by the number of their part; their counts are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import BOOL, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, joined
from hlo_disc.import_.handlers.sort import first_operand_order, make_sort
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import axis_of, result_dtype, shape_of

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def kept(r: Reader, flags: Array) -> tuple[Array, Dim]:
    """Return for each true element its position among the true ones, else -1; and their number."""
    number = flags.cast(I64).cumulative("add", 0)
    total = flags.cast(I64).sum([0]).reshape((ONE,))
    (size,) = r.sizes(total.value)
    return where(flags, number - 1, -1), size


def chosen(x: Array, place: Array, size: Dim) -> Array:
    """Return the rows that have a position, at that position."""
    r = x.r
    start = filled(r, 0, x.dtype, (size, *x.shape[1:]))
    return start.scatter(place.expand(1), x, 1)


def _groups(r: Reader, x: Array) -> tuple[Array, Array]:
    """Return for each element the rank of its value, and for each rank the first position of its value."""
    n = x.shape[0]
    place = x.iota(0, I64)
    xs = [x.value, place.value]
    ordered, origin = (Array(r, y) for y in make_sort(r, xs, first_operand_order(r, xs), (), 0, False))
    before = joined([filled(r, True, BOOL, (Dim.min(n, ONE),)), _differ(r, ordered)], 0)
    number = before.cast(I64).cumulative("add", 0) - 1
    least = filled(r, np.iinfo(np.int64).max, I64, (n,))
    first = least.scatter(number.expand(1), origin, 1, "min")
    return filled(r, 0, I64, (n,)).scatter(origin.expand(1), number, 1), first


def _differ(r: Reader, x: Array) -> Array:
    """Return whether each element but the first differs from the previous one."""
    n = x.shape[0]
    few = r.evaluator.scalar.minimum(n, ONE)
    return x.slice(0, few, n) != x.slice(0, 0, n - few)


def _unique(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the unique elements in the order of their first occurrence, and for each element its number among them."""
    x = array(r, operands[0])
    if len(operands) > 1 and shape_of(operands[1]) != (Dim.const(0),):
        axis_of(r, operands[1], x.rank)
    if x.rank != 1:
        r.unsupported("only elements of a vector")
    group, first = _groups(r, x)
    own = first.take(group, 0)
    place, size = kept(r, own == x.iota(0, I64))
    index = place.take(own, 0)
    made = [chosen(x, place, size), index.cast(result_dtype(op, 1))]
    if len(op.results) > 2:
        ones = filled(r, 1, I64, x.shape)
        counts = filled(r, 0, I64, (size,)).scatter(index.expand(1), ones, 1, "add")
        made.append(counts.cast(result_dtype(op, 2)))
    return [y.value for y in made]


def _partition(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the rows of each part, in their order."""
    x, parts = (array(r, o) for o in operands)
    for axis, (d, n) in enumerate(zip(parts.shape, x.shape, strict=False)):
        r.equal(d, n, f"dimension {axis} of the numbers of parts and of the data")
    rows = dim_product(parts.shape)
    flat, number = x.reshape((rows, *x.shape[parts.rank :])), parts.reshape((rows,))
    return [chosen(flat, *kept(r, number == k)).value for k in range(len(op.results))]


HANDLERS: dict[str, Handler] = {
    "DynamicPartition": _partition,
    "Unique": _unique,
    "UniqueV2": _unique,
    "UniqueWithCounts": _unique,
    "UniqueWithCountsV2": _unique,
}
