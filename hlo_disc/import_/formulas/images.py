"""Resizing: kernels by the distance of a pixel, and new pixels as sums of old ones, by a matrix for each axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.import_.handlers.arrays import Array, dot

if TYPE_CHECKING:
    import jax

Distance = TypeVar("Distance", Array, "jax.Array")

# The parameter of Keys' kernel: where an image is resized, and where its positions are on a grid of their own.
KEYS, STEEP = -0.5, -0.75


def cubic_near(d: Distance, a: float) -> Distance:
    """Return Keys' kernel up to a distance of 1, by its parameter."""
    return (d * (a + 2) - (a + 3)) * d * d + 1


def cubic_far(d: Distance, a: float) -> Distance:
    """Return Keys' kernel from a distance of 1 to one of 2."""
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


def cubic_taps(fraction: Distance, a: float) -> list[tuple[int, Distance]]:
    """List the four neighbours of a position: (offset from the whole position below, weight)."""
    f = fraction
    return [(-1, cubic_far(f + 1, a)), (0, cubic_near(f, a)), (1, cubic_near(1 - f, a)), (2, cubic_far(2 - f, a))]


def cubic(d: Array) -> Array:
    return where(d < 1, cubic_near(d, KEYS), where(d < 2, cubic_far(d, KEYS), 0))


def triangle(d: Array) -> Array:
    return (1 - d).maximum(0)


def weighed(x: Array, weights: Array, axis: int) -> Array:
    """Replace an axis of n elements by one of m, by a matrix (n, m)."""
    made = dot(x, weights, [axis], [0])
    return made.transpose((*range(axis), x.rank - 1, *range(axis, x.rank - 1)))
