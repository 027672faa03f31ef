"""Images: resizing by weights of neighbours, and colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import F32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.formulas.images import KEYS, STEEP, cubic_taps, weighed
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import result_dtype, shape_of

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _scale(r: Reader, op: Node, n: Dim, m: Dim) -> Array:
    """Return the number of input elements for each output element."""
    if op.attributes.get("align_corners", False):
        steps = r.evaluator.scalar.maximum(m - 1, Dim.const(1))
        aligned = filled(r, n - 1, F32) / steps
        plain = filled(r, n, F32) / m
        return where(filled(r, m, I64) > 1, aligned, plain)
    return filled(r, n, F32) / m


def _places(r: Reader, op: Node, n: Dim, m: Dim) -> Array:
    """Return the position of each output element in the input."""
    at = iota(r, (m,), 0, np.int32).cast(F32)
    if op.attributes.get("half_pixel_centers", False):
        return (at + 0.5) * _scale(r, op, n, m) - 0.5
    return at * _scale(r, op, n, m)


def _bounded(at: Array, n: Dim) -> Array:
    return at.maximum(0).minimum(n - 1)


def _neighbours(r: Reader, op: Node, n: Dim, m: Dim) -> tuple[Array, Array, Array]:
    """Return the two input elements around each output element, and its distance from the lower one."""
    place = _places(r, op, n, m)
    below = place.op("floor")
    low, high = (_bounded(y.cast(I64), n) for y in (below.maximum(0), place.op("ceil")))
    return low, high, place - below


def _nearest_of(r: Reader, op: Node, n: Dim, m: Dim) -> Array:
    """Return the input element nearest to each output element."""
    at = iota(r, (m,), 0, np.int32).cast(F32)
    if op.attributes.get("half_pixel_centers", False):
        at = at + 0.5
    place = at * _scale(r, op, n, m)
    if op.attributes.get("align_corners", False):
        place = place.op("round_nearest_afz")
    return _bounded(place.op("floor").cast(I64), n)


def _bilinear(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    x = x.cast(F32) if result_dtype(op) == F32 else x
    sizes = r.sizes(operands[1])
    for axis, m in zip((1, 2), sizes, strict=True):
        low, high, lerp = _neighbours(r, op, x.shape[axis], m)
        shape = [m if a == axis else d for a, d in enumerate(x.shape)]
        left, right = x.take(low, axis), x.take(high, axis)
        x = left + (right - left) * lerp.broadcast(shape, (axis,))
    return x.cast(result_dtype(op)).value


def _nearest(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    for axis, m in zip((1, 2), r.sizes(operands[1]), strict=True):
        x = x.take(_nearest_of(r, op, x.shape[axis], m), axis)
    return x.value


def _taps(r: Reader, op: Node, n: Dim, m: Dim) -> list[tuple[Array, Array]]:
    """Return four pixels for each new one, and their weights.

    With pixels in their middle weights are renormalised at the edges.
    """
    half = op.attributes.get("half_pixel_centers", False)
    place = _places(r, op, n, m)
    base = place.op("floor")
    # weights come from a table of 1024 steps
    delta = ((place - base) * 1024).op("round_nearest_even") / 1024
    taps, total = [], None
    for k, weight in cubic_taps(delta, KEYS if half else STEEP):
        at = base.cast(I64) + k
        inside = _bounded(at, n)
        if half:
            weight = where(at == inside, weight, 0)
        total = weight if total is None else total + weight
        taps.append((inside, weight))
    assert total is not None
    if not half:
        return taps
    return [(at, where(abs(total) < 1000 * np.finfo(np.float32).tiny, w, w / total)) for at, w in taps]


def _bicubic(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0]).cast(F32)
    for axis, m in zip((1, 2), r.sizes(operands[1]), strict=True):
        shape = [m if k == axis else d for k, d in enumerate(x.shape)]
        first, *rest = (
            x.take(at, axis) * weight.broadcast(shape, (axis,)) for at, weight in _taps(r, op, x.shape[axis], m)
        )
        x = sum(rest, first)
    return x.value


def _linear_taps(r: Reader, op: Node, n: Dim, m: Dim) -> list[tuple[Array, Array]]:
    """Return two pixels for each new one, and their weights."""
    low, high, lerp = _neighbours(r, op, n, m)
    return [(low, 1 - lerp), (high, lerp)]


def _grad_of(taps: Callable[[Reader, Node, Dim, Dim], list[tuple[Array, Array]]]) -> Handler:
    """Make the handler of a gradient: the weights as matrices, transposed. Operand 1 is the image, or its sizes."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        dy, of = array(r, operands[0]), shape_of(operands[1])
        x = dy.cast(F32)
        for axis, n in zip((1, 2), of[1:3] if len(of) > 1 else r.sizes(operands[1]), strict=True):
            shape = (dy.shape[axis], n)
            column = iota(r, shape, 1, I64)
            first, *rest = (
                where(column == at.broadcast(shape, (0,)), weight.broadcast(shape, (0,)), 0)
                for at, weight in taps(r, op, shape[1], shape[0])
            )
            x = weighed(x, sum(rest, first), axis)
        return x.cast(result_dtype(op)).value

    return handler


def _channels(x: Array) -> list[Array]:
    axis = x.rank - 1
    x.r.equal(x.shape[axis], Dim.const(3), "the channels and 3")
    return [x.slice(axis, i, i + 1) for i in range(3)]


def _rgb_to_hsv(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    red, green, blue = _channels(x)
    value = red.maximum(green).maximum(blue)
    spread = value - red.minimum(green).minimum(blue)
    saturation = where(value > 0, spread / value, 0)
    norm = spread.like(1 / 6) / spread
    hue = where(
        red == value,
        norm * (green - blue),
        where(green == value, norm * (blue - red) + 2 / 6, norm * (red - green) + 4 / 6),
    )
    hue = where(spread > 0, hue, 0)
    hue = where(hue < 0, hue + 1, hue)
    return joined([hue, saturation, value], x.rank - 1).value


def _shares(hue: Array) -> list[Array]:
    """Return the shares of red, green and blue in a hue."""
    six = hue * 6
    parts = (abs(six - 3) - 1, 2 - abs(six - 2), 2 - abs(six - 4))
    return [part.maximum(0).minimum(1) for part in parts]


def _hsv_to_rgb(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    hue, saturation, value = _channels(x)
    parts = [((1 - saturation) + saturation * c) * value for c in _shares(hue)]
    return joined(parts, x.rank - 1).value


def _adjust_contrast(r: Reader, op: Node, operands: list[Operand]) -> Result:
    given, factor = (array(r, o) for o in operands)
    x = given.cast(F32)
    mean = x.mean([x.rank - 3, x.rank - 2], keep=True)
    return ((x - mean) * factor + mean).cast(given.dtype).value


def _adjust_saturation(r: Reader, op: Node, operands: list[Operand]) -> Result:
    given, scale = (array(r, o) for o in operands)
    x = given.cast(F32)
    red, green, blue = _channels(x)
    value = red.maximum(green).maximum(blue)
    spread = value - red.minimum(green).minimum(blue)
    saturation = where(value > 0, spread / value, 0)
    wanted = (saturation * scale).maximum(0).minimum(1)
    ratio = where(saturation > 0, wanted / saturation, 0)
    parts = [value - (value - c) * ratio for c in (red, green, blue)]
    return joined(parts, x.rank - 1).cast(given.dtype).value


def _adjust_hue(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Rotate the hue, with the largest and the smallest channel kept."""
    given, delta = (array(r, o) for o in operands)
    x = given.cast(F32)
    red, green, blue = _channels(x)
    most, least = red.maximum(green).maximum(blue), red.minimum(green).minimum(blue)
    spread = most - least
    safe = where(spread > 0, spread, 1)
    hue = where(
        red == most,
        (green - blue) / safe,
        where(green == most, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = hue / 6 + delta
    hue = hue - hue.op("floor")
    return joined([least + spread * share for share in _shares(hue)], x.rank - 1).cast(given.dtype).value


HANDLERS: dict[str, Handler] = {
    "AdjustContrastv2": _adjust_contrast,
    "AdjustHue": _adjust_hue,
    "AdjustSaturation": _adjust_saturation,
    "HSVToRGB": _hsv_to_rgb,
    "RGBToHSV": _rgb_to_hsv,
    "ResizeBicubic": _bicubic,
    "ResizeBicubicGrad": _grad_of(_taps),
    "ResizeBilinear": _bilinear,
    "ResizeBilinearGrad": _grad_of(_linear_taps),
    "ResizeNearestNeighbor": _nearest,
    "ResizeNearestNeighborGrad": _grad_of(lambda r, op, n, m: [(_nearest_of(r, op, n, m), filled(r, 1, F32, (m,)))]),
}
