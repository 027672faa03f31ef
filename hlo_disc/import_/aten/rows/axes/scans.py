"""Running sums, products and extrema, and extrema with their indices.

A NaN is larger, or smaller, than everything. Of equal extrema the first one counts, the last one in running extrema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I32, I64, formula_region, where
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.import_.aten.rows.axes.sorting import numbered
from hlo_disc.import_.formulas.arithmetic import running_logsumexp
from hlo_disc.import_.handlers.arrays import Array, emit_all, filled

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_I8 = np.dtype(np.int8)


def _running(kind: str) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, axis: int, *, dtype: object = None) -> Array:
        wide = x.cast(r.out.dtype).cast(computed(r.out.dtype))
        return wide.cumulative(kind, axis).cast(r.out.dtype) if x.rank else x.cast(r.out.dtype)

    return handle


def _running_logsumexp(r: AtenReader, x: Array, axis: int) -> Array:
    if dtype_class(x.dtype) == "complex":
        r.unsupported("of complex numbers")
    if not x.rank:
        return x
    return running_logsumexp(x.cast(computed(x.dtype)), axis).cast(x.dtype)


def _extremum(r: AtenReader, dtype: np.dtype, kind: str, last: bool) -> Region:
    """Select the extremum of (value, index) and a later such pair."""

    def build(x: Array, i: Array, y: Array, j: Array) -> list[Array]:
        if last:
            x, i, y, j = y, j, x, i
        wins = x > y if kind == "max" else x < y
        if dtype_class(dtype) == "float":
            wins = wins | (x != x)
        takes = wins | ((x == y) & (i > j if last else i < j))
        return [where(takes, x, y), where(takes, i, j)]

    return formula_region(r.facts, [dtype, I32] * 2, build)


def _along(kind: str) -> Callable[..., list[Array]]:
    def handle(r: AtenReader, x: Array, axis: int, keep: bool = False) -> list[Array]:
        """Return (extrema, their indices)."""
        if not x.rank:
            return [x, r.full(0, I64, ())]
        axis %= x.rank
        r.at_most(ONE, x.shape[axis], "of an axis without elements there is no extremum")
        values = x.cast(_I8) if x.dtype == BOOL else x
        inits = [filled(r, identity(kind, values.dtype), values.dtype), filled(r, 2**31 - 1, I32)]
        body = _extremum(r, values.dtype, kind, last=False)
        pair = (values, numbered(r, x.shape, axis), *inits)
        made = emit_all(r, "reduce_with", pair, dims=(axis,), body=body)
        if keep:
            made = [part.expand(axis) for part in made]
        return [made[0].cast(x.dtype), made[1].cast(I64)]

    return handle


def _place(kind: str) -> Callable[..., Array]:
    along = _along(kind)

    def handle(r: AtenReader, x: Array, axis: int | None = None, keep: bool = False) -> Array:
        if axis is None:
            return along(r, x.flat(), 0)[1].reshape(r.out.shape)
        return along(r, x, axis, keep)[1]

    return handle


def _running_extremum(kind: str) -> Callable[..., list[Array]]:
    def handle(r: AtenReader, x: Array, axis: int) -> list[Array]:
        if not x.rank:
            return [x, r.full(0, I64, ())]
        values = x.cast(_I8) if x.dtype == BOOL else x
        inits = [filled(r, identity(kind, values.dtype), values.dtype), filled(r, -1, I32)]
        pair = (values, numbered(r, x.shape, axis % x.rank), *inits)
        body = _extremum(r, values.dtype, kind, last=True)
        made = emit_all(r, "cumulative", pair, dim=axis % x.rank, reverse=False, body=body)
        return [made[0].cast(x.dtype), made[1].cast(I64)]

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.cumsum.default": _running("add"),
    "aten.cumprod.default": _running("mul"),
    "aten.logcumsumexp.default": _running_logsumexp,
    "aten.cummax.default": _running_extremum("max"),
    "aten.cummin.default": _running_extremum("min"),
    "aten.max.dim": _along("max"),
    "aten.min.dim": _along("min"),
    "aten.argmax.default": _place("max"),
    "aten.argmin.default": _place("min"),
}
