"""Ops that no source program has: the stages before fusion lower others to them.

place (base, x) {starts, steps}: base with x on top, element i of an axis at starts + i*steps.
slice_padded (x) {start, stride, shape}: element i of an axis is that at start + i*stride, 0 where x has none.
window (x) {dims, sizes, window, strides, dilations}: for each of `dims` `sizes` windows along it, its own axis numbers
    them and a new last axis their elements.
select_windows (x, *captured) {shape, window, strides, low, high, body}: where the element is that each window selects,
    counted along the axes on which windows move (`moving_axes`); -1 when a window has none.
window_scatter (selected, source, init, *captured) {shape, window, strides, low, high, body}: each element combines,
    window by window, what the source has for the windows that selected it.
sort_first: a `sort` whose results end after `first` elements.
fma (x, y, z): x*y + z, rounded once.
reinterpret (x) {dtype}: elements of one byte in memory, whatever bits they use, as those of another such type.
define (scalar) {symbol, effect}: a size that is known only at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.arrays import Array, Function, Ints
from hlo_disc.dynamic_hlo.ops.axes import OF_EACH, WINDOW, AxisRule, Part, assembly, over_windows, whole
from hlo_disc.dynamic_hlo.ops.families import indexing
from hlo_disc.dynamic_hlo.ops.families.elementwise import infer_elementwise
from hlo_disc.dynamic_hlo.ops.families.reductions import Combiner, scattered, selected
from hlo_disc.dynamic_hlo.ops.inference import Rule, Types, broken, disagree, need_dtype, need_scalar
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import moving_axes

# The type of a place in a window's reach: import sees to it that there are not more.
PLACE = np.dtype(np.int32)

_ALONG: Final = ("dims", "sizes", "window", "strides", "dilations")
_WINDOWS = ("shape", "window", "strides", "low", "high", "body")


def _infer_place(op: Op, facts: ShapeFacts) -> Types:
    base, x = op.operands
    need_dtype(op, x, base.dtype, "what is placed")
    if not base.rank == x.rank == len(op.attrs["starts"]) == len(op.attrs["steps"]):
        broken(op, f"{x!r} in {base!r} at {op.attrs['starts']} by {op.attrs['steps']}")
    for n, start, step, size in zip(x.shape, op.attrs["starts"], op.attrs["steps"], base.shape, strict=True):
        if facts.at_most(start + (n - 1) * step + 1, size) is Truth.NO:
            disagree(op, f"{n} elements from {start} by {step} do not fit {size}")
    return [(base.dtype, base.shape)]


def _place(base: Array, x: Array, *, starts: Ints, steps: Ints) -> Array:
    result = base.copy()
    if x.size:
        rows = zip(starts, x.shape, steps, strict=True)
        result[tuple(slice(start, start + (n - 1) * step + 1, step) for start, n, step in rows)] = x
    return result


def _base_and_placed(op: Op) -> list[Part]:
    return [whole(op.operands[0]), Part(op.operands[1], op.attrs["starts"], op.attrs["steps"])]


def _infer_slice_padded(op: Op, facts: ShapeFacts) -> Types:
    (x,), attrs = op.operands, op.attrs
    if not len(attrs["start"]) == len(attrs["stride"]) == len(attrs["shape"]) == x.rank:
        broken(op, f"start, stride and shape must have {x.rank} entries")
    return [(x.dtype, attrs["shape"])]


def _slice_padded(x: Array, *, start: Ints, stride: Ints, shape: Ints) -> Array:
    at = [first + np.arange(size) * step for first, step, size in zip(start, stride, shape, strict=True)]
    result = np.zeros(shape, x.dtype)
    inside = [(i >= 0) & (i < n) for i, n in zip(at, x.shape, strict=True)]
    result[np.ix_(*inside)] = x[np.ix_(*(i[here] for i, here in zip(at, inside, strict=True)))]
    return result


def _infer_window(op: Op, facts: ShapeFacts) -> Types:
    (x,), attrs = op.operands, op.attrs
    if len({len(attrs[name]) for name in _ALONG}) != 1:
        broken(op, "dims, sizes, window, strides and dilations must be of one length")
    sizes = dict(zip(attrs["dims"], attrs["sizes"], strict=True))
    return [(x.dtype, (*(sizes.get(axis, n) for axis, n in enumerate(x.shape)), *attrs["window"]))]


def _window(x: Array, *, dims: Ints, sizes: Ints, window: Ints, strides: Ints, dilations: Ints) -> Array:
    for axis, size, span, stride, dilation in zip(dims, sizes, window, strides, dilations, strict=True):
        at = np.arange(size)[:, None] * stride + np.arange(span) * dilation
        taken = np.take(x, at.reshape(-1), axis)
        x = np.moveaxis(taken.reshape(*x.shape[:axis], size, span, *x.shape[axis + 1 :]), axis + 1, -1)
    return x


def _infer_select_windows(op: Op, facts: ShapeFacts) -> Types:
    if len(op.attrs["shape"]) != op.operands[0].rank:
        broken(op, f"windows {op.attrs['shape']} of {op.operands[0]!r}")
    return [(PLACE, op.attrs["shape"])]


def _select_windows(x: Array, *captured: Array, shape: Ints, body: Combiner, **attrs: Ints) -> Array:
    place = selected(x, shape, captured, select=body, **attrs)
    moving = moving_axes(attrs)
    at = np.unravel_index(np.maximum(place, 0), x.shape) if x.size else (np.zeros_like(place),) * x.ndim
    number = np.zeros_like(place)
    for axis in moving:
        number = number * x.shape[axis] + at[axis]
    return np.where(place < 0, -1, number).astype(PLACE)


def _infer_window_scatter(op: Op, facts: ShapeFacts) -> Types:
    places, source, init = op.operands[:3]
    need_dtype(op, places, PLACE, "places")
    need_dtype(op, init, source.dtype, "the initial value")
    need_scalar(op, init, "the initial value")
    if places.rank != source.rank or len(op.attrs["shape"]) != source.rank:
        broken(op, f"places {places!r} of {source!r} in {op.attrs['shape']}")
    return [(source.dtype, op.attrs["shape"])]


def _window_scatter(
    number: Array, source: Array, init: Array, *captured: Array, shape: Ints, body: Combiner, **attrs: Ints
) -> Array:
    at, rest = list(np.indices(number.shape)), np.maximum(number, 0).astype(np.int64)
    for axis in reversed(moving_axes(attrs)):
        at[axis], rest = rest % max(shape[axis], 1), rest // max(shape[axis], 1)
    place = np.zeros(number.shape, np.int64)
    for axis in range(len(shape)):
        place = place * shape[axis] + at[axis]
    place = np.where((number < 0) | (math.prod(shape) == 0), -1, place)
    return scattered(place, source, init, captured, shape, body)


def _infer_sort_first(op: Op, facts: ShapeFacts) -> Types:
    dim, first = op.attrs["dim"], op.attrs["first"]
    types = indexing.infer_sort(op, facts)
    if facts.at_most(first, types[0][1][dim]) is Truth.NO:
        disagree(op, f"the first {first} of {types[0][1][dim]} elements")
    return [(dtype, (*shape[:dim], first, *shape[dim + 1 :])) for dtype, shape in types]


def _sort_first(*arrays: Array, dim: int, first: int, stable: bool, count: int, body: Function) -> tuple[Array, ...]:
    ordered = indexing.sort(*arrays, dim=dim, stable=stable, count=count, body=body)
    return tuple(np.take(x, range(first), dim) for x in ordered)


def _infer_define(op: Op, facts: ShapeFacts) -> Types:
    need_scalar(op, op.operands[0], "a size")
    need_dtype(op, op.operands[0], np.dtype(np.int64), "a size")
    return []


def _define(size: Array, *, symbol: str, effect: bool) -> tuple[()]:
    return ()


def _fma(x: Array, y: Array, z: Array) -> Array:
    """Compute x * y + z: f64 by fractions, other types in twice the digits.

    There a second rounding hardly ever shows. Small floats are computed as f32.
    """
    held = computed(x.dtype)
    wide = {"f4": np.float64, "f8": np.longdouble}.get(held.str[1:], held)
    with np.errstate(all="ignore"):
        made = x.astype(wide) * y.astype(wide) + z.astype(wide)
        if held == np.float64:
            exact = np.isfinite(made) & (made != 0) & (np.abs(made) < np.finfo(held).max)
            rows = zip(x[exact], y[exact], z[exact], strict=True)
            made[exact] = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in rows]
        return np.asarray(made).astype(held).astype(x.dtype)


def _infer_reinterpret(op: Op, facts: ShapeFacts) -> Types:
    (x,), dtype = op.operands, op.attrs["dtype"]
    if x.dtype.itemsize != 1 or dtype.itemsize != 1:
        broken(op, f"{x.dtype} and {dtype} must be one byte each in memory")
    return [(dtype, x.shape)]


_OVER_WINDOWS = over_windows(_WINDOWS[:-1])
_PLACE = assembly(_base_and_placed, dict.fromkeys(("starts", "steps"), OF_EACH))


def _row(
    name: str,
    kind: str,
    operands: int | None,
    infer: Rule,
    reference: Callable[..., object],
    *attrs: str,
    axes: AxisRule | None = None,
) -> OpDef:
    return OpDef(name, kind, operands, infer, reference, attrs, dialect="", expensive=kind == "window", axes=axes)


ROWS = (
    _row("place", "assemble", 2, _infer_place, _place, "starts", "steps", axes=_PLACE),
    _row("slice_padded", "view", 1, _infer_slice_padded, _slice_padded, "start", "stride", "shape"),
    _row("window", "view", 1, _infer_window, _window, *_ALONG, axes=WINDOW),
    _row("select_windows", "window", None, _infer_select_windows, _select_windows, *_WINDOWS, axes=_OVER_WINDOWS),
    _row("window_scatter", "window", None, _infer_window_scatter, _window_scatter, *_WINDOWS, axes=_OVER_WINDOWS),
    _row("sort_first", "sort", None, _infer_sort_first, _sort_first, "dim", "stable", "count", "first", "body"),
    _row("fma", "elementwise", 3, infer_elementwise("int", "uint", "float"), _fma),
    _row("reinterpret", "elementwise", 1, _infer_reinterpret, lambda x, *, dtype: x.view(dtype), "dtype"),
    _row("define", "host", 1, _infer_define, _define, "symbol", "effect"),
)
