"""Simulated quantization: numbers are rounded to a grid, and stay floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import F32, where
from hlo_disc.import_.handlers.arrays import Array, array, filled, together
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import ints

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


class Grid:
    """The grid of the quantized numbers: from `low` to `high` in steps of `step`, with 0 among them.

    least, most: the range that the grid shall cover, one for all or one for each channel of the last axis.
    """

    def __init__(self, op: Node, least: Array, most: Array):
        first = 1 if op.attributes.get("narrow_range", False) else 0
        last = (1 << op.attributes.get("num_bits", 8)) - 1
        self.least, self.most = least, most
        self.step = (most - least) / (last - first)
        zero = first - least / self.step
        zero = where(zero < first, first, where(zero > last, last, zero.op("round_nearest_afz")))
        self.low, self.high = (first - zero) * self.step, (last - zero) * self.step

    @property
    def is_empty(self) -> Array:
        """Whether the range has no number but 0; then all results are 0."""
        return (self.least == 0) & (self.most == 0)

    def rounded(self, x: Array) -> Array:
        inverse = 1 / self.step
        zero = (-self.low * inverse + 0.5).op("floor")
        within = x.minimum(self.high).maximum(self.low) - self.low
        made = (within * inverse - zero + 0.5).op("floor") * self.step
        return where(self.is_empty, 0, made)

    def gradients(self, dy: Array, x: Array, axes: Sequence[int]) -> list[Array]:
        """Compute the gradients of the operand and of both ends of the grid, which get those beyond them."""
        (empty, low, high, *_) = together([self.is_empty, self.low, self.high, x])
        zero = dy.like(0)
        inside = ((x >= low) & (x <= high)) | empty
        below, above = (where(beyond & ~empty, dy, zero) for beyond in (x < low, x > high))
        return [where(inside, dy, zero), below.sum(axes), above.sum(axes)]


def _grid(r: Reader, op: Node, x: Array, ends: Sequence[Operand]) -> Grid:
    """Make the grid from its ends, which are operands or attributes."""
    if not ends:
        return Grid(op, *(filled(r, op.attributes.get(name, d), F32, ()) for name, d in (("min", -6.0), ("max", 6.0))))
    least, most = (array(r, o) for o in ends)
    for end in (least, most):
        if end.rank:
            r.equal(end.shape[0], x.shape[-1], "the ends and the channels")
    return Grid(op, least, most)


def _fake(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return _grid(r, op, x, operands[1:]).rounded(x).value


def _fake_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dy, x = (array(r, o) for o in operands[:2])
    grid = _grid(r, op, x, operands[2:])
    made = grid.gradients(dy, x, range(x.rank - grid.least.rank))
    return [y.value for y in made[: len(op.results)]]


# ------------------------------------------------------------------------------------------- quantized and back at once


def _and_back(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Round to a grid with 0, symmetric except for the last number; its ends are given, or those of the operand."""
    x = array(r, operands[0])
    flag = op.attributes.get
    bits = ints(r, operands[3], "the number of bits")[0] if len(operands) > 3 else flag("num_bits", 8)
    signed, given, axis = flag("signed_input", True), flag("range_given", False), flag("axis", -1)
    lowest = (-(1 << (bits - 1)) + bool(flag("narrow_range", False))) if signed else 0
    highest = (1 << (bits - signed)) - 1
    axes = [a for a in range(x.rank) if a != axis]
    if given:
        ends = [array(r, o) for o in operands[1:3]]
    else:
        ends = [x.reduce(kind, axes) if axes else x for kind in ("min", "max")]
    least, most = (_along(end, x, axis) for end in ends)
    far = x.like(np.finfo(x.dtype).max)
    scales = [where(end * n > 0, n / end, far) for end, n in ((least, lowest), (most, highest))]
    by_least = scales[0] < scales[1]
    scale = where(by_least, scales[0], scales[1])
    inverse = where(by_least, least / lowest if lowest else least, most / highest)
    if given:
        high, low = where(by_least, inverse * highest, most), where(by_least, least, inverse * lowest)
        x = x.minimum(high).maximum(low)
    return (_rounding(op)(x * scale) * inverse).value


def _along(end: Array, x: Array, axis: int) -> Array:
    """Spread one number for each index of an axis over `x`; for axis -1 one number is used for all."""
    return end if axis == -1 or not end.rank else end.broadcast(x.shape, (axis,))


def _rounding(op: Node) -> Callable[[Array], Array]:
    if op.attributes.get("round_mode", "HALF_TO_EVEN") == "HALF_UP":
        return lambda x: (x + 0.5).op("floor")
    return lambda x: x.op("round_nearest_even")


def _and_back_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradients: an element inside of the range keeps its own; the ends of the range have none."""
    dy, x, least, most = (array(r, o) for o in operands)
    low, high = (_along(end, x, op.attributes.get("axis", -1)) for end in (least, most))
    inside = where((x >= low) & (x <= high), dy, 0)
    return [inside.value, *(filled(r, 0, end.dtype, end.shape).value for end in (least, most))]


HANDLERS: dict[str, Handler] = {
    **{f"FakeQuantWithMinMax{kind}": _fake for kind in ("Args", "Vars", "VarsPerChannel")},
    **{f"FakeQuantWithMinMax{kind}Gradient": _fake_grad for kind in ("Args", "Vars", "VarsPerChannel")},
    **{f"QuantizeAndDequantizeV{number}": _and_back for number in (2, 3, 4)},
    "QuantizeAndDequantizeV4Grad": _and_back_grad,
}
