"""Moments of elements, and vectors over an axis of features, of which norms are made."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.import_.handlers.arrays import Array


def moments(x: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    """Return the mean and the variance over some axes, which stay with size 1."""
    mean = x.mean(axes, keep=True)
    centred = x - mean
    return mean, (centred * centred).mean(axes, keep=True)


class Features:
    """The axis of features of tensors of one shape, for vectors over it."""

    def __init__(self, shape: Shape, axis: int):
        self.shape, self.axis = shape, axis
        self.others = [a for a in range(len(shape)) if a != axis]

    def spread(self, line: Array) -> Array:
        """Broadcast a vector over the whole tensor."""
        return line.broadcast(self.shape, (self.axis,))

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Return the mean and the variance of each feature."""
        mean, variance = moments(x, self.others)
        return mean.flat(), variance.flat()

    def sums(self, grad: Array, centred: Array) -> tuple[Array, Array]:
        """Sum a gradient, and its products with what a norm has centred, for each feature."""
        return grad.sum(self.others), (grad * centred).sum(self.others)
