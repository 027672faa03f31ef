"""Elements taken from axes at positions that depend on sizes: adaptive pools, `unfold`, `fold`, resampling.

Axes are processed one after another. A `Line` has the common part of the windows of all positions. For each result on
the axis and each element of its window, it says which element of the axis that is, and whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.frozen import frozen
from hlo_disc.import_.aten.rows.windows.convolutions import each
from hlo_disc.import_.aten.rows.windows.pools import maxima_backward
from hlo_disc.import_.aten.tensors import Operand, Size
from hlo_disc.import_.formulas.windows import maximum_region, numbered
from hlo_disc.import_.handlers.arrays import Array, emit_all, filled, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _along(x: Array, axis: int, like: Array) -> Array:
    """Broadcast x, which has the axes of `like` from `axis` on, over the other axes of `like`."""
    return x.emit("broadcast", shape=like.shape, dims=tuple(range(axis, axis + x.rank)))


@frozen
class Line:
    """A table of positions. at: (results, elements of a window), the elements' numbers; inside: which of them exist."""

    at: Array
    inside: Array

    def window(self, r: AtenReader, x: Array, axis: int, otherwise: Operand) -> Array:
        """Take the elements of windows, with `otherwise` where none exists."""
        made = x.take(self.at, axis)
        return where(_along(self.inside, axis, made), made, r.full(otherwise, x.dtype, made.shape))

    def sum(self, r: AtenReader, x: Array, axis: int) -> Array:
        return self.window(r, x, axis, 0).sum(axis + 1)

    def lengths(self, dtype: np.dtype) -> Array:
        return self.inside.cast(I64).sum(1).cast(dtype)


def fractions(r: AtenReader, size: Dim, count: Dim) -> Line:
    """Return the windows of `count` parts of an axis, each from floor(i * size / count) to ceil((i + 1) * size /
    count).

    With `size` and `count` swapped, the window of an element is just the parts that the element belongs to.
    """
    width = (size + count - 1) // Dim.max(count, 1) + 1 if not count.is_const or count.value else Dim.const(1)
    if (size % count if count.is_const and count.value else ONE) is Dim.const(0):
        width = size // count
    shape = count, r.facts.canonical(width)
    number, element = iota(r, shape, 0, I64), iota(r, shape, 1, I64)

    def bound(n: Array, extra: Dim) -> Array:
        product = n * size + extra
        return product / (Dim.max(count, 1) if not count.is_const else max(count.value, 1))

    start = bound(number, Dim.const(0))
    end = bound(number + 1, count - 1)
    at = start + element
    return Line(at, at < end)


# Adaptive pools


def _spatial(r: AtenReader, x: Array, spatial: int) -> list[tuple[int, Line]]:
    outer = x.rank - spatial
    return [(a, fractions(r, x.shape[a], r.out.shape[a])) for a in range(outer, x.rank)]


def _adaptive_means(spatial: int) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, _: Sequence[Size]) -> Array:
        made = x.cast(computed(x.dtype))
        for axis, line in _spatial(r, x, spatial):
            made = line.sum(r, made, axis)
            made = made / _along(line.lengths(made.dtype), axis, made)
        return made.cast(r.out.dtype)

    return handle


def _adaptive_means_backward(spatial: int) -> Callable[..., Array]:
    def handle(r: AtenReader, gradient: Array, x: Array) -> Array:
        made = gradient.cast(computed(x.dtype))
        for axis in range(x.rank - spatial, x.rank):
            size, count = x.shape[axis], gradient.shape[axis]
            made = made / _along(fractions(r, size, count).lengths(made.dtype), axis, made)
            made = fractions(r, count, size).sum(r, made, axis)
        return made.cast(r.out.dtype)

    return handle


def _adaptive_maxima(spatial: int) -> Callable[..., list[Array]]:
    """Return maxima and their positions; elements outside of a window do not count."""

    def handle(r: AtenReader, x: Array, _: Sequence[Size]) -> list[Array]:
        made, at = x, numbered(r, x.shape, spatial)
        low, last = identity("max", x.dtype), np.iinfo(np.int64).max
        for axis, line in _spatial(r, x, spatial):
            window = line.window(r, made, axis, low.item()), line.window(r, at, axis, last)
            starts = filled(r, low, x.dtype), filled(r, last, I64)
            body = maximum_region(r, x.dtype)
            made, at = emit_all(r, "reduce_with", [*window, *starts], dims=(axis + 1,), body=body)
        return [made, at]

    return handle


# Windows as columns


def _blocks(r: AtenReader, count: Dim, window: Dim, stride: Operand, padding: Size, dilation: Operand) -> Array:
    """Return (elements of a window, windows): the position of each on the padded axis."""
    shape = window, count
    offset = iota(r, shape, 0, I64) * dilation
    return offset + iota(r, shape, 1, I64) * stride - padding


def _counts(sizes: Sequence[Dim], rows: Sequence[Sequence[Size]], strides: Sequence[int]) -> list[Dim]:
    """Return the number of windows on an axis. rows: windows, dilations and paddings."""
    axes = zip(sizes, *rows, strides, strict=True)
    return [(n + 2 * Dim.of(p) - Dim.of(d) * (Dim.of(k) - 1) - 1) // s + 1 for n, k, d, p, s in axes]


def _im2col(
    r: AtenReader,
    x: Array,
    window: Sequence[Size],
    dilation: Sequence[Size],
    padding: Sequence[Size],
    stride: Sequence[Size],
) -> Array:
    """Return (batch, channels * elements of a window, windows)."""
    batched = x.rank == 4
    made = x if batched else x.expand(0)
    strides = tuple(map(r.fixed, each(stride, 2)))
    rows = [each(entries, 2) for entries in (window, dilation, padding)]
    counts = _counts(made.shape[2:], rows, strides)
    channels, sizes = made.shape[1], made.shape[2:]
    for i, axis in enumerate((2, 4)):
        k, d, p = (row[i] for row in rows)
        at = _blocks(r, r.facts.canonical(counts[i]), Dim.of(k), strides[i], p, d)
        inside = (at >= 0) & (at < sizes[i])
        made = Line(at, inside).window(r, made, axis, 0)
    made = made.transpose((0, 1, 2, 4, 3, 5))
    _, _, kh, kw, oh, ow = made.shape
    made = made.reshape((made.shape[0], channels * kh * kw, oh * ow))
    return made if batched else made.squeeze(0)


def _col2im(
    r: AtenReader,
    x: Array,
    size: Sequence[Size],
    window: Sequence[Size],
    dilation: Sequence[Size],
    padding: Sequence[Size],
    stride: Sequence[Size],
) -> Array:
    """Add every element of a column to the position from which it was taken."""
    batched = x.rank == 3
    made = (x if batched else x.expand(0)).cast(computed(x.dtype))
    strides = tuple(map(r.fixed, each(stride, 2)))
    rows = [each(entries, 2) for entries in (window, dilation, padding)]
    sizes = tuple(map(Dim.of, size))
    counts = _counts(sizes, rows, strides)
    kh, kw = map(Dim.of, rows[0])
    channels = r.out.shape[-3]
    made = made.reshape((made.shape[0], channels, kh, kw, *map(r.facts.canonical, counts)))
    made = made.transpose((0, 1, 2, 4, 3, 5))
    for i, axis in enumerate((2, 3)):
        k, d, p = (row[i] for row in rows)
        made = _gathered(r, made, axis, sizes[i], Dim.of(k), strides[i], p, d)
    made = made.cast(r.out.dtype)
    return made if batched else made.squeeze(0)


def _gathered(
    r: AtenReader, x: Array, axis: int, size: Dim, window: Dim, stride: int, padding: Size, dilation: Operand
) -> Array:
    """Map axes (elements of a window, windows) back to the axis of `size` on which they lie."""
    count, shape = x.shape[axis + 1], (size, window)
    element = iota(r, shape, 1, I64)
    position = iota(r, shape, 0, I64) + padding - element * dilation
    number = position / stride
    exact = number * stride == position
    inside = (position >= 0) & (number < count)
    flat = x.reshape((*x.shape[:axis], window * count, *x.shape[axis + 2 :]))
    at = element * count + number
    return Line(at, exact & inside).sum(r, flat, axis)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._adaptive_avg_pool2d.default": _adaptive_means(2),
    "aten._adaptive_avg_pool3d.default": _adaptive_means(3),
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_means_backward(2),
    "aten._adaptive_avg_pool3d_backward.default": _adaptive_means_backward(3),
    "aten.adaptive_max_pool2d.default": _adaptive_maxima(2),
    "aten.adaptive_max_pool3d.default": _adaptive_maxima(3),
    "aten.adaptive_max_pool2d_backward.default": maxima_backward(2),
    "aten.adaptive_max_pool3d_backward.default": maxima_backward(3),
    "aten.im2col.default": _im2col,
    "aten.col2im.default": _col2im,
}
