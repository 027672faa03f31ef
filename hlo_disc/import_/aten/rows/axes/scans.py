"""Running sums, products and extrema, and extrema with their places.

A NaN is larger, or smaller, than everything. Of equal extrema the first one counts, the last one in running extrema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.combiners import identity
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.axes.sorting import numbered
from hlo_disc.import_.aten.tensors import BOOL, I32, I64
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_I8 = np.dtype(np.int8)


def _running(kind: str) -> Callable[..., Value]:
    def handle(r: AtenReader, x: Value, axis: int, *, dtype: Any = None) -> Value:
        wide = r.convert(r.convert(x, r.out.dtype), computed(r.out.dtype))
        return r.convert(r.cumulative(wide, axis, kind), r.out.dtype) if x.rank else r.convert(x, r.out.dtype)

    return handle


def _running_logsumexp(r: AtenReader, x: Value, axis: int) -> Value:
    if dtype_class(x.dtype) == "complex":
        r.unsupported("of complex numbers")
    if not x.rank:
        return x
    wide = r.convert(x, computed(x.dtype))
    body = make_region(r.facts, [(wide.dtype, ())] * 2, _log_add_exp)
    start = r.constant(np.array(-np.inf, wide.dtype))
    (made,) = r.emit_all("cumulative", (wide, start), dim=axis % x.rank, reverse=False, body=body)
    return r.convert(made, x.dtype)


def _log_add_exp(b: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
    """log(exp(a) + exp(b)); of two equal infinities it is that infinity."""
    high, low = b.op("maximum", inputs), b.op("minimum", inputs)
    sum_ = b.op("add", [high, b.op("log_plus_one", [b.op("exponential", [b.op("subtract", [low, high])])])])
    infinite = b.op("not", [b.op("is_finite", [high])])
    same = b.op("and", [b.op("compare", [high, low], direction="EQ"), infinite])
    return [b.op("select", [same, high, sum_])]


def _extremum(r: AtenReader, dtype: np.dtype, kind: str, last: bool) -> Region:
    """Over (value, place) and another such pair, which comes later, which of both is the extremum."""
    types = [(dtype, ()), (I32, ())] * 2
    better = "GT" if kind == "max" else "LT"

    def build(b: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
        x, i, y, j = inputs
        if last:
            x, i, y, j = y, j, x, i
        wins = b.op("compare", [x, y], direction=better)
        if dtype_class(dtype) == "float":
            wins = b.op("or", [wins, b.op("compare", [x, x], direction="NE")])
        ties = b.op(
            "and", [b.op("compare", [x, y], direction="EQ"), b.op("compare", [i, j], direction="GT" if last else "LT")]
        )
        place = b.op("or", [wins, ties])
        return [b.op("select", [place, x, y]), b.op("select", [place, i, j])]

    return make_region(r.facts, types, build)


def _along(kind: str) -> Callable[..., list[Value]]:
    def handle(r: AtenReader, x: Value, axis: int, keep: bool = False) -> list[Value]:
        """(extrema, where they are)."""
        if not x.rank:
            return [x, r.full(0, I64, ())]
        axis %= x.rank
        r.at_most(ONE, x.shape[axis], "of an axis without elements there is no extremum")
        values = r.convert(x, _I8) if x.dtype == BOOL else x
        inits = [r.constant(np.asarray(identity(kind, values.dtype))), r.constant(np.asarray(2**31 - 1, I32))]
        body = _extremum(r, values.dtype, kind, last=False)
        pair = (values, numbered(r, x.shape, axis), *inits)
        made = list(r.emit_all("reduce_with", pair, dims=(axis,), body=body))
        if keep:
            made = [r.unsqueeze(part, axis) for part in made]
        return [r.convert(made[0], x.dtype), r.convert(made[1], I64)]

    return handle


def _place(kind: str) -> Callable[..., Value]:
    along = _along(kind)

    def handle(r: AtenReader, x: Value, axis: int | None = None, keep: bool = False) -> Value:
        if axis is None:
            return r.reshape(along(r, r.flat(x), 0)[1], r.out.shape)
        return along(r, x, axis, keep)[1]

    return handle


def _running_extremum(kind: str) -> Callable[..., list[Value]]:
    def handle(r: AtenReader, x: Value, axis: int) -> list[Value]:
        if not x.rank:
            return [x, r.full(0, I64, ())]
        values = r.convert(x, _I8) if x.dtype == BOOL else x
        inits = [r.constant(np.asarray(identity(kind, values.dtype))), r.constant(np.asarray(-1, I32))]
        pair = (values, numbered(r, x.shape, axis % x.rank), *inits)
        body = _extremum(r, values.dtype, kind, last=True)
        made = r.emit_all("cumulative", pair, dim=axis % x.rank, reverse=False, body=body)
        return [r.convert(made[0], x.dtype), r.convert(made[1], I64)]

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
