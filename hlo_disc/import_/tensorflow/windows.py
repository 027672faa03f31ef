"""Convolutions, with their gradients; padding is worked out for sizes that only a call knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.elements import ONE, ZERO
from hlo_disc.import_.handlers.arrays import Array, array, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

Pad = tuple["Dim | int", "Dim | int"]


class Spatial:
    """The axes of a window op: batch and channels, as NHWC or NCHW says, and the others with their attributes."""

    def __init__(self, op: Any, rank: int):
        default = "NDHWC" if rank == 5 else "NHWC"
        first = op.attributes.get("data_format", default).startswith(("NC", "CHANNELS_FIRST"))
        self.channel = 1 if first else rank - 1
        self.axes = [a for a in range(1, rank) if a != self.channel]
        self.order = (0, self.channel, *self.axes)
        self.op = op

    def numbers(self, name: str, default: int = 1) -> list[int]:
        given = self.op.attributes.get(name) or [default] * (len(self.axes) + 2)
        return [given[a] for a in self.axes] if len(given) == len(self.axes) + 2 else list(given)

    def pads(self, r: Reader, sizes: Sequence[Dim], windows: Sequence[Dim], strides: Sequence[int]) -> list[Pad]:
        """Low and high padding of the axes, for windows with their holes."""
        padding = self.op.attributes["padding"]
        if padding == "VALID":
            return [(0, 0)] * len(self.axes)
        if padding == "EXPLICIT":
            pairs = self.op.attributes["explicit_paddings"]
            return [(pairs[2 * a], pairs[2 * a + 1]) for a in self.axes]
        found: list[Pad] = []
        for n, window, stride in zip(sizes, windows, strides, strict=True):
            if stride == 1:
                total = r.evaluator.scalar.maximum(window - 1, ZERO)
            else:
                count = (n + stride - 1) // stride
                total = r.evaluator.scalar.maximum((count - 1) * stride + window - n, ZERO)
            low = total // 2
            found.append((low, total - low))
        return found


def extents(windows: Sequence[Dim], dilations: Sequence[int]) -> list[Dim]:
    return [(w - 1) * d + 1 for w, d in zip(windows, dilations, strict=True)]


def convolve(
    x: Array,
    w: Array,
    orders: tuple[Sequence[int], Sequence[int], Sequence[int]],
    strides: Sequence[int],
    pads: Sequence[Pad],
    base: Sequence[int] | None = None,
    holes: Sequence[int] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    reverse: bool = False,
) -> Array:
    """orders: where batch, features and the rest are in the operand, the kernel (out, in, rest) and the result."""
    r, rank = x.r, len(strides)
    ones = (1,) * rank
    return x.emit(
        "convolution",
        w,
        lhs_spec=tuple(orders[0]),
        rhs_spec=tuple(orders[1]),
        out_spec=tuple(orders[2]),
        strides=tuple(strides),
        low=tuple(Dim.of(low) for low, _ in pads),
        high=tuple(r.facts.canonical(Dim.of(high)) for _, high in pads),
        base_dilations=tuple(base or ones),
        window_dilations=tuple(holes or ones),
        reversal=tuple(range(rank)) if reverse else (),
        feature_groups=groups,
        batch_groups=batch_groups,
        dtype=x.dtype,
    )


def _known(r: Reader, d: Dim, what: str) -> int:
    return r.constants((d,), what)[0]


def _conv(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x, w = (array(r, o) for o in operands)
    space = Spatial(op, x.rank)
    strides, holes = space.numbers("strides"), space.numbers("dilations")
    k = len(space.axes)
    groups = 1
    if x.shape[space.channel] is not w.shape[k]:
        inputs = _known(r, w.shape[k], "the input channels of a kernel")
        channels = x.shape[space.channel]
        if channels.is_const:
            groups = channels.value // max(inputs, 1)
            r.equal(channels, Dim.const(groups * inputs), "the channels and those that the kernel takes")
        else:
            r.assume(channels, "==", Dim.const(inputs), "the number of groups")
    sizes = [x.shape[a] for a in space.axes]
    pads = space.pads(r, sizes, extents(w.shape[:k], holes), strides)
    kernel = (k + 1, k, *range(k))
    return convolve(x, w, (space.order, kernel, space.order), strides, pads, holes=holes, groups=groups).value


def _depthwise(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x, w = (array(r, o) for o in operands)
    space = Spatial(op, x.rank)
    strides, holes = space.numbers("strides"), space.numbers("dilations")
    h, v, channels, times = w.shape
    r.equal(x.shape[space.channel], channels, "the channels and those of the kernel")
    pads = space.pads(r, [x.shape[a] for a in space.axes], extents((h, v), holes), strides)
    flat = w.reshape((h, v, ONE, channels * times))
    groups = _known(r, channels, "the channels of a kernel")
    return convolve(x, flat, (space.order, (3, 2, 0, 1), space.order), strides, pads, holes=holes, groups=groups).value


def _conv_input_grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """The gradient of a convolution by its input: one with the turned kernel over the gradient with holes."""
    shape = r.sizes(operands[0])
    w, dy = array(r, operands[1]), array(r, operands[2])
    space = Spatial(op, dy.rank)
    strides, holes = space.numbers("strides"), space.numbers("dilations")
    k = len(space.axes)
    if len(shape) == k:  # only the spatial sizes
        full = list(dy.shape)
        for a, n in zip(space.axes, shape, strict=True):
            full[a] = n
        full[space.channel] = w.shape[k]
        shape = tuple(full)
    sizes = [shape[a] for a in space.axes]
    windows = extents(w.shape[:k], holes)
    pads = []
    for axis, n, window, stride, (low, _) in zip(
        space.axes, sizes, windows, strides, space.pads(r, sizes, windows, strides), strict=True
    ):
        before = window - 1 - low
        reach = (dy.shape[axis] - 1) * stride + 1  # the gradient with its holes
        pads.append((before, r.facts.canonical(n + window - 1 - before - reach)))
    if "tf.Depthwise" in op.name:
        channels, times = w.shape[k], w.shape[k + 1]
        groups = _known(r, channels, "the channels of a kernel")
        flat = w.reshape((*w.shape[:k], channels, times)).transpose((*range(k), k + 1, k))
        kernel = flat.reshape((*w.shape[:k], times, channels))
        made = convolve(
            dy,
            kernel,
            (space.order, (k + 1, k, *range(k)), space.order),
            [1] * k,
            pads,
            strides,
            holes,
            groups,
            reverse=True,
        )
    else:
        made = convolve(
            dy, w, (space.order, (k, k + 1, *range(k)), space.order), [1] * k, pads, strides, holes, reverse=True
        )
    for a, n in zip(space.axes, sizes, strict=True):
        r.equal(made.shape[a], n, f"dimension {a} of the gradient and of the input")
    return made.value


def _conv_filter_grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """The gradient by the kernel: the input with the gradient, with holes, as kernel; batches are summed over."""
    x, dy = array(r, operands[0]), array(r, operands[2])
    shape = r.sizes(operands[1])
    space = Spatial(op, x.rank)
    strides, holes = space.numbers("strides"), space.numbers("dilations")
    k = len(space.axes)
    windows = extents(shape[:k], holes)
    sizes = [x.shape[a] for a in space.axes]
    pads = []
    for axis, n, window, stride, (low, _) in zip(
        space.axes, sizes, windows, strides, space.pads(r, sizes, windows, strides), strict=True
    ):
        reach = (dy.shape[axis] - 1) * stride + 1
        pads.append((low, r.facts.canonical(window + reach - 1 - n - low)))
    depthwise = "tf.Depthwise" in op.name
    groups = _known(r, shape[k], "the channels of a kernel") if depthwise else 1
    lhs = (space.channel, 0, *space.axes)
    rhs = (space.channel, 0, *space.axes)
    out = (k, k + 1, *range(k))
    made = convolve(x, dy, (lhs, rhs, out), holes, pads, holes=strides, batch_groups=groups)
    for a, n in enumerate(shape[:k]):
        r.equal(made.shape[a], n, f"dimension {a} of the gradient and of the kernel")
    return made.reshape(shape).value


def _dilation(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """The maximum of elements plus those of a kernel."""
    x, w = (array(r, o) for o in operands)
    strides, rates = op.attributes["strides"][1:3], op.attributes["rates"][1:3]
    rows, columns, _ = w.shape
    h, v = (_known(r, d, "the size of a kernel") for d in (rows, columns))
    reach = [(h - 1) * rates[0] + 1, (v - 1) * rates[1] + 1]
    space = Spatial(op, 4)
    pads = space.pads(r, x.shape[1:3], list(map(Dim.const, reach)), strides)
    padded = x.pad([0, *(low for low, _ in pads), 0], [0, *(high for _, high in pads), 0], np.finfo(x.dtype).min)
    counts = [(padded.shape[1 + i] - reach[i]) // strides[i] + 1 for i in range(2)]
    made = None
    for i in range(h):
        for j in range(v):
            part = padded
            for axis, at in ((1, i * rates[0]), (2, j * rates[1])):
                step = strides[axis - 1]
                part = part.slice(axis, at, (counts[axis - 1] - 1) * step + at + 1, step)
            term = part + w.slice(0, i, i + 1).slice(1, j, j + 1).reshape((ONE, ONE, ONE, w.shape[2]))
            made = term if made is None else made.maximum(term)
    assert made is not None
    return made.value


def extract_patches(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """The elements of each window as channels."""
    x = array(r, operands[0])
    (_, h, v, _), strides, rates = op.attributes["ksizes"], op.attributes["strides"][1:3], op.attributes["rates"][1:3]
    reach = [(h - 1) * rates[0] + 1, (v - 1) * rates[1] + 1]
    pads = Spatial(op, 4).pads(r, x.shape[1:3], list(map(Dim.const, reach)), strides)
    padded = x.pad([0, *(low for low, _ in pads), 0], [0, *(high for _, high in pads), 0])
    scalar = r.evaluator.scalar
    counts = [
        scalar.maximum((padded.shape[1 + i] - reach[i]) // strides[i] + 1, ZERO)
        if pads[0] == (0, 0)
        else (x.shape[1 + i] + strides[i] - 1) // strides[i]
        for i in range(2)
    ]
    parts = []
    for i in range(h):
        for j in range(v):
            part = padded
            for axis, at in ((1, i * rates[0]), (2, j * rates[1])):
                step, count = strides[axis - 1], counts[axis - 1]
                part = part.slice(axis, at, scalar.maximum((count - 1) * step + at + 1, Dim.const(at)), step)
            parts.append(part)
    return joined(parts, 3).value


HANDLERS: dict[str, Handler] = {
    "Conv": _conv,
    "Conv2D": _conv,
    "Conv2DBackpropFilter": _conv_filter_grad,
    "Conv2DBackpropInput": _conv_input_grad,
    "Conv3D": _conv,
    "Conv3DBackpropFilterV2": _conv_filter_grad,
    "Conv3DBackpropInputV2": _conv_input_grad,
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropFilter": _conv_filter_grad,
    "DepthwiseConv2dNativeBackpropInput": _conv_input_grad,
    "Dilation2D": _dilation,
    "ExtractImagePatches": extract_patches,
}
