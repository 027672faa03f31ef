"""Images whose pixels are weighted means of others, by a matrix of weights for each axis, or are read elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import F32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.formulas.images import cubic, triangle, weighed
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _lanczos(radius: float) -> Callable[[Array], Array]:
    def kernel(d: Array) -> Array:
        turn = d * math.pi
        safe = turn.maximum(1e-3)
        made = safe.op("sine") * (safe / radius).op("sine") * radius / (safe * safe)
        return where(d <= 1e-3, 1, where(d > radius, 0, made))

    return kernel


def _mitchell(d: Array) -> Array:
    """Return Mitchell and Netravali's kernel, with a third of blur and of ringing."""
    near = (d * (7 / 6) - 2) * d * d + 8 / 9
    far = ((d * (-7 / 18) + 2) * d - 10 / 3) * d + 16 / 9
    return where(d < 1, near, where(d < 2, far, 0))


# By name: how far a kernel goes, and what it is at a distance.
_KERNELS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    **{f"lanczos{radius}": (radius, _lanczos(radius)) for radius in (1, 3, 5)},
    "gaussian": (1.5, lambda d: where(d < 1.5, (d * d * -2).exp(), 0)),
    "box": (1, lambda d: where(d < 0.5, 1, where(d == 0.5, d.like(0.5), d.like(0)))),
    "triangle": (1, triangle),
    "keyscubic": (2, cubic),
    "mitchellcubic": (2, _mitchell),
}


def _kernel_weights(r: Reader, op: Node, n: Dim, m: Dim, scale: Array, shift: Array) -> Array:
    """Return the weights (n, m) of each old element in each new one; elements outside of the image have none."""
    name = op.attributes.get("kernel_type", "lanczos3")
    if name not in _KERNELS:
        r.unsupported(f"the kernel {name!r}")
    radius, kernel = _KERNELS[name]
    each = 1 / scale
    wide = each.maximum(1) if op.attributes.get("antialias", True) else each.like(1)
    row, column = (iota(r, (n, m), axis, np.int32).cast(F32) for axis in (0, 1))
    place = (column + 0.5) * each - each * shift
    first = (place - wide * radius - 0.5).op("ceil")
    last = (place + wide * radius - 0.5).op("floor")
    within = (row >= first) & (row <= last)
    made = where(within, kernel(abs((row + 0.5 - place) / wide)), 0)
    total = made.sum([0], keep=True)
    inside = (place >= 0) & (place <= n) & (abs(total) >= 1000 * np.finfo(np.float32).tiny)
    return where(inside, made / total, 0)


def _scale_and_translate(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, scale, shift = (array(r, operands[i]) for i in (0, 2, 3))
    made = x.cast(F32)
    for i, m in enumerate(r.sizes(operands[1])):
        numbers = (Array(r, r.element(line.value, i)) for line in (scale, shift))
        made = weighed(made, _kernel_weights(r, op, x.shape[1 + i], m, *numbers), 1 + i)
    return made.value


def _scale_and_translate_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dy, image, scale, shift = (array(r, o) for o in operands)
    made = dy.cast(F32)
    for i in range(2):
        numbers = (Array(r, r.element(line.value, i)) for line in (scale, shift))
        weights = _kernel_weights(r, op, image.shape[1 + i], dy.shape[1 + i], *numbers)
        made = weighed(made, weights.transpose((1, 0)), 1 + i)
    return made.cast(result_dtype(op)).value


def _area(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Average the area that each new pixel covers."""
    x = array(r, operands[0])
    if op.attributes.get("align_corners", False):
        r.unsupported("only align_corners=False")
    made = x.cast(F32)
    for axis, m in zip((1, 2), r.sizes(operands[1]), strict=True):
        n = x.shape[axis]
        each = filled(r, n, F32) / m
        row, column = (iota(r, (n, m), k, np.int32).cast(F32) for k in (0, 1))
        covered = (row + 1).minimum((column + 1) * each) - row.maximum(column * each)
        made = weighed(made, covered.maximum(0) / each, axis)
    return made.value


# -------------------------------------------------------------------------------------------------- pixels of elsewhere


def _mirrored(x: Array, n: Array, last: Array) -> Array:
    """Reflect a position beyond the edges, as often as necessary."""
    twice = n * 2
    turn = x - twice * (x / twice).op("floor")
    return where(turn >= n, twice - 1 - turn, turn).maximum(0).minimum(last)


def _wrapped(x: Array, n: Array, last: Array) -> Array:
    """Map a position into repeated copies of an axis, each of which begins at the last pixel of the previous one."""
    turn = last.maximum(1)
    low, high = x + n * ((-x / turn).op("floor") + 1), x - n * (x / turn).op("floor")
    return where(x < 0, low, where(x > last, high, x)).maximum(0).minimum(last)


def _on_image(r: Reader, mode: str, x: Array, size: Dim) -> Array:
    """Map a position beyond the edges of an axis into the image."""
    n, last = filled(r, size, F32), filled(r, size - 1, F32)
    if mode == "CONSTANT":
        return x
    if mode == "NEAREST":
        return x.maximum(0).minimum(last)
    if mode == "WRAP":
        return _wrapped(x, n, last)
    if mode == "REFLECT":
        return _mirrored(x, n, last)
    r.unsupported(f"fill_mode {mode!r}")


def _projected(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Read each new pixel at the position to which a projection maps it."""
    image, transforms = array(r, operands[0]), array(r, operands[1])
    height, width = r.sizes(operands[2])
    fill = array(r, operands[3]).cast(image.dtype) if len(operands) > 3 else image.like(0)
    mode = op.attributes.get("fill_mode", "CONSTANT")
    batch, rows, columns, depth = image.shape
    flat = (batch, height, width)
    t = [transforms.slice(1, i, i + 1).expand(2) for i in range(8)]
    if transforms.shape[0] is not ONE:
        t = [x.broadcast((batch, ONE, ONE)) for x in t]
    y, x = (iota(r, flat, axis, np.int32).cast(F32) for axis in (1, 2))
    depth_of = t[6] * x + t[7] * y + 1
    column, row = ((t[i] * x + t[i + 1] * y + t[i + 2]) / depth_of for i in (0, 3))
    column, row = _on_image(r, mode, column, columns), _on_image(r, mode, row, rows)
    which = iota(r, flat, 0, I64).expand(3)

    def pixel(row: Array, column: Array) -> Array:
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        at = [where(inside, k, 0).cast(I64).expand(3) for k in (row, column)]
        found = image.gather(joined([which, *at], 3), 3)
        return where(inside.broadcast(found.shape, (0, 1, 2)), found, fill)

    if op.attributes["interpolation"] == "NEAREST":
        made = pixel(row.op("round_nearest_afz"), column.op("round_nearest_afz"))
    else:
        top, left = row.op("floor"), column.op("floor")
        shape = (*flat, depth)
        up, down, left_of, right_of = (
            x.broadcast(shape, (0, 1, 2)) for x in (top + 1 - row, row - top, left + 1 - column, column - left)
        )

        def line(row: Array) -> Array:
            return left_of * pixel(row, left).cast(F32) + right_of * pixel(row, left + 1).cast(F32)

        made = (up * line(top) + down * line(top + 1)).cast(image.dtype)
    nowhere = (depth_of == 0).broadcast(made.shape, (0, 1, 2))
    return where(nowhere, fill, made).value


HANDLERS: dict[str, Handler] = {
    "ImageProjectiveTransformV2": _projected,
    "ImageProjectiveTransformV3": _projected,
    "ResizeArea": _area,
    "ScaleAndTranslate": _scale_and_translate,
    "ScaleAndTranslateGrad": _scale_and_translate_grad,
}
