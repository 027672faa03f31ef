"""Reductions, softmax and norms. Sums of 16-bit floats are made in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.tensors import BOOL, F32, Axes

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def computed(dtype: np.dtype) -> np.dtype:
    """The type in which formulas and sums of this type are made."""
    return F32 if dtype_class(dtype) == "float" and dtype.itemsize < 4 else dtype


def _summed(kind: str) -> Callable[..., Value]:
    def handle(r: AtenReader, x: Value, axes: Axes = None, keep: bool = False, **_: Any) -> Value:
        wide = r.convert(x, computed(r.out.dtype))
        return r.convert(r.reduce(wide, axes, kind, keep), r.out.dtype)

    return handle


def _mean(r: AtenReader, x: Value, axes: Axes = None, keep: bool = False, **_: Any) -> Value:
    wide = r.convert(x, computed(r.out.dtype))
    total = r.reduce(wide, axes, "add", keep)
    return r.convert(r.op("divide", total, r.count(x, axes, wide.dtype)), r.out.dtype)


def _extremum(kind: str) -> Callable[..., Value]:
    def handle(r: AtenReader, x: Value, axes: Axes = None, keep: bool = False) -> Value:
        return r.reduce(x, axes, kind, keep)

    return handle


def _tested(kind: str) -> Callable[..., Value]:
    def handle(r: AtenReader, x: Value, axes: Axes = None, keep: bool = False) -> Value:
        truth = r.convert(x, BOOL)
        return r.convert(r.reduce(truth, axes, kind, keep), r.out.dtype)

    return handle


def _variance(r: AtenReader, x: Value, axes: Axes = None, correction: float | None = 1, keepdim: bool = False) -> Value:
    return _var_mean(r, x, axes, correction, keepdim)[0]


def _var_mean(
    r: AtenReader, x: Value, axes: Axes = None, correction: float | None = 1, keepdim: bool = False
) -> list[Value]:
    dtype = r.out.dtype
    wide = r.convert(x, computed(dtype if dtype_class(x.dtype) != "complex" else x.dtype))
    count = r.count(x, axes, computed(dtype))
    mean = r.op("divide", r.reduce(wide, axes, "add", True), r.convert(count, wide.dtype))
    centred = r.op("subtract", wide, mean)
    if dtype_class(x.dtype) == "complex":
        squares = r.op("multiply", *[r.emit("abs", (centred,))] * 2)
    else:
        squares = r.op("multiply", centred, centred)
    left = r.op("maximum", r.op("subtract", count, 1 if correction is None else correction), 0)
    variance = r.op("divide", r.reduce(squares, axes, "add", keepdim), left)
    if not keepdim:
        mean = r.reshape(mean, variance.shape)
    return [r.convert(variance, dtype), r.convert(mean, r.outs[-1].dtype)]


def _softmax(r: AtenReader, x: Value, axis: int, _: bool = False) -> Value:
    wide = r.convert(x, computed(r.out.dtype))
    exps = r.emit("exponential", (r.op("subtract", wide, r.reduce(wide, axis, "max", True)),))
    return r.convert(r.op("divide", exps, r.reduce(exps, axis, "add", True)), r.out.dtype)


def _log_softmax(r: AtenReader, x: Value, axis: int, _: bool = False) -> Value:
    wide = r.convert(x, computed(r.out.dtype))
    shifted = r.op("subtract", wide, r.reduce(wide, axis, "max", True))
    total = r.reduce(r.emit("exponential", (shifted,)), axis, "add", True)
    return r.convert(r.op("subtract", shifted, r.emit("log", (total,))), r.out.dtype)


def _layer_norm(
    r: AtenReader, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, epsilon: float
) -> list[Value]:
    """(normalised, mean, 1 / deviation), over the last axes."""
    axes = tuple(range(x.rank - len(shape), x.rank))
    wide = r.convert(x, computed(x.dtype))
    count = r.count(x, axes, wide.dtype)
    mean = r.op("divide", r.reduce(wide, axes, "add", True), count)
    centred = r.op("subtract", wide, mean)
    variance = r.op("divide", r.reduce(r.op("multiply", centred, centred), axes, "add", True), count)
    inverse = r.emit("rsqrt", (r.op("add", variance, epsilon),))
    made = r.op("multiply", centred, inverse)
    if weight is not None:
        made = r.op("multiply", made, r.convert(weight, wide.dtype))
    if bias is not None:
        made = r.op("add", made, r.convert(bias, wide.dtype))
    return [r.convert(y, out.dtype) for y, out in zip((made, mean, inverse), r.outs, strict=True)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.sum.default": _summed("add"),
    "aten.sum.dim_IntList": _summed("add"),
    "aten.prod.default": _summed("mul"),
    "aten.prod.dim_int": _summed("mul"),
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
    "aten.amax.default": _extremum("max"),
    "aten.amin.default": _extremum("min"),
    "aten.max.default": _extremum("max"),
    "aten.min.default": _extremum("min"),
    "aten.any.default": _tested("or"),
    "aten.any.dim": _tested("or"),
    "aten.any.dims": _tested("or"),
    "aten.all.default": _tested("and"),
    "aten.all.dim": _tested("and"),
    "aten.all.dims": _tested("and"),
    "aten.var.correction": lambda r, x, axes=None, *, correction=1, keepdim=False: _variance(
        r, x, axes, correction, keepdim),
    "aten.var_mean.correction": lambda r, x, axes=None, *, correction=1, keepdim=False: _var_mean(
        r, x, axes, correction, keepdim),
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten.native_layer_norm.default": _layer_norm,
}  # fmt: skip
