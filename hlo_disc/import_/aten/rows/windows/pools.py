"""Pools over windows, and their gradients.

The place of a maximum is the first in its window, of a NaN the last, as in eager mode; both ask no order of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.combiners import identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.windows.convolutions import each
from hlo_disc.import_.aten.tensors import I64, Size
from hlo_disc.import_.elements import ONE, ZERO

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_LAST = np.iinfo(np.int64).max


class Windows:
    """How windows lie on the last axes of a tensor of `rank`, one entry a spatial axis.

    after: how much padding there is behind, which follows from how many windows there are.
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
        rows = zip(sizes, counts, self.window, self.strides, self.before, self.dilations, strict=True)
        self.after = tuple((m - 1) * s + d * (k - 1) + 1 - n - p for n, m, k, s, p, d in rows)

    def combine(self, xs: Sequence[Value], starts: Sequence[np.ndarray], body: Region) -> tuple[Value, ...]:
        outer = xs[0].rank - len(self.sizes)
        ones = (1,) * outer
        return self.r.emit_all(
            "reduce_window",
            (*xs, *map(self.r.constant, starts)),
            window=(ONE,) * outer + self.window,
            strides=ones + self.strides,
            base_dilations=(1,) * xs[0].rank,
            window_dilations=ones + self.dilations,
            low=(ZERO,) * outer + self.before,
            high=(ZERO,) * outer + self.after,
            body=body,
        )

    def reduce(self, x: Value, kind: str) -> Value:
        return self.combine([x], [np.asarray(identity(kind, x.dtype))], monoid_region(kind, x.dtype))[0]

    def spread(self, y: Value) -> Value:
        """The adjoint of a sum: every element of y is added to all elements of its window."""
        outer = y.rank - len(self.sizes)
        ones = (1,) * outer
        reach = [d * (k - 1) for k, d in zip(self.window, self.dilations, strict=True)]
        low = tuple(x - p for x, p in zip(reach, self.before, strict=True))
        rows = zip(self.sizes, self.counts, self.strides, self.before, strict=True)
        high = tuple(n - 1 - (m - 1) * s + p for n, m, s, p in rows)
        return self.r.emit_all(
            "reduce_window",
            (y, self.r.constant(np.asarray(0, y.dtype))),
            window=(ONE,) * outer + self.window,
            strides=(1,) * y.rank,
            base_dilations=ones + self.strides,
            window_dilations=ones + self.dilations,
            low=(ZERO,) * outer + low,
            high=(ZERO,) * outer + high,
            body=monoid_region("add", y.dtype),
        )[0]


# Maxima


def maximum_region(r: AtenReader, dtype: np.dtype) -> Region:
    """The larger of two (value, place): of equal ones the first, of NaNs the last."""

    def build(b: GraphBuilder, values: tuple[Value, ...]) -> list[Value]:
        x, at, y, there = values

        def compare(p: Value, direction: str, q: Value) -> Value:
            return b.op("compare", (p, q), direction=direction)

        earlier = compare(there, "LT", at)
        takes = b.op("or", (compare(y, "GT", x), b.op("and", (compare(y, "EQ", x), earlier))))
        if dtype_class(dtype) == "float":
            x_nan, y_nan = compare(x, "NE", x), compare(y, "NE", y)
            first = b.op("or", (b.op("not", (x_nan,)), compare(there, "GT", at)))
            takes = b.op("or", (takes, b.op("and", (y_nan, first))))
        return [b.op("select", (takes, y, x)), b.op("select", (takes, there, at))]

    return make_region(r.facts, [(t, ()) for t in (dtype, I64, dtype, I64)], build)


def numbered(r: AtenReader, shape: Shape, spatial: int) -> Value:
    """The number of each element within its last axes."""
    sizes = shape[len(shape) - spatial :]
    number = r.full(0, I64, sizes)
    for axis, size in enumerate(sizes):
        number = r.op("add", r.op("multiply", number, size), r.iota(I64, sizes, axis))
    return r.broadcast(number, shape)


def maxima(spatial: int) -> Callable[..., list[Value]]:
    """Maxima, and their places."""

    def handle(
        r: AtenReader,
        x: Value,
        window: Sequence[Size],
        strides: Sequence[Size] | None = None,
        padding: Sequence[Size] = (0,),
        dilations: Sequence[Size] = (1,),
        _: bool = False,
    ) -> list[Value]:
        counts = r.out.shape[x.rank - spatial :]
        windows = Windows(r, x.shape[x.rank - spatial :], counts, window, strides, padding, dilations)
        if not r.used(1):
            made = windows.reduce(x, "max")
            return [made, r.full(0, I64, made.shape)]
        starts = [np.asarray(identity("max", x.dtype)), np.asarray(_LAST)]
        return list(windows.combine([x, numbered(r, x.shape, spatial)], starts, maximum_region(r, x.dtype)))

    return handle


def scattered(r: AtenReader, gradient: Value, at: Value, shape: Shape, spatial: int) -> Value:
    """A tensor of `shape`, to whose elements with these numbers a gradient is added."""
    outer = len(shape) - spatial

    def lines(x: Value) -> Value:
        return r.reshape(x, (math.prod(x.shape[:outer], start=ONE), math.prod(x.shape[outer:], start=ONE)))

    flat = math.prod(shape[:outer], start=ONE), math.prod(shape[outer:], start=ONE)
    where = places.along(r, flat, 1, lines(at), wrap=False)
    wide = r.convert(gradient, computed(gradient.dtype))
    return r.reshape(places.put(r, r.full(0, wide.dtype, flat), where, lines(wide), "add"), shape)


def maxima_backward(spatial: int) -> Callable[..., Value]:
    def handle(r: AtenReader, gradient: Value, x: Value, *args: Any) -> Value:
        return r.convert(scattered(r, gradient, args[-1], x.shape, spatial), r.out.dtype)

    return handle


# Means


def _divisor(r: AtenReader, windows: Windows, include_pad: bool, given: Size | None, dtype: np.dtype) -> Value:
    """The divisor of the sum of a window: a number, or one for each window."""
    if given is not None:
        return r.scalar(given, dtype)
    whole = all(r.facts.at_most(after, before if include_pad else ZERO).name == "YES"
                for after, before in zip(windows.after, windows.before, strict=True))  # fmt: skip
    if whole and (include_pad or all(before is ZERO for before in windows.before)):
        return r.scalar(math.prod(windows.window, start=ONE), dtype)
    product = r.full(1, I64, windows.counts)
    rows = zip(windows.sizes, windows.window, windows.strides, windows.before, windows.counts, strict=True)
    for axis, (n, k, s, p, _) in enumerate(rows):
        start = r.op("subtract", r.op("multiply", r.iota(I64, windows.counts, axis), s), p)
        end = r.op("minimum", r.op("add", start, k), n + p)
        if not include_pad:
            start, end = r.op("maximum", start, 0), r.op("minimum", end, n)
        product = r.op("multiply", product, r.op("subtract", end, start))
    return r.convert(product, dtype)


def means(spatial: int) -> Callable[..., Value]:
    def handle(
        r: AtenReader,
        x: Value,
        window: Sequence[Size],
        strides: Sequence[Size] | None = None,
        padding: Sequence[Size] = (0,),
        _: bool = False,
        include_pad: bool = True,
        divisor: Size | None = None,
    ) -> Value:
        counts = r.out.shape[x.rank - spatial :]
        windows = Windows(r, x.shape[x.rank - spatial :], counts, window, strides, padding)
        wide = r.convert(x, computed(x.dtype))
        total = windows.reduce(wide, "add")
        return r.convert(r.op("divide", total, _divisor(r, windows, include_pad, divisor, wide.dtype)), r.out.dtype)

    return handle


def means_backward(spatial: int) -> Callable[..., Value]:
    def handle(
        r: AtenReader,
        gradient: Value,
        x: Value,
        window: Sequence[Size],
        strides: Sequence[Size] | None,
        padding: Sequence[Size],
        _: bool,
        include_pad: bool,
        divisor: Size | None,
    ) -> Value:
        outer = x.rank - spatial
        windows = Windows(r, x.shape[outer:], gradient.shape[outer:], window, strides, padding)
        wide = r.convert(gradient, computed(x.dtype))
        share = r.op("divide", wide, _divisor(r, windows, include_pad, divisor, wide.dtype))
        return r.convert(windows.spread(share), r.out.dtype)

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
