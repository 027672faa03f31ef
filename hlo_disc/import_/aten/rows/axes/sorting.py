"""Sorts, and ops that take the first elements of a sort, or one element.

NaN is larger than everything, and 0.0 is as large as -0.0. Among equal elements the first one comes first. Eager mode
promises no order for some ops (`topk`, `kthvalue`, `median`), so its indices may differ there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import I32, I64, where
from hlo_disc.dynamic_hlo.ops.expr import Array as Scalar
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.ops.orders import total_order
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.handlers.arrays import Array, iota, joined
from hlo_disc.import_.handlers.sort import first_operand_order, make_sort

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_INDICES = Dim.const(2**31 - 1)


def numbered(r: AtenReader, shape: Shape, axis: int) -> Array:
    """Number the elements along an axis, in 32 bits, because a sort's records have no more space."""
    r.at_most(shape[axis], _INDICES, "an axis of {0} elements has more than {1}")
    return iota(r, shape, axis, I32)


def ordered(r: AtenReader, x: Array, axis: int, descending: bool = False) -> tuple[Array, Array]:
    """Sort the elements along an axis. Returns them with their old indices."""
    axis %= x.rank
    pair = x.value, numbered(r, x.shape, axis).value
    values, order = make_sort(r, pair, first_operand_order(r, pair, descending, _key), (), axis, True)
    return Array(r, values), Array(r, order)


def _key(x: Scalar) -> Scalar:
    return total_order(where(x != x, np.nan, where(x == 0, 0, x))) if dtype_class(x.dtype) == "float" else x


def _sort(r: AtenReader, x: Array, axis: int = -1, descending: bool = False) -> list[Array]:
    if not x.rank:
        return [x, r.full(0, I64, ())]
    values, indices = ordered(r, x, axis, descending)
    return [values, indices.cast(I64)]


def _argsort(r: AtenReader, x: Array, axis: int = -1, descending: bool = False) -> Array:
    return _sort(r, x, axis, descending)[1]


def _topk(
    r: AtenReader, x: Array, k: Size, axis: int = -1, largest: bool = True, is_sorted: bool = True
) -> list[Array]:
    if not x.rank:
        return [y.reshape(r.out.shape) for y in _sort(r, x)]
    r.at_most(Dim.of(k), x.shape[axis % x.rank], "the {0} elements that are asked for are more than the axis has: {1}")
    values, indices = ordered(r, x, axis, largest)
    return [values.slice(axis, 0, k), indices.slice(axis, 0, k).cast(I64)]


def _element(r: AtenReader, parts: tuple[Array, Array], axis: int, at: Dim, keep: bool) -> list[Array]:
    """Take one index of an axis from sorted elements and from their former indices."""
    made = [part.slice(axis, at, at + 1) for part in parts]
    if not keep:
        made = [part.squeeze(axis) for part in made]
    return [made[0], made[1].cast(I64)]


def _kthvalue(r: AtenReader, x: Array, k: Size, axis: int = -1, keep: bool = False) -> list[Array]:
    if not x.rank:
        return _sort(r, x)
    r.require(Dim.of(k), ">=", ONE, "the {0}th value is asked for", (Dim.of(k),))
    r.at_most(Dim.of(k), x.shape[axis], "the {0}th value is asked for of {1}")
    return _element(r, ordered(r, x, axis), axis, Dim.of(k) - 1, keep)


def _median_along(r: AtenReader, x: Array, axis: int = -1, keep: bool = False) -> list[Array]:
    """Return the median, of two the lower one; the first NaN if there is one."""
    if not x.rank:
        return _sort(r, x)
    count = x.shape[axis]
    r.at_most(ONE, count, "a median of no elements")
    values, indices = ordered(r, x, axis)
    middle = _element(r, (values, indices), axis, (count - 1) // 2, keep)
    if dtype_class(x.dtype) != "float":
        return middle
    nan = values != values
    some = nan.reduce("or", axis, keep)
    first = where(nan, indices, _INDICES).reduce("min", axis, keep)
    return [where(some, np.nan, middle[0]), where(some, first.cast(I64), middle[1])]


def _nanmedian_along(r: AtenReader, x: Array, axis: int = -1, keep: bool = False) -> list[Array]:
    """Return the median of the elements that are not NaN, of two the lower one; NaN if all are NaN."""
    if dtype_class(x.dtype) != "float" or not x.rank:
        return _median_along(r, x, axis, keep)
    r.at_most(ONE, x.shape[axis], "a median of no elements")
    values, indices = ordered(r, x, axis)
    numbers = (x == x).cast(I32)
    middle = (numbers.sum(axis, True) - 1).maximum(0) >> 1
    chosen = numbered(r, x.shape, axis % x.rank) == middle
    value = where(chosen, values, -np.inf).reduce("max", axis, keep)
    index = where(chosen, indices, 0).reduce("max", axis, keep)
    return [value, index.cast(I64)]


def _of_all(along: Callable[..., list[Array]]) -> Callable[..., Array]:
    """Make a handler that applies `along` to all elements.

    For no elements the result is NaN, or for integers the least one, as in ATen.
    """

    def handle(r: AtenReader, x: Array) -> Array:
        count = dim_product(x.shape)
        if count is ZERO:
            none = np.nan if dtype_class(x.dtype) == "float" else np.iinfo(x.dtype).min
            return r.full(none, x.dtype, ())
        return along(r, x.reshape((count,)), 0)[0]

    return handle


def _mode(r: AtenReader, x: Array, axis: int = -1, keep: bool = False) -> list[Array]:
    """Return the most frequent element, the smallest if there are several, and the last index where it is."""
    if not x.rank:
        return _sort(r, x)
    r.at_most(ONE, x.shape[axis], "a mode of no elements")
    axis %= x.rank
    values, indices = ordered(r, x, axis)
    number, size = numbered(r, x.shape, axis), x.shape[axis]
    before = joined([values.slice(axis, 0, 1), values.slice(axis, 0, size - 1)], axis)
    begins = (values != before) | (number == 0)
    start = where(begins, number, 0).cumulative("max", axis)
    length = number - start
    longest = length.reduce("max", axis, True)
    at = where(length == longest, number, _INDICES).reduce("min", axis, True)
    chosen = number == at
    value = where(chosen, values, identity("max", x.dtype).item()).reduce("max", axis, keep)
    index = where(chosen, indices, 0).reduce("max", axis, keep)
    return [value, index.cast(I64)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.sort.default": _sort,
    "aten.sort.stable": lambda r, x, *, stable=None, dim=-1, descending=False: _sort(r, x, dim, descending),
    "aten.argsort.default": _argsort,
    "aten.argsort.stable": lambda r, x, *, stable=None, dim=-1, descending=False: _argsort(r, x, dim, descending),
    "aten.msort.default": lambda r, x: _sort(r, x, 0)[0],
    "aten.topk.default": _topk,
    "aten.kthvalue.default": _kthvalue,
    "aten.median.dim": _median_along,
    "aten.median.default": _of_all(_median_along),
    "aten.nanmedian.dim": _nanmedian_along,
    "aten.nanmedian.default": _of_all(_nanmedian_along),
    "aten.mode.default": _mode,
}
