"""Sorts, and what is the first elements of one, or one of its elements.

NaN is larger than everything, and 0.0 is as large as -0.0. Of equal elements the first one comes first, whatever is
asked: where eager mode promises no order of them (`topk`, `kthvalue`, `median`), its indices may be others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.orders import total_order
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.aten.tensors import I32, I64, Size
from hlo_disc.import_.elements import ONE, ZERO

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_INDICES = Dim.const(2**31 - 1)


def numbered(r: AtenReader, shape: Shape, axis: int) -> Value:
    """The places along an axis, in 32 bits, of which a record of a sort has room for more."""
    r.at_most(shape[axis], _INDICES, "an axis of {0} elements has more than {1}")
    return r.iota(I32, shape, axis)


def ordered(r: AtenReader, x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """The elements along an axis in order, and where they were."""
    body = _order(r, x.dtype, descending)
    made = r.emit_all(
        "sort", (x, numbered(r, x.shape, axis % x.rank)), dim=axis % x.rank, stable=True, count=2, body=body
    )
    return made[0], made[1]


def _order(r: AtenReader, dtype: np.dtype, descending: bool) -> Region:
    """Over two elements and their places: does the first come before the second?"""
    types = [(dtype, ()), (dtype, ()), (I32, ()), (I32, ())]

    def build(b: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
        keys = [_key(b, x) for x in inputs[:2]]
        return [b.op("compare", keys, direction="GT" if descending else "LT")]

    return make_region(r.facts, types, build)


def _key(b: GraphBuilder, x: Value) -> Value:
    if dtype_class(x.dtype) != "float":
        return x
    zero, nan = (b.op("constant", value=np.array(value, x.dtype)) for value in (0, np.nan))
    same = b.op("select", [b.op("compare", [x, zero], direction="EQ"), zero, x])
    return total_order(b, b.op("select", [b.op("compare", [x, x], direction="NE"), nan, same]))


def _sort(r: AtenReader, x: Value, axis: int = -1, descending: bool = False) -> list[Value]:
    if not x.rank:
        return [x, r.full(0, I64, ())]
    values, where = ordered(r, x, axis, descending)
    return [values, r.convert(where, I64)]


def _argsort(r: AtenReader, x: Value, axis: int = -1, descending: bool = False) -> Value:
    return _sort(r, x, axis, descending)[1]


def _topk(
    r: AtenReader, x: Value, k: Size, axis: int = -1, largest: bool = True, is_sorted: bool = True
) -> list[Value]:
    if not x.rank:
        return [r.reshape(y, r.out.shape) for y in _sort(r, x)]
    r.at_most(Dim.of(k), x.shape[axis % x.rank], "the {0} elements that are asked for are more than the axis has: {1}")
    values, where = ordered(r, x, axis, largest)
    return [r.slice(values, axis, 0, k), r.convert(r.slice(where, axis, 0, k), I64)]


def _element(r: AtenReader, parts: tuple[Value, Value], axis: int, at: Dim, keep: bool) -> list[Value]:
    """Take one index of an axis from sorted elements and from their former indices."""
    made = [r.slice(part, axis, at, at + 1) for part in parts]
    if not keep:
        made = [r.squeeze(part, axis) for part in made]
    return [made[0], r.convert(made[1], I64)]


def _kthvalue(r: AtenReader, x: Value, k: Size, axis: int = -1, keep: bool = False) -> list[Value]:
    if not x.rank:
        return _sort(r, x)
    r.require(Dim.of(k), ">=", ONE, "the {0}th value is asked for", (Dim.of(k),))
    r.at_most(Dim.of(k), x.shape[axis], "the {0}th value is asked for of {1}")
    return _element(r, ordered(r, x, axis), axis, Dim.of(k) - 1, keep)


def _median_along(r: AtenReader, x: Value, axis: int = -1, keep: bool = False) -> list[Value]:
    """The lower one of two; the first NaN, where there is one."""
    if not x.rank:
        return _sort(r, x)
    count = x.shape[axis]
    r.at_most(ONE, count, "a median of no elements")
    values, where = ordered(r, x, axis)
    middle = _element(r, (values, where), axis, (count - 1) // 2, keep)
    if dtype_class(x.dtype) != "float":
        return middle
    nan = r.compare(values, "NE", values)
    some = r.reduce(nan, axis, "or", keep)
    first = r.reduce(r.select(nan, where, _INDICES), axis, "min", keep)
    return [r.select(some, np.nan, middle[0]), r.select(some, r.convert(first, I64), middle[1])]


def _nanmedian_along(r: AtenReader, x: Value, axis: int = -1, keep: bool = False) -> list[Value]:
    """The median of the elements that are not NaN, the lower one of two; NaN where all are."""
    if dtype_class(x.dtype) != "float" or not x.rank:
        return _median_along(r, x, axis, keep)
    r.at_most(ONE, x.shape[axis], "a median of no elements")
    values, where = ordered(r, x, axis)
    numbers = r.convert(r.compare(x, "EQ", x), I32)
    middle = r.op("shift_right_arithmetic", r.op("maximum", r.op("subtract", r.reduce(
        numbers, axis, "add", True), 1), 0), 1)  # fmt: skip
    chosen = r.compare(numbered(r, x.shape, axis % x.rank), "EQ", middle)
    value = r.reduce(r.select(chosen, values, -np.inf), axis, "max", keep)
    index = r.reduce(r.select(chosen, where, 0), axis, "max", keep)
    return [value, r.convert(index, I64)]


def _of_all(along: Callable[..., list[Value]]) -> Callable[..., Value]:
    """Make a handler that applies `along` to all elements.

    For no elements the result is NaN, or for integers the least one, as in ATen.
    """

    def handle(r: AtenReader, x: Value) -> Value:
        count = dim_product(x.shape)
        if count is ZERO:
            none = np.nan if dtype_class(x.dtype) == "float" else np.iinfo(x.dtype).min
            return r.full(none, x.dtype, ())
        return along(r, r.reshape(x, (count,)), 0)[0]

    return handle


def _mode(r: AtenReader, x: Value, axis: int = -1, keep: bool = False) -> list[Value]:
    """The most frequent element, the smallest of them, and the last place where it is."""
    if not x.rank:
        return _sort(r, x)
    r.at_most(ONE, x.shape[axis], "a mode of no elements")
    axis %= x.rank
    values, where = ordered(r, x, axis)
    number, size = numbered(r, x.shape, axis), x.shape[axis]
    before = r.concatenate([r.slice(values, axis, 0, 1), r.slice(values, axis, 0, size - 1)], axis)
    begins = r.op("or", r.compare(values, "NE", before), r.compare(number, "EQ", 0))
    start = r.cumulative(r.select(begins, number, 0), axis, "max")
    length = r.op("subtract", number, start)
    longest = r.reduce(length, axis, "max", True)
    at = r.reduce(r.select(r.compare(length, "EQ", longest), number, _INDICES), axis, "min", True)
    chosen = r.compare(number, "EQ", at)
    low = -np.inf if dtype_class(x.dtype) == "float" else False if x.dtype == bool else np.iinfo(x.dtype).min
    value = r.reduce(r.select(chosen, values, low), axis, "max", keep)
    index = r.reduce(r.select(chosen, where, 0), axis, "max", keep)
    return [value, r.convert(index, I64)]


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
