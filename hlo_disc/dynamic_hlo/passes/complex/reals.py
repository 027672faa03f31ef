"""The helpers of complex formulas beside arithmetic: floats as bits, and sums that lose no digits."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.expr import Array, PlainMaker

_EXPONENT = 52  # bits of a double below its exponent


class RealMaker(PlainMaker):
    """A maker of real numbers. roomy: they are doubles that were singles, whose squares neither overflow nor vanish."""

    def __init__(self, builder: GraphBuilder, loc: str, roomy: bool = False):
        super().__init__(builder, loc)
        self.roomy = roomy


def is_roomy(x: Array) -> bool:
    return isinstance(x.r, RealMaker) and x.r.roomy


def clamp(low: float, x: Array, high: float) -> Array:
    return x.like(low).op("clamp", x, high)


def is_nan(x: Array) -> Array:
    return x != x


def is_inf(x: Array) -> Array:
    return abs(x) == float("inf")


def is_finite(x: Array) -> Array:
    return x.op("is_finite")


# Floats as bits.


def bits(x: Array) -> Array:
    return x.op("bitcast_convert", dtype=np.dtype(f"int{8 * x.dtype.itemsize}"))


def from_bits(x: Array) -> Array:
    return x.op("bitcast_convert", dtype=np.dtype(f"float{8 * x.dtype.itemsize}"))


def copysign(x: Array | float, sign: Array) -> Array:
    """|x| with the sign of another float, be that a zero."""
    pattern = bits(sign)
    lowest = np.iinfo(pattern.dtype).min
    return from_bits(bits(abs(sign.like(x))) | (pattern & int(lowest)))


def exponent(x: Array) -> Array:
    """The e with 2**e <= |x| < 2**(e+1), as i64, brought between -1022 (zero) and 1022 (infinity, NaN)."""
    return ((bits(abs(x)) >> _EXPONENT) - 1023).maximum(-1022).minimum(1022)


def power_of_two(e: Array) -> Array:
    """2**e for -1022 <= e <= 1023."""
    return from_bits((e + 1023) << _EXPONENT)


def halves(x: Array) -> tuple[Array, Array]:
    """x as the sum of two doubles of 26 and 27 bits: products of these are exact, whether or not they are fused."""
    high = from_bits(bits(x) & -(2**27))
    return high, x - high


def exact_sum(first: Array, *terms: Array | float) -> Array:
    """The sum, rounded about once. Terms that are products must be exact."""
    total, lost = first, first.like(0)
    for term in terms:
        x = first.like(term)
        s = total + x
        rest = s - total
        lost = lost + ((total - (s - rest)) + (x - rest))
        total = s
    return total + lost
