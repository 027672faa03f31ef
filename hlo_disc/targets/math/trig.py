"""sin, cos, tan and atan2 in f32, over the whole range.

Arguments up to 10^5 are reduced in f32 with pi/2 in three parts; larger ones exactly, with 2/pi in 29-bit pieces and
f64 (after Payne and Hanek), in code that runs only when a lane needs it. Coefficients: tools/fit_polynomials.py.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math.vecexpr import X

_TWO_OVER_PI = 2 / math.pi
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_PI = (3.1415927410125732, -8.742277657347586e-08)
_REDUCED_IN_F32 = 1.0e5
# fit_two_over_pi: piece k is worth 2^-29(k + 1); seven reach below the last bit that any f32 needs
_PIECES = (341782637, 423170132, 352195499, 488592205, 461485765, 90590992, 478285810)
_PIECE_BITS = 29
# adding this leaves an integer in a float's low bits
_TO_BITS = 12582912.0

# fit_sin: sin(r) = r + r^3 (…), cos(r) = 1 - r^2/2 + r^4 (…) in r^2, on |r| <= pi/4
_SIN = (-0.166666672, 0.0083333794, -0.000198530644, 2.83251006e-06)
_COS = (0.0416666456, -0.00138873013, 2.44306702e-05)
# fit_atan: atan(t) = t + t^3 (…) in t^2, on [0, 1]
_ATAN = (
    -0.333332986, 0.199985296, -0.142640159, 0.109508812, -0.0839931443,
    0.0578817166, -0.0310976002, 0.0108692329, -0.00178300741,
)  # fmt: skip


def _quadrant(x: X) -> tuple[X, X]:
    """Return n in the low bits of an integer, and r, with x = n pi/2 + r and |r| <= pi/4; r is NaN for infinities and
    NaN."""
    n = (x * _TWO_OVER_PI).round()
    r = x
    for part in _HALF_PI:
        r = n.fma(-part, r)
    n, r = x.code.rare(x.abs() > _REDUCED_IN_F32, [n, r], lambda: _exact_quadrant(x))
    return (n + _TO_BITS).bits("i32"), r


def _exact_quadrant(x: X) -> list[X]:
    """Return n modulo 4 and r for any x, from x * 2/pi modulo 4, in f64."""
    wide = x.to("f64")
    high = low = x.code.constant(0.0, "f64")
    for k, piece in enumerate(_PIECES):
        product = wide * math.ldexp(piece, -_PIECE_BITS * (k + 1))  # exact: 24 bits times 29
        part = product - (product * 0.25).round() * 4.0
        # high + low is the sum without rounding errors (Knuth's two-sum)
        total = high + part
        virtual = total - high
        low = low + ((high - (total - virtual)) + (part - virtual))
        high = total
    n = high.round()
    return [n.to("f32"), (((high - n) + low) * (math.pi / 2)).to("f32")]


def _sin_cos(r: X) -> tuple[X, X]:
    square = r * r
    return (square * r).fma(square.horner(_SIN), r), square.fma(square.fma(square.horner(_COS), -0.5), 1.0)


def _of_quadrant(n: X, r: X) -> X:
    """Return sin(r + n pi/2)."""
    sine, cosine = _sin_cos(r)
    value = (n & 1).equals(0).select(sine, cosine)
    return (value.bits("i32") ^ ((n & 2) << 30)).bits("f32")


def sin(x: X) -> X:
    n, r = _quadrant(x)
    # the reduction loses the sign of -0, and has nothing to do for what small numbers are
    return (x.abs() < 2.0**-13).select(x, _of_quadrant(n, r))


def cos(x: X) -> X:
    n, r = _quadrant(x)
    return _of_quadrant(n + 1, r)


def tan(x: X) -> X:
    n, r = _quadrant(x)
    sine, cosine = _sin_cos(r)
    even = (n & 1).equals(0)
    value = even.select(sine, -cosine) / even.select(cosine, sine)
    return (x.abs() < 2.0**-13).select(x, value)


def atan2(y: X, x: X) -> X:
    """Compute atan(min/max) of the magnitudes, then move it to the octant."""
    height, width = y.abs(), x.abs()
    steep = height > width
    low, high = steep.select(width, height), steep.select(height, width)
    # equal sizes: 1, infinities too; but two zeros make 0
    equal = high.equals(0.0).select(high, 1.0)
    t = width.equals(height).select(equal, low / high)
    square = t * t
    angle = (t * square).fma(square.horner(_ATAN), t)
    angle = steep.select(_HALF_PI[0] - (angle - _HALF_PI[1]), angle)
    left = (x.bits("i32") < 0).select(_PI[0] - (angle - _PI[1]), angle)
    return left.with_sign_of(y)
