"""Convolutions, their transposes, and the gradients of both: each is a convolution of one of three kinds.

x is (batch, channels, …), the kernel of a convolution (features, channels / groups, …), what it makes y (batch,
features, …). A transposed convolution makes x of y, as the gradient of x does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.formulas.windows import Convolution
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _windows(
    r: AtenReader,
    x: Array,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    groups: Size,
    less: Sequence[Size] = (0,),
) -> Convolution:
    """Return the windows. less: how much less padding there is behind the elements than before them."""
    order, spatial = tuple(range(x.rank)), x.rank - 2
    numbers = [tuple(map(r.fixed, each(entries, spatial))) for entries in (strides, dilations)]
    pads = [(low, low - n) for low, n in zip(each(padding, spatial), each(less, spatial), strict=True)]
    return Convolution(order, order, numbers[0], pads, numbers[1], r.fixed(groups), computed(x.dtype))


def each(entries: Sequence[Size], count: int) -> tuple[Size, ...]:
    """Return an entry for every axis; a single one is used for all."""
    return tuple(entries) * count if len(entries) == 1 else tuple(entries)


def _convolution(
    r: AtenReader,
    x: Array,
    w: Array,
    bias: Array | None,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    transposed: bool,
    _: Sequence[Size],
    groups: Size,
) -> Array:
    windows = _windows(r, x, strides, padding, dilations, groups)
    made = windows.input_gradient(x, w, r.out.shape[2:]) if transposed else windows.apply(x, w)
    if bias is not None:
        wide = bias.cast(made.dtype)
        made = made + wide.reshape((*wide.shape, *[Dim.const(1)] * (x.rank - 2)))
    return made.cast(r.out.dtype)


def _backward(
    r: AtenReader,
    gradient: Array,
    x: Array,
    w: Array,
    bias_sizes: Sequence[Size] | None,
    strides: Sequence[Size],
    padding: Sequence[Size],
    dilations: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    mask: Sequence[bool],
) -> list[Array | None]:
    """Compute the gradients of x, of the kernel and of the bias, as far as `mask` asks for them."""
    less = output_padding if transposed else (0,)
    windows = _windows(r, x, strides, padding, dilations, groups, less)

    def of_x() -> Array:
        return windows.apply(gradient, w) if transposed else windows.input_gradient(gradient, w, x.shape[2:])

    def of_kernel() -> Array:
        return windows.kernel_gradient(*((gradient, x) if transposed else (x, gradient)), w.shape[2:])

    def of_bias() -> Array:
        axes = tuple(axis for axis in range(x.rank) if axis != 1)
        return gradient.cast(computed(gradient.dtype)).sum(axes)

    made = [f() if asked else None for f, asked in zip((of_x, of_kernel, of_bias), mask, strict=True)]
    return [y if y is None else y.cast(x.dtype) for y in made]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.convolution.default": _convolution,
    "aten._convolution.default": lambda r, *args: _convolution(r, *args[:9]),
    "aten.convolution_backward.default": _backward,
}
