"""The sums in gradients of broadcast operands, whose axes are known only when sizes are.

TensorFlow asks for the axes. `Sum(gradient, axes)` is made for the operand's shape instead: an axis of n elements that
had m in the operand becomes m sums of n / m elements, whether m is 1, n or not known. A sum that keeps its axes has
that shape; the rank of another one is not known before `Reshape` says a shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.sizes.shapes import Bundle

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


class BroadcastAxes(Bundle):
    """The axes along which an operand of one shape was broadcast to match one of another."""

    own: Shape

    def __new__(cls, own: Shape, other: Shape) -> BroadcastAxes:
        made = super().__new__(cls, ())
        made.own = own
        return made


class Reduced(Bundle):
    """A sum over such axes."""

    value: Array

    def __new__(cls, value: Array) -> Reduced:
        made = super().__new__(cls, ())
        made.value = value
        return made

    def shaped(self, r: Reader, shape: Shape) -> Array:
        """Return the sum in the shape of the operand."""
        x = self.value
        lead = x.rank - len(shape)
        x = x.sum(range(lead)) if lead else x
        for axis, (n, m) in enumerate(zip(x.shape, shape, strict=True)):
            if r.facts.equal(n, m) is Truth.YES:
                continue
            if m is ONE:
                x = x.sum([axis], keep=True)
                continue
            each = n // r.evaluator.scalar.maximum(m, ONE)
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            x = x.reshape((*before, m, each, *after)).sum([axis + 1])
        return x.reshape(shape)
