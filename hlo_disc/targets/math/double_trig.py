"""sin, cos, tan and atan2 in f64, over the whole range.

Arguments up to 2^30 are reduced with pi/2 in three parts (W. J. Cody and W. Waite, "Software manual for the elementary
functions", 1980); larger ones exactly, by the bits of 2/pi that matter (M. Payne and R. Hanek, "Radian reduction for
trigonometric functions", SIGNUM 18, 1983), in code that runs only when a lane needs it. Polynomials are Taylor series,
cut where what follows is below a quarter of an ulp.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math.double_double import Pair, divide, ordered_sum, two_product, two_sum
from hlo_disc.targets.math.vecexpr import X

_TWO_OVER_PI = 2 / math.pi
_HALF_PI = (math.pi / 2, 6.123233995736766e-17, -1.4973849048591698e-33)
_REDUCED_BY_PARTS = 2.0**30
# fit_two_over_pi: the first bits of 2/pi
_TWO_OVER_PI_BITS = 1184
_TWO_OVER_PI_DIGITS = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1d"
    "eb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b"
    "5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046",
    16,
)
# Words of 32 bits, the first for the least exponent that gets here.
_WORDS = [0, *((_TWO_OVER_PI_DIGITS >> k) & 0xFFFFFFFF for k in range(_TWO_OVER_PI_BITS - 32, -1, -32))]
_LEAST_EXPONENT = 1045
_LOW_WORD = 0xFFFFFFFF
_MANTISSA = (1 << 52) - 1
# adding it leaves an integer in the low bits
_TO_INTEGER = 1.5 * 2.0**52

# sin(r) = r + r^3 (-1/3! + …), cos(r) = 1 - r^2/2 + r^4 (1/4! - …) in r^2, on |r| <= pi/4
_SIN = tuple((-1) ** (k // 2) / math.factorial(k) for k in range(3, 19, 2))
_COS = tuple((-1) ** (k // 2) / math.factorial(k) for k in range(4, 18, 2))
# atan(u) = u + u^3 (-1/3 + …) in u^2, on |u| <= 1/8
_ATAN = tuple((-1) ** (k // 2) / k for k in range(3, 23, 2))
# atan(k/4), and what the double nearest to it leaves out
_ATAN_QUARTERS = (
    (0.24497866312686414, 1.0698755618734451e-17),
    (0.4636476090008061, 2.2698777452961687e-17),
    (0.6435011087932844, 1.5834785051444286e-17),
    (0.7853981633974483, 3.061616997868383e-17),
)


def _quadrant(x: X) -> tuple[X, X, X]:
    """Return n in the low bits of an integer, r and its rounding error with x = n pi/2 + r, |r| <= pi/4; r is NaN for
    inf."""
    n = (x * _TWO_OVER_PI).round()
    high, middle, low = _HALF_PI
    product, error = two_product(n, middle)
    r, left = two_sum(n.fma(-high, x), -product)  # the first part's product with n cancels without an error
    r, rest = ordered_sum(r, left - n.fma(low, error))
    n, r, rest = x.code.rare(x.abs() > _REDUCED_BY_PARTS, [n, r, rest], lambda: _exact_quadrant(x))
    return (n + _TO_INTEGER).bits("i64"), r, rest


def _exact_quadrant(x: X) -> list[X]:
    """Compute what `_quadrant` does for any |x| of at least 2^30, in integers.

    It takes four times the fraction of m F, where x is m 2^e.
    F are the bits of 2/pi from the one that is worth 2 when multiplied by 2^e; those before add multiples of 4.
    """
    bits = x.bits("i64")
    f = _two_over_pi_from(((bits >> 52) & 0x7FF) - _LEAST_EXPONENT)
    m = (bits & _MANTISSA) | (1 << 52)
    lower = [(m & _LOW_WORD) * word for word in f]
    upper = [(m >> 32) * word for word in f]
    parts = []  # of the fraction, 32 bits each, the last first
    carry: X | int = 0
    for k in range(len(f) - 1, -1, -1):
        column = (lower[k] & _LOW_WORD) + carry
        if k + 1 < len(f):
            column = column + ((lower[k + 1] >> 32) & _LOW_WORD) + (upper[k + 1] & _LOW_WORD)
        if k + 2 < len(f):
            column = column + (upper[k + 2] >> 32)
        parts.append(column & _LOW_WORD)
        carry = column >> 32
    first, second, third, fourth, *_ = reversed(parts)
    n = (first + (1 << 29)) >> 30
    first = first - (n << 30)
    a, b, c, d = (p.to("f64") * 2.0 ** (-32 * k) for k, p in enumerate((first, second, third, fourth), 1))
    (a, b), (c, d) = two_sum(a, b), two_sum(c, d)
    a, c = two_sum(a, c)
    a, b = ordered_sum(a, c + (b + d))
    r, rest = two_product(a, 4 * _HALF_PI[0])
    rest = a.fma(4 * _HALF_PI[1], b.fma(4 * _HALF_PI[0], rest))
    r = r + (x - x)  # NaN for infinities
    left = x < 0.0
    n = n.to("f64")
    return [left.select(-n, n), left.select(-r, r), left.select(-rest, rest)]


def _two_over_pi_from(bit: X) -> list[X]:
    """Return six words of 2/pi from a bit on, counted from the first of `_WORDS`."""
    code, word = bit.code, bit >> 5
    chosen: list[X | int] = list(_WORDS)
    for step in (16, 8, 4, 2, 1):
        far = ~(word & step).equals(0)
        padded = [*chosen, *[0] * step]
        chosen = [far.select(code.lift(padded[k + step], "i64"), padded[k]) for k in range(6 + step)]
    words = [code.lift(x, "i64") for x in chosen]
    shift = bit & 31
    return [((((x << 32) | y) << shift) >> 32) & _LOW_WORD for x, y in zip(words, words[1:], strict=False)]


def _sin_cos(r: X, rest: X) -> tuple[Pair, Pair]:
    """Compute both of r + rest."""
    square = r * r
    half = square * 0.5
    most, error = ordered_sum(r.code.constant(1.0, "f64"), -half)
    sine = (square * r).fma(square.horner(_SIN), rest - half * rest)
    cosine = (square * square).fma(square.horner(_COS), error - r * rest)
    return ordered_sum(r, sine), ordered_sum(most, cosine)


def _of_quadrant(n: X, r: X, rest: X) -> X:
    """Return sin(r + n pi/2)."""
    (sine, _), (cosine, _) = _sin_cos(r, rest)
    value = (n & 1).equals(0).select(sine, cosine)
    return (value.bits("i64") ^ ((n & 2) << 62)).bits("f64")


def sin(x: X) -> X:
    # the reduction loses the sign of -0, and has nothing to do for what small numbers are
    return (x.abs() < 2.0**-27).select(x, _of_quadrant(*_quadrant(x)))


def cos(x: X) -> X:
    n, r, rest = _quadrant(x)
    return _of_quadrant(n + 1, r, rest)


def tan(x: X) -> X:
    n, r, rest = _quadrant(x)
    sine, cosine = _sin_cos(r, rest)
    even = (n & 1).equals(0)
    above = [even.select(s, -c) for s, c in zip(sine, cosine, strict=True)]
    below = [even.select(c, s) for s, c in zip(sine, cosine, strict=True)]
    value, error = divide((above[0], above[1]), (below[0], below[1]))
    return (x.abs() < 2.0**-27).select(x, value + error)


def atan2(y: X, x: X) -> X:
    """Compute atan(min/max) of the magnitudes, from the nearest quarter, then move it to the octant."""
    height, width = y.abs(), x.abs()
    steep = height > width
    low, high = steep.select(width, height), steep.select(height, width)
    # equal sizes: 1, infinities too; but two zeros make 0
    equal, far = width.equals(height), high.equals(math.inf)
    low = equal.select(high.equals(0.0).select(high, 1.0), far.select(low * 0.0, low))
    high = (equal | far).select(1.0, high)
    # neither denormal numbers nor an overflow: both are exact
    scale = (high > 2.0**1000).select(x.code.constant(2.0**-100, "f64"), 1.0)
    scale = (high < 2.0**-900).select(2.0**100, scale)
    low, high = low * scale, high * scale
    quarter = (low / high * 4.0).round() * 0.25
    u = quarter.fma(-high, low) / quarter.fma(low, high)
    base = rest = x.code.constant(0.0, "f64")
    for k, (nearest, error) in enumerate(_ATAN_QUARTERS, 1):
        here = quarter.equals(k / 4)
        base, rest = here.select(nearest, base), here.select(error, rest)
    square = u * u
    angle = base + (u + (u * square).fma(square.horner(_ATAN), rest))
    angle = steep.select(_HALF_PI[0] - (angle - _HALF_PI[1]), angle)
    left = (x.bits("i64") < 0).select(2 * _HALF_PI[0] - (angle - 2 * _HALF_PI[1]), angle)
    return left.with_sign_of(y)
