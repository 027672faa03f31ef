"""Convolutions, their transposes, and the gradients of both: each is a convolution of one of three kinds.

x is (batch, channels, …), the kernel of a convolution (features, channels / groups, …), what it makes y (batch,
features, …). A transposed convolution makes x of y, as the gradient of x does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.tensors import Size

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


@dataclass(frozen=True)
class _Windows:
    """How windows lie, one entry a spatial axis."""

    r: AtenReader
    strides: tuple[int, ...]
    padding: Shape
    dilations: tuple[int, ...]
    groups: int

    def forward(self, x: Value, w: Value) -> Value:
        return self._convolution(x, w, low=self.padding, high=self.padding, strides=self.strides, holes=self.dilations)

    def transposed(self, y: Value, w: Value, sizes: Shape) -> Value:
        """x of the spatial `sizes`: every y, times the kernel, is added where its window lies."""
        features, channels, *window = w.shape
        groups = self.groups
        kernel = self.r.reshape(w, (Dim.const(groups), features // groups, channels, *window))
        kernel = self.r.transpose(kernel, (0, 2, 1, *range(3, kernel.rank)))
        kernel = self.r.reshape(kernel, (channels * groups, features // groups, *window))
        low = tuple(d * (k - 1) - p for d, k, p in zip(self.dilations, window, self.padding, strict=True))
        high = tuple(
            n - 1 - (m - 1) * s + p for n, m, s, p in zip(sizes, y.shape[2:], self.strides, self.padding, strict=True)
        )
        turned = tuple(range(len(window)))
        return self._convolution(
            y, kernel, low=low, high=high, base=self.strides, holes=self.dilations, reversal=turned
        )  # fmt: skip

    def kernel(self, x: Value, y: Value, window: Shape) -> Value:
        """The gradient of the kernel, whose places see x and y together: batches take the part of features."""
        rows = zip(x.shape[2:], y.shape[2:], window, self.strides, self.dilations, self.padding, strict=True)
        high = tuple(d * (k - 1) + s * (m - 1) + 1 - n - p for n, m, k, s, d, p in rows)
        spatial = tuple(range(2, x.rank))
        turned = (1, 0, *spatial)
        return self._convolution(
            x, y, low=self.padding, high=high, strides=self.dilations, holes=self.strides,
            specs=(turned, turned, turned), batches=True,
        )  # fmt: skip

    def _convolution(
        self,
        x: Value,
        w: Value,
        *,
        low: Shape,
        high: Shape,
        holes: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        base: tuple[int, ...] | None = None,
        reversal: tuple[int, ...] = (),
        specs: tuple[tuple[int, ...], ...] | None = None,
        batches: bool = False,
    ) -> Value:
        ones = (1,) * (x.rank - 2)
        lhs, rhs, out = specs or (tuple(range(x.rank)),) * 3
        return self.r.emit(
            "convolution",
            (x, w),
            lhs_spec=lhs,
            rhs_spec=rhs,
            out_spec=out,
            strides=strides or ones,
            low=low,
            high=high,
            base_dilations=base or ones,
            window_dilations=holes,
            reversal=reversal,
            feature_groups=1 if batches else self.groups,
            batch_groups=self.groups if batches else 1,
            dtype=computed(x.dtype),
        )


def _windows(
    r: AtenReader,
    spatial: int,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    groups: Size,
) -> _Windows:
    numbers = [tuple(map(r.fixed, each(x, spatial))) for x in (strides, dilations)]
    return _Windows(r, numbers[0], tuple(map(Dim.of, each(padding, spatial))), numbers[1], r.fixed(groups))


def each(entries: Sequence[Size], count: int) -> tuple[Size, ...]:
    """An entry for every axis; a single one is that of all."""
    return tuple(entries) * count if len(entries) == 1 else tuple(entries)


def _convolution(
    r: AtenReader,
    x: Value,
    w: Value,
    bias: Value | None,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    transposed: bool,
    _: Sequence[Size],
    groups: Size,
) -> Value:
    windows = _windows(r, x.rank - 2, strides, padding, dilations, groups)
    made = windows.transposed(x, w, r.out.shape[2:]) if transposed else windows.forward(x, w)
    if bias is not None:
        wide = r.convert(bias, made.dtype)
        made = r.op("add", made, r.reshape(wide, (*wide.shape, *[Dim.const(1)] * (x.rank - 2))))
    return r.convert(made, r.out.dtype)


def _backward(
    r: AtenReader,
    gradient: Value,
    x: Value,
    w: Value,
    bias_sizes: Sequence[Size] | None,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    transposed: bool,
    _: Sequence[Size],
    groups: Size,
    mask: Sequence[bool],
) -> list[Value | None]:
    """Compute the gradients of x, of the kernel and of the bias, as far as `mask` asks for them."""
    windows = _windows(r, x.rank - 2, strides, padding, dilations, groups)

    def of_x() -> Value:
        return windows.forward(gradient, w) if transposed else windows.transposed(gradient, w, x.shape[2:])

    def of_kernel() -> Value:
        return windows.kernel(*((gradient, x) if transposed else (x, gradient)), w.shape[2:])

    def of_bias() -> Value:
        axes = tuple(axis for axis in range(x.rank) if axis != 1)
        return r.reduce(r.convert(gradient, computed(gradient.dtype)), axes, "add")

    made = [f() if asked else None for f, asked in zip((of_x, of_kernel, of_bias), mask, strict=True)]
    return [y if y is None else r.convert(y, x.dtype) for y in made]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.convolution.default": _convolution,
    "aten._convolution.default": lambda r, *args: _convolution(r, *args[:9]),
    "aten.convolution_backward.default": _backward,
}
