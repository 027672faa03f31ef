"""The sums of two f64 (high, low), for about 106 bits, by additions and products whose rounding errors are known.

T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18 (1971).
"""

from __future__ import annotations

from hlo_disc.targets.math.vecexpr import X

Pair = tuple[X, X]


def ordered_sum(x: X, y: X) -> Pair:
    """Add x + y where |x| >= |y|, or x is 0."""
    total = x + y
    return total, y - (total - x)


def two_sum(x: X, y: X) -> Pair:
    """Add x + y (D. E. Knuth)."""
    total = x + y
    virtual = total - x
    return total, (x - (total - virtual)) + (y - virtual)


def two_product(x: X, y: X | float) -> Pair:
    """Multiply x * y."""
    product = x * y
    return product, x.fma(y, -product)


def multiply(x: Pair, y: Pair) -> Pair:
    high, low = two_product(x[0], y[0])
    return ordered_sum(high, x[0].fma(y[1], x[1].fma(y[0], low)))


def divide(x: Pair, y: Pair) -> Pair:
    high = x[0] / y[0]
    rest = high.fma(-y[0], x[0]) + (x[1] - high * y[1])
    return high, rest / y[0]
