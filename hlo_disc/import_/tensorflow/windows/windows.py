"""Convolutions with their gradients. Padding is computed for sizes that only a call knows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.import_.formulas.windows import Convolution, Pad, extents
from hlo_disc.import_.handlers.arrays import Array, array, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


class Spatial:
    """The axes of a window op: batch and channels, as NHWC or NCHW says, and the others with their attributes."""

    def __init__(self, op: Node, rank: int):
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


def _known(r: Reader, d: Dim, what: str) -> int:
    return r.constants((d,), what)[0]


def _windows(r: Reader, op: Node, x: Array, sizes: Sequence[Dim], w: Sequence[Dim], groups: int) -> Convolution:
    """Return the windows of a convolution over axes of these sizes, with a kernel (…, x's features, y's features)."""
    space = Spatial(op, x.rank)
    strides, holes = space.numbers("strides"), space.numbers("dilations")
    k = len(space.axes)
    pads = space.pads(r, sizes, extents(w[:k], holes), strides)
    return Convolution(space.order, (k + 1, k, *range(k)), strides, pads, holes, groups, x.dtype)


def _groups(r: Reader, channels: Dim, inputs: Dim) -> int:
    """Return the number of groups of channels, each as large as the kernel's."""
    if channels is inputs:
        return 1
    taken = _known(r, inputs, "the input channels of a kernel")
    if channels.is_const:
        groups = channels.value // max(taken, 1)
        r.equal(channels, Dim.const(groups * taken), "the channels and those that the kernel takes")
        return groups
    r.assume(channels, "==", Dim.const(taken), "the number of groups")
    return 1


def _flat(w: Sequence[Dim]) -> Shape:
    """Return the shape of a depthwise kernel as a grouped one: each of its channels is a group."""
    *window, channels, times = w
    return (*window, ONE, channels * times)


def _conv(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, w = (array(r, o) for o in operands)
    space = Spatial(op, x.rank)
    groups = _groups(r, x.shape[space.channel], w.shape[len(space.axes)])
    return _windows(r, op, x, [x.shape[a] for a in space.axes], w.shape, groups).apply(x, w).value


def _depthwise(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, w = (array(r, o) for o in operands)
    space = Spatial(op, x.rank)
    channels = w.shape[-2]
    r.equal(x.shape[space.channel], channels, "the channels and those of the kernel")
    groups = _known(r, channels, "the channels of a kernel")
    windows = _windows(r, op, x, [x.shape[a] for a in space.axes], w.shape, groups)
    return windows.apply(x, w.reshape(_flat(w.shape))).value


def _conv_input_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    shape = r.sizes(operands[0])
    w, dy = array(r, operands[1]), array(r, operands[2])
    space = Spatial(op, dy.rank)
    sizes = shape if len(shape) == len(space.axes) else [shape[a] for a in space.axes]
    groups = 1
    if "tf.Depthwise" in op.name:
        groups = _known(r, w.shape[-2], "the channels of a kernel")
        w = w.reshape(_flat(w.shape))
    elif len(shape) > len(space.axes):
        groups = _groups(r, shape[space.channel], w.shape[len(space.axes)])
    made = _windows(r, op, dy, sizes, w.shape, groups).input_gradient(dy, w, sizes)
    for a, n in zip(space.axes, sizes, strict=True):
        r.equal(made.shape[a], n, f"dimension {a} of the gradient and of the input")
    return made.value


def _conv_filter_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, dy = array(r, operands[0]), array(r, operands[2])
    shape = r.sizes(operands[1])
    space = Spatial(op, x.rank)
    window = shape[: len(space.axes)]
    if "tf.Depthwise" in op.name:
        groups = _known(r, shape[-2], "the channels of a kernel")
    else:
        groups = _groups(r, x.shape[space.channel], shape[-2])
    windows = _windows(r, op, x, [x.shape[a] for a in space.axes], shape, groups)
    made = windows.kernel_gradient(x, dy, window)
    for a, n in enumerate(window):
        r.equal(made.shape[a], n, f"dimension {a} of the gradient and of the kernel")
    return made.reshape(shape).value


def _elements(
    r: Reader, op: Node, x: Array, window: Sequence[int], number: float = 0
) -> Iterator[tuple[int, int, Array]]:
    """Yield for each place in a window, by row and column, the elements that all windows have there."""
    strides, rates = op.attributes["strides"][1:3], op.attributes["rates"][1:3]
    reach, scalar = extents(list(map(Dim.const, window)), rates), r.evaluator.scalar
    pads = Spatial(op, 4).pads(r, x.shape[1:3], reach, strides)
    padded = x.pad([0, *(low for low, _ in pads), 0], [0, *(high for _, high in pads), 0], number)
    counts = [
        scalar.maximum((padded.shape[1 + i] - reach[i]) // strides[i] + 1, ZERO)
        if pads[0] == (0, 0)
        else (x.shape[1 + i] + strides[i] - 1) // strides[i]
        for i in range(2)
    ]
    for i, j in itertools.product(*map(range, window)):
        part = padded
        for axis, (k, rate, step, count) in enumerate(zip((i, j), rates, strides, counts, strict=True), 1):
            at = Dim.const(k * rate)
            part = part.slice(axis, at, scalar.maximum((count - 1) * step + at + 1, at), step)
        yield i, j, part


def _dilation(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Dilate: take the maximum of elements plus those of a kernel."""
    x, w = (array(r, o) for o in operands)
    window = r.constants(w.shape[:2], "the size of a kernel")
    terms = (
        part + w.slice(0, i, i + 1).slice(1, j, j + 1).reshape((ONE, ONE, ONE, w.shape[2]))
        for i, j, part in _elements(r, op, x, window, np.finfo(x.dtype).min)
    )
    return functools.reduce(Array.maximum, terms).value


def extract_patches(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the elements of each window as channels."""
    window = op.attributes["ksizes"][1:3]
    return joined([part for _, _, part in _elements(r, op, array(r, operands[0]), window)], 3).value


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
