"""Pools over windows, and their gradients.

The place of a maximum is the first in its window, of a NaN the last, as in eager mode; both ask no order of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.windows.convolutions import each
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.formulas.windows import Pool, extents, numbered
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


class Windows:
    """The windows on the last axes of a tensor of `rank`, one entry for each spatial axis.

    after: the padding behind the elements, which follows from the number of windows.
    """

    def __init__(
        self,
        r: AtenReader,
        sizes: Shape,
        counts: Shape,
        window: Sequence[Size],
        strides: Sequence[Size] | None,
        padding: Sequence[Size],
        dilations: Sequence[Size] = (1,),
    ):
        spatial = len(sizes)
        self.r, self.sizes, self.counts = r, sizes, counts
        self.window = tuple(map(Dim.of, each(window, spatial)))
        self.strides = tuple(map(r.fixed, each(strides, spatial) if strides else self.window))
        self.before = tuple(map(Dim.of, each(padding, spatial)))
        self.dilations = tuple(map(r.fixed, each(dilations, spatial)))
        rows = zip(sizes, counts, extents(self.window, self.dilations), self.strides, self.before, strict=True)
        self.after = tuple((m - 1) * s + k - n - p for n, m, k, s, p in rows)

    def over(self, x: Array) -> Pool:
        """Extend the windows to all axes of a tensor; on its first axes each element is a window."""
        outer = x.rank - len(self.sizes)
        ones, pads = (1,) * outer, [(ZERO, ZERO)] * outer + list(zip(self.before, self.after, strict=True))
        return Pool((ONE,) * outer + self.window, ones + self.strides, pads, ones + self.dilations)


# Maxima


def maxima(spatial: int) -> Callable[..., list[Array]]:
    """Return maxima and their positions."""

    def handle(
        r: AtenReader,
        x: Array,
        window: Sequence[Size],
        strides: Sequence[Size] | None = None,
        padding: Sequence[Size] = (0,),
        dilations: Sequence[Size] = (1,),
        _: bool = False,
    ) -> list[Array]:
        counts = r.out.shape[x.rank - spatial :]
        windows = Windows(r, x.shape[x.rank - spatial :], counts, window, strides, padding, dilations)
        if not r.used(1):
            made = windows.over(x).reduce(x, "max")
            return [made, r.full(0, I64, made.shape)]
        return windows.over(x).maxima(x, numbered(r, x.shape, spatial))

    return handle


def maxima_backward(spatial: int) -> Callable[..., Array]:
    """Add a gradient to the elements whose numbers within the last axes are the last operand."""

    def handle(r: AtenReader, gradient: Array, x: Array, *args: Any) -> Array:
        outer = x.rank - spatial

        def lines(shape: Shape) -> Shape:
            return dim_product(shape[:outer]), dim_product(shape[outer:])

        wide, at = gradient.cast(computed(gradient.dtype)), args[-1].reshape(lines(args[-1].shape))
        start = r.full(0, wide.dtype, lines(x.shape))
        targets = places.along(r, start.shape, 1, at, wrap=False)
        made = places.put(r, start, targets, wide.reshape(lines(wide.shape)), "add")
        return made.reshape(x.shape).cast(r.out.dtype)

    return handle


# Means


def _divisor(r: AtenReader, windows: Windows, include_pad: bool, given: Size | None, dtype: np.dtype) -> Array:
    """Return the divisor of the sum of a window: a number, or one for each window."""
    if given is not None:
        return r.scalar(given, dtype)
    whole = all(r.facts.at_most(after, before if include_pad else ZERO).name == "YES"
                for after, before in zip(windows.after, windows.before, strict=True))  # fmt: skip
    if whole and (include_pad or all(before is ZERO for before in windows.before)):
        return r.scalar(dim_product(windows.window), dtype)
    product = r.full(1, I64, windows.counts)
    rows = zip(windows.sizes, windows.window, windows.strides, windows.before, windows.counts, strict=True)
    for axis, (n, k, s, p, _) in enumerate(rows):
        start = iota(r, windows.counts, axis, I64) * s - p
        end = (start + k).minimum(n + p)
        if not include_pad:
            start, end = start.maximum(0), end.minimum(n)
        product = product * (end - start)
    return product.cast(dtype)


def means(spatial: int) -> Callable[..., Array]:
    def handle(
        r: AtenReader,
        x: Array,
        window: Sequence[Size],
        strides: Sequence[Size] | None = None,
        padding: Sequence[Size] = (0,),
        _: bool = False,
        include_pad: bool = True,
        divisor: Size | None = None,
    ) -> Array:
        counts = r.out.shape[x.rank - spatial :]
        windows = Windows(r, x.shape[x.rank - spatial :], counts, window, strides, padding)
        wide = x.cast(computed(x.dtype))
        total = windows.over(wide).reduce(wide, "add")
        return (total / _divisor(r, windows, include_pad, divisor, wide.dtype)).cast(r.out.dtype)

    return handle


def means_backward(spatial: int) -> Callable[..., Array]:
    def handle(
        r: AtenReader,
        gradient: Array,
        x: Array,
        window: Sequence[Size],
        strides: Sequence[Size] | None,
        padding: Sequence[Size],
        _: bool,
        include_pad: bool,
        divisor: Size | None,
    ) -> Array:
        outer = x.rank - spatial
        windows = Windows(r, x.shape[outer:], gradient.shape[outer:], window, strides, padding)
        wide = gradient.cast(computed(x.dtype))
        share = wide / _divisor(r, windows, include_pad, divisor, wide.dtype)
        return windows.over(share).spread(share, r.out.shape).cast(r.out.dtype)

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.max_pool2d_with_indices.default": maxima(2),
    "aten.max_pool3d_with_indices.default": maxima(3),
    "aten.max_pool2d_with_indices_backward.default": maxima_backward(2),
    "aten.max_pool3d_with_indices_backward.default": maxima_backward(3),
    "aten.avg_pool2d.default": means(2),
    "aten.avg_pool3d.default": means(3),
    "aten.avg_pool2d_backward.default": means_backward(2),
    "aten.avg_pool3d_backward.default": means_backward(3),
}
