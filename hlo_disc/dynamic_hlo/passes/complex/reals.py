"""Real values of a graph under construction with Python's operators, so that formulas read as formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder

_EXPONENT = 52  # bits of a double below its exponent


class Real:
    """A value to compute with: numbers become constants of its shape and dtype; comparisons give boolean ones.

    roomy: a double that was a single, whose square neither overflows nor vanishes.
    """

    __slots__ = ("b", "loc", "roomy", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: GraphBuilder, value: Value, loc: str, roomy: bool = False):
        self.b, self.value, self.loc, self.roomy = b, value, loc, roomy

    def op(self, name: str, *others: Real | float, **attrs: Any) -> Real:
        operands = [self.value, *(self.like(x).value for x in others)]
        return Real(self.b, self.b.op(name, operands, self.loc, **attrs), self.loc, self.roomy)

    def like(self, x: Real | float) -> Real:
        if isinstance(x, Real):
            return x
        value = self.b.op("constant", [], self.loc, value=np.array(x, self.value.dtype))
        if self.value.shape:
            value = self.b.op("broadcast", [value], self.loc, shape=self.value.shape, dims=())
        return Real(self.b, value, self.loc, self.roomy)

    def __add__(self, other: Real | float) -> Real:
        return self.op("add", other)

    def __radd__(self, other: float) -> Real:
        return self.op("add", other)

    def __sub__(self, other: Real | float) -> Real:
        return self.op("subtract", other)

    def __rsub__(self, other: float) -> Real:
        return self.like(other).op("subtract", self)

    def __mul__(self, other: Real | float) -> Real:
        return self.op("multiply", other)

    def __rmul__(self, other: float) -> Real:
        return self.op("multiply", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self.op("divide", other)

    def __rtruediv__(self, other: float) -> Real:
        return self.like(other).op("divide", self)

    def __neg__(self) -> Real:
        return self.op("negate")

    def __abs__(self) -> Real:
        return self.op("abs")

    def __and__(self, other: Real | int) -> Real:
        return self.op("and", other)

    def __or__(self, other: Real | int) -> Real:
        return self.op("or", other)

    def __invert__(self) -> Real:
        return self.op("not")

    def __lshift__(self, other: int) -> Real:
        return self.op("shift_left", other)

    def __rshift__(self, other: int) -> Real:
        return self.op("shift_right_arithmetic", other)

    def __lt__(self, other: Real | float) -> Real:
        return self.op("compare", other, direction="LT")

    def __le__(self, other: Real | float) -> Real:
        return self.op("compare", other, direction="LE")

    def __gt__(self, other: Real | float) -> Real:
        return self.op("compare", other, direction="GT")

    def __ge__(self, other: Real | float) -> Real:
        return self.op("compare", other, direction="GE")

    def __eq__(self, other: Real | float) -> Real:  # type: ignore[override]
        return self.op("compare", other, direction="EQ")

    def __ne__(self, other: Real | float) -> Real:  # type: ignore[override]
        return self.op("compare", other, direction="NE")


def where(condition: Real, x: Real | float, y: Real | float) -> Real:
    """`x` where the condition holds, `y` elsewhere; at least one is a `Real`."""
    some = x if isinstance(x, Real) else y
    assert isinstance(some, Real)
    x, y = some.like(x), some.like(y)
    return Real(x.b, x.b.op("select", [condition.value, x.value, y.value], x.loc), x.loc, x.roomy)


def maximum(x: Real, y: Real | float) -> Real:
    return x.op("maximum", y)


def minimum(x: Real, y: Real | float) -> Real:
    return x.op("minimum", y)


def clamp(low: float, x: Real, high: float) -> Real:
    return x.like(low).op("clamp", x, high)


def is_nan(x: Real) -> Real:
    return x != x


def is_inf(x: Real) -> Real:
    return abs(x) == float("inf")


def is_finite(x: Real) -> Real:
    return x.op("is_finite")


# Floats as bits.


def bits(x: Real) -> Real:
    return x.op("bitcast_convert", dtype=np.dtype(f"int{8 * x.value.dtype.itemsize}"))


def from_bits(x: Real) -> Real:
    return x.op("bitcast_convert", dtype=np.dtype(f"float{8 * x.value.dtype.itemsize}"))


def copysign(x: Real | float, sign: Real) -> Real:
    """|x| with the sign of another float, be that a zero."""
    pattern = bits(sign)
    lowest = np.iinfo(pattern.value.dtype).min
    return from_bits(bits(abs(sign.like(x))) | (pattern & int(lowest)))


def exponent(x: Real) -> Real:
    """The e with 2**e <= |x| < 2**(e+1), as i64, brought between -1022 (zero) and 1022 (infinity, NaN)."""
    return minimum(maximum((bits(abs(x)) >> _EXPONENT) - 1023, -1022), 1022)


def power_of_two(e: Real) -> Real:
    """2**e for -1022 <= e <= 1023."""
    return from_bits((e + 1023) << _EXPONENT)


def halves(x: Real) -> tuple[Real, Real]:
    """x as the sum of two doubles of 26 and 27 bits: products of these are exact, whether or not they are fused."""
    high = from_bits(bits(x) & -(2**27))
    return high, x - high


def exact_sum(first: Real, *terms: Real | float) -> Real:
    """The sum, rounded about once. Terms that are products must be exact."""
    total, lost = first, first.like(0)
    for term in terms:
        x = first.like(term)
        s = total + x
        rest = s - total
        lost = lost + ((total - (s - rest)) + (x - rest))
        total = s
    return total + lost
