"""Windows that slide over axes: convolutions with their gradients, and pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape
from hlo_disc.dynamic_hlo.ops.expr import I64, formula_region, where
from hlo_disc.dynamic_hlo.ops.expr import Array as Scalar
from hlo_disc.dynamic_hlo.ops.families.combiners import identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array, emit_all, filled, iota

Pad = tuple[Dim | int, Dim | int]


def extents(windows: Sequence[Dim], holes: Sequence[int]) -> list[Dim]:
    """Return the extents of windows with holes."""
    return [(window - 1) * hole + 1 for window, hole in zip(windows, holes, strict=True)]


def _adjoint(sizes: Sequence[Dim], counts: Sequence[Dim], windows: Sequence[Dim], of: Convolution | Pool) -> list[Pad]:
    """Return the padding with which windows over results, spread by the strides, give axes of these sizes."""
    places = zip(sizes, counts, extents(windows, of.holes), of.strides, of.pads, strict=True)
    return [(k - 1 - low, n - 1 - (m - 1) * s + low) for n, m, k, s, (low, _) in places]


@frozen
class Convolution:
    """A convolution of x with a kernel w, which gives y; pads, strides and holes are those of the spatial axes.

    order: the positions of batch, features and spatial axes in x and y. kernel: the positions of y's features, x's
    features and spatial axes in w. Each group takes its part of x's features, and computes its part of y's.
    """

    order: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: Sequence[int]
    pads: Sequence[Pad]
    holes: Sequence[int]
    groups: int
    dtype: np.dtype

    def apply(self, x: Array, w: Array) -> Array:
        orders = self.order, self.kernel, self.order
        return self._convolve(x, w, orders, self.strides, self.pads, holes=self.holes, groups=self.groups)

    def input_gradient(self, y: Array, w: Array, sizes: Sequence[Dim]) -> Array:
        """Compute the gradient of x of these spatial sizes: every y, times the kernel, is added at its window."""
        out, into, *spatial = self.kernel
        if self.groups > 1:
            w = self._regrouped(w)
        pads = _adjoint(sizes, self._spatial(y), [w.shape[a] for a in spatial], self)
        orders = self.order, (into, out, *spatial), self.order
        ones = [1] * len(spatial)
        return self._convolve(y, w, orders, ones, pads, self.strides, self.holes, self.groups, turned=True)

    def kernel_gradient(self, x: Array, y: Array, window: Sequence[Dim]) -> Array:
        """Compute the gradient of the kernel, of spatial sizes `window`: at each offset products of x and y, summed
        over batches."""
        reach = extents(window, self.holes)
        places = zip(self._spatial(x), self._spatial(y), reach, self.strides, self.pads, strict=True)
        pads = [(low, k + (m - 1) * s - n - low) for n, m, k, s, (low, _) in places]
        exchanged = (self.order[1], self.order[0], *self.order[2:])
        orders = exchanged, exchanged, (self.kernel[1], self.kernel[0], *self.kernel[2:])
        return self._convolve(x, y, orders, self.holes, pads, holes=self.strides, batch_groups=self.groups)

    def _spatial(self, x: Array) -> list[Dim]:
        return [x.shape[a] for a in self.order[2:]]

    def _regrouped(self, w: Array) -> Array:
        """Move the groups from y's features to x's features of a kernel."""
        out, into = self.kernel[:2]
        features, channels = w.shape[out], w.shape[into]
        split = w.reshape((*w.shape[:out], Dim.const(self.groups), features // self.groups, *w.shape[out + 1 :]))
        order = [axis for axis in range(split.rank) if axis != out]
        order.insert(order.index(into + (into > out)), out)
        shape = list(w.shape)
        shape[out], shape[into] = features // self.groups, channels * self.groups
        return split.transpose(order).reshape(shape)

    def _convolve(
        self,
        x: Array,
        w: Array,
        orders: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        strides: Sequence[int],
        pads: Sequence[Pad],
        base: Sequence[int] | None = None,
        holes: Sequence[int] = (),
        groups: int = 1,
        batch_groups: int = 1,
        turned: bool = False,
    ) -> Array:
        rank, canonical = len(strides), x.r.facts.canonical
        return x.emit(
            "convolution",
            w,
            lhs_spec=orders[0],
            rhs_spec=orders[1],
            out_spec=orders[2],
            strides=tuple(strides),
            low=tuple(canonical(Dim.of(low)) for low, _ in pads),
            high=tuple(canonical(Dim.of(high)) for _, high in pads),
            base_dilations=tuple(base or (1,) * rank),
            window_dilations=tuple(holes),
            reversal=tuple(range(rank)) if turned else (),
            feature_groups=groups,
            batch_groups=batch_groups,
            dtype=self.dtype,
        )


# ------------------------------------------------------------------------------------------------------------- pools


@frozen
class Pool:
    """The windows on all axes of a tensor."""

    window: Sequence[Dim]
    strides: Sequence[int]
    pads: Sequence[Pad]
    holes: Sequence[int]

    def combine(self, arrays: Sequence[Array], starts: Sequence[Array], body: Region) -> list[Array]:
        """Fold the elements of each window with a region, from `starts` on."""
        return self._fold([*arrays, *starts], self.strides, (1,) * len(self.window), self.pads, body)

    def reduce(self, x: Array, kind: str, start: float | None = None) -> Array:
        """Combine each window. kind: add, mul, max, min; padding changes nothing. start: another identity."""
        first = x.like(identity(kind, x.dtype) if start is None else start)
        return self.combine([x], [first], monoid_region(kind, x.dtype))[0]

    def spread(self, y: Array, sizes: Shape) -> Array:
        """Compute the adjoint of a sum: add every element of y to all elements of its window in a tensor of `sizes`."""
        pads, body = _adjoint(sizes, y.shape, self.window, self), monoid_region("add", y.dtype)
        return self._fold([y, y.like(0)], (1,) * y.rank, self.strides, pads, body)[0]

    def maxima(self, x: Array, numbers: Array, start: float | None = None, nans: bool = True) -> list[Array]:
        """Return the maximum of each window and the number of its element, see `maximum_region`."""
        least = x.like(identity("max", x.dtype) if start is None else start)
        starts = [least, filled(x.r, np.iinfo(np.int64).max, I64)]
        return self.combine([x, numbers], starts, maximum_region(x.r, x.dtype, nans))

    def chosen(self, x: Array, y: Array) -> Array:
        """Compute the gradient of maxima of x: a window's first largest element gets its element of y."""
        canonical = x.r.facts.canonical
        return x.emit(
            "select_and_scatter",
            y,
            y.like(0),
            window=tuple(self.window),
            strides=tuple(self.strides),
            low=tuple(Dim.of(low) for low, _ in self.pads),
            high=tuple(canonical(Dim.of(high)) for _, high in self.pads),
            select=formula_region(x.r.facts, [x.dtype] * 2, lambda a, b: [a >= b]),
            body=monoid_region("add", x.dtype),
        )

    def _fold(
        self, operands: Sequence[Array], strides: Sequence[int], base: Sequence[int], pads: Sequence[Pad], body: Region
    ) -> list[Array]:
        canonical = operands[0].r.facts.canonical
        return emit_all(
            operands[0].r,
            "reduce_window",
            operands,
            window=tuple(self.window),
            strides=tuple(strides),
            low=tuple(Dim.of(low) for low, _ in pads),
            high=tuple(canonical(Dim.of(high)) for _, high in pads),
            base_dilations=tuple(base),
            window_dilations=tuple(self.holes),
            body=body,
        )


def maximum_region(r: Construction, dtype: np.dtype, nans: bool = True) -> Region:
    """Make the region for the larger of two (value, number), of equal ones the first; the start has the largest number.

    nans: the last NaN is the maximum. Otherwise a NaN is the maximum only if it comes first.
    """

    def build(x: Scalar, at: Scalar, y: Scalar, other: Scalar) -> list[Scalar]:
        takes = (y > x) | ((y == x) & (other < at))
        if not nans:
            takes = takes | (at == np.iinfo(np.int64).max)
        elif dtype_class(dtype) == "float":
            takes = takes | ((y != y) & (~(x != x) | (other > at)))
        return [where(takes, y, x), where(takes, other, at)]

    return formula_region(r.facts, [dtype, I64] * 2, build)


def numbered(r: Construction, shape: Shape, spatial: int) -> Array:
    """Number the elements within the last axes, in row-major order."""
    sizes = shape[len(shape) - spatial :]
    number = filled(r, 0, I64, sizes)
    for axis, size in enumerate(sizes):
        number = number * size + iota(r, sizes, axis, I64)
    return number.broadcast(shape)
