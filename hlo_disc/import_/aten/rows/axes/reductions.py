"""Reductions and softmax. Sums of 16-bit floats are computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class
from hlo_disc.dynamic_hlo.ops.expr import BOOL
from hlo_disc.import_.formulas.arithmetic import log_softmax, softmax
from hlo_disc.import_.handlers.arrays import Array, Axes

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _axes(x: Array, axes: Axes) -> tuple[int, ...]:
    """Return the axes of a reduction: all if PyTorch names none."""
    return x.axes(None if axes == () else axes)


def _summed(kind: str) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, axes: Axes = None, keep: bool = False, **_: object) -> Array:
        wide = x.cast(computed(r.out.dtype))
        return wide.reduce(kind, _axes(x, axes), keep).cast(r.out.dtype)

    return handle


def _mean(r: AtenReader, x: Array, axes: Axes = None, keep: bool = False, **_: object) -> Array:
    wide = x.cast(computed(r.out.dtype))
    return wide.mean(_axes(x, axes), keep).cast(r.out.dtype)


def _extremum(kind: str) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, axes: Axes = None, keep: bool = False) -> Array:
        return x.reduce(kind, _axes(x, axes), keep)

    return handle


def _tested(kind: str) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, axes: Axes = None, keep: bool = False) -> Array:
        return x.cast(BOOL).reduce(kind, _axes(x, axes), keep).cast(r.out.dtype)

    return handle


def _var_mean(
    r: AtenReader, x: Array, axes: Axes = None, correction: float | None = 1, keepdim: bool = False
) -> list[Array]:
    dtype = r.out.dtype
    wide = x.cast(computed(dtype if dtype_class(x.dtype) != "complex" else x.dtype))
    chosen = _axes(x, axes)
    count = x.count(chosen, computed(dtype))
    mean = wide.sum(chosen, True) / count.cast(wide.dtype)
    centred = wide - mean
    size = abs(centred) if dtype_class(x.dtype) == "complex" else centred
    left = (count - (1 if correction is None else correction)).maximum(0)
    variance = (size * size).sum(chosen, keepdim) / left
    if not keepdim:
        mean = mean.reshape(variance.shape)
    return [variance.cast(dtype), mean.cast(r.outs[-1].dtype)]


def _widely(formula: Callable[[Array, int], Array]) -> Callable[..., Array]:
    return lambda r, x, axis, _=False: formula(x.cast(computed(r.out.dtype)), axis).cast(r.out.dtype)


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
    "aten.var.correction": lambda r, x, axes=None, *, correction=1, keepdim=False: _var_mean(
        r, x, axes, correction, keepdim)[0],
    "aten.var_mean.correction": lambda r, x, axes=None, *, correction=1, keepdim=False: _var_mean(
        r, x, axes, correction, keepdim),
    "aten._softmax.default": _widely(softmax),
    "aten._log_softmax.default": _widely(log_softmax),
}  # fmt: skip
