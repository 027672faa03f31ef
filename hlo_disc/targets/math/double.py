"""The functions exp, expm1, tanh, log and log1p in f64, over the whole range, without branches.

The polynomials are Taylor series, cut where the rest is below a quarter of an ulp.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math.double_double import ordered_sum, two_sum
from hlo_disc.targets.math.vecexpr import X

_LOG2E = 1 / math.log(2)
# log(2) in two parts, the first so short that its products with exponents are exact, the second with what the double
# nearest to log(2) leaves out.
LN2_HIGH = round(math.log(2) * 2**32) / 2**32
LN2_LOW = (math.log(2) - LN2_HIGH) + 2.3190468138462996e-17
# where exp is surely 0 and surely infinite
_EXP_LOW, _EXP_HIGH = -746.0, 710.0
# adding it leaves an integer in the low bits
_TO_INTEGER = 1.5 * 2.0**52

# exp(r) = 1 + r + r^2 (1/2! + r/3! + …) on |r| <= log(2)/2
_EXP = tuple(1 / math.factorial(k) for k in range(2, 15))
# log(1 + f) = 2 atanh(s) = 2s + s (2/3 s^2 + 2/5 s^4 + …), s = f / (2 + f), |s| <= 3 - sqrt(8)
_ATANH = tuple(2 / k for k in range(3, 25, 2))
# the bits of sqrt(1/2), the lower end of the mantissas
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_MANTISSA = (1 << 52) - 1


def _reduce(x: X) -> tuple[X, X]:
    """Return n and r with x = n log(2) + r, n integral, |r| <= log(2)/2."""
    n = (x * _LOG2E).round()
    return n, n.fma(-LN2_LOW, n.fma(-LN2_HIGH, x))


def power_of_two(n: X) -> X:
    """Return 2^n for an integral n within the exponents of normal numbers."""
    return (((n + _TO_INTEGER).bits("i64") << 52) + (1023 << 52)).bits("f64")


def scale(x: X, n: X) -> X:
    """Return x * 2^n: the first factor keeps the product normal, so that only the second one rounds."""
    half = (n * 0.5).round()
    return x * power_of_two(half) * power_of_two(n - half)


def expm1_small(r: X) -> X:
    return r.fma(r * r.horner(_EXP), r)


def exp(x: X) -> X:
    n, r = _reduce(x.at_least(_EXP_LOW).at_most(_EXP_HIGH))
    return scale(expm1_small(r) + 1.0, n)


def exp_of_pair(high: X, low: X) -> tuple[X, X, X]:
    """Return n, x and a correction, where exp(high + low) is (x + correction) 2^n, for |high| up to 800."""
    n = (high * _LOG2E).round()
    # the first part's product with n cancels without an error
    r, rest = two_sum(n.fma(-LN2_HIGH, high), n.fma(-LN2_LOW, low))
    one, error = ordered_sum(high.code.constant(1.0, "f64"), expm1_small(r))
    return n, one, error + rest


def expm1(x: X) -> X:
    n, r = _reduce(x.at_least(-40.0).at_most(_EXP_HIGH))
    # half of the result first: 2^n alone may overflow where the result does not
    half = power_of_two(n - 1.0)
    whole = expm1_small(r).fma(half, half - 0.5) * 2.0
    return (x.abs() < 2.0**-54).select(x, whole)


def tanh(x: X) -> X:
    """Compute 1 - 2/(exp(2x) + 1), without its cancellation; 1 from 20 on."""
    twice = expm1(x.abs().at_most(20.0) * 2.0)
    return (twice / (twice + 2.0)).with_sign_of(x)


def _split(x: X) -> tuple[X, X]:
    """Return e and m of a normal x = 2^e m with sqrt(1/2) <= m < sqrt(2)."""
    offset = x.bits("i64") - _SQRT_HALF_BITS
    return (offset >> 52).to("i32").to("f64"), ((offset & _MANTISSA) + _SQRT_HALF_BITS).bits("f64")


def _log(e: X, f: X) -> X:
    """Compute e log(2) + log(1 + f), where f is exact and log(1 + f) = f - (h - s (h + rest)) with h = f^2/2."""
    s = f / (f + 2.0)
    square, h = s * s, f * f * 0.5
    rest = square * square.horner(_ATANH)
    return e.fma(LN2_HIGH, f - (h - s.fma(h + rest, e * LN2_LOW)))


def _at_the_edges(x: X, value: X) -> X:
    """Fix log's values at 0, below it, at infinity and NaN."""
    below = x.equals(0.0).select(x.code.constant(-math.inf, "f64"), math.nan)
    return (x < math.inf).select((x > 0.0).select(value, below), (x > 0.0).select(x, math.nan))


def split_any(x: X) -> tuple[X, X]:
    """Return e and m of a normal or denormal x = 2^e m with sqrt(1/2) <= m < sqrt(2)."""
    small = x < 2.0**-1022
    e, m = _split(small.select(x * 2.0**54, x))
    return small.select(e - 54.0, e), m


def log(x: X) -> X:
    e, m = split_any(x)
    return _at_the_edges(x, _log(e, m - 1.0))


def log1p(x: X) -> X:
    whole = x + 1.0
    e, m = _split(whole)
    # f = (1 + x) 2^-e - 1 without the rounding error of 1 + x; a large x has none that matters
    shrink = power_of_two((0.0 - e).at_least(-200.0))
    f = (x < 2.0**100).select(x.fma(shrink, shrink - 1.0), m - 1.0)
    edges = _at_the_edges(whole, _log(e, f))
    return (x.abs() < 2.0**-54).select(x, edges)
