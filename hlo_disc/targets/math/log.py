"""log, log1p, pow and cbrt in f32, over the whole range.

pow and cbrt go through log2 and exp2 in f64, whose spare bits take the place of error-free arithmetic.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math.vecexpr import X

_LN2_HIGH = 0.693145751953125
_LN2_LOW = math.log(2) - _LN2_HIGH
_SMALLEST_NORMAL = 2.0**-126
# the bits of sqrt(1/2), the lower end of the mantissas
_SQRT_HALF_BITS = 0x3F3504F3

# fit_log: log(1 + f) = f - f^2/2 + f^3 (…) on sqrt(1/2) - 1 <= f <= sqrt(2) - 1
_LOG = (0.333333313, -0.250008196, 0.200012416, -0.166234106, 0.142015859, -0.131595984, 0.127621427, -0.0763636231)

# fit_double: log2(m) = s P(s^2), s = (m - 1)/(m + 1), and 2^f on |f| <= 1/2, in f64, good to 1e-12
_LOG2_F64 = (
    2.8853900817900917, 0.9617966733339701, 0.5770835865835575, 0.41167261539963074, 0.3407321300581847,
)  # fmt: skip
EXP2_F64 = (
    1.0, 0.6931471805482127, 0.24022650698110348, 0.05550410935265525, 0.009618128616160532, 0.0013333454860962489,
    0.00015403825455809583, 1.5309156097361872e-05, 1.3178931794755044e-06,
)  # fmt: skip


def _split(x: X) -> tuple[X, X]:
    """Return e and m of a normal x = 2^e m with sqrt(1/2) <= m < sqrt(2)."""
    offset = x.bits("i32") - _SQRT_HALF_BITS
    return (offset >> 23).to("f32"), ((offset & 0x7FFFFF) + _SQRT_HALF_BITS).bits("f32")


def _split_any(x: X) -> tuple[X, X]:
    """Return e and m of a normal or denormal x = 2^e m with sqrt(1/2) <= m < sqrt(2)."""
    small = x < _SMALLEST_NORMAL
    e, m = _split(small.select(x * 2.0**23, x))
    return small.select(e - 23.0, e), m


def _log_rest(f: X) -> X:
    """Compute log(1 + f) - f."""
    square = f * f
    return square * f.fma(f.horner(_LOG), -0.5)


def _at_the_edges(x: X, value: X) -> X:
    """Fix log's values at 0, below it, at infinity and NaN."""
    below = x.equals(0.0).select(x.code.constant(-math.inf, "f32"), math.nan)
    return (x < math.inf).select((x > 0.0).select(value, below), (x > 0.0).select(x, math.nan))


def log(x: X) -> X:
    e, m = _split_any(x)
    f = m - 1.0
    value = e.fma(_LN2_HIGH, e.fma(_LN2_LOW, _log_rest(f)) + f)
    return _at_the_edges(x, value)


def log1p(x: X) -> X:
    whole = x + 1.0
    e, m = _split(whole)
    # f = (1 + x) 2^-e - 1 without the rounding error of 1 + x; a large x has none that matters
    shrink = (0.0 - e).at_least(-100.0).power_of_two()
    f = (x < 2.0**60).select(x.fma(shrink, shrink - 1.0), m - 1.0)
    value = e.fma(_LN2_HIGH, e.fma(_LN2_LOW, _log_rest(f)) + f)
    edges = _at_the_edges(whole, value)
    return (x.abs() < 2.0**-25).select(x, edges)


def log2_of_mantissa(m: X) -> X:
    """Compute log2 of an f64 between sqrt(1/2) and sqrt(2)."""
    s = (m - 1.0) / (m + 1.0)
    return s * (s * s).horner(_LOG2_F64)


def _log2_f64(x: X) -> X:
    """Compute log2 of an f32 >= 0 or NaN, in f64; -inf for 0, inf for inf."""
    e, m = _split_any(x)
    value = log2_of_mantissa(m.to("f64")) + e.to("f64")
    value = x.equals(0.0).select(-math.inf, value)
    return (x < math.inf).select(value, x.to("f64"))


def _exp2_f32(t: X) -> X:
    """Compute 2^t of an f64, rounded once to f32: overflow and gradual underflow are those of the conversion."""
    t = t.at_least(-160.0).at_most(130.0)
    n = t.round()
    return ((t - n).horner(EXP2_F64) * n.power_of_two()).to("f32")


def cbrt(x: X) -> X:
    return _exp2_f32(_log2_f64(x.abs()) * (1 / 3)).with_sign_of(x)


def pow(x: X, y: X) -> X:
    """Compute C's pow, its special values included."""
    exponent = _log2_f64(x.abs()) * y.to("f64")
    # 0 * inf: |x| is 1 and y infinite, or y is 0; both make 1
    exponent = exponent.is_nan().select(x.code.constant(0.0, "f64"), exponent)
    return of_size(x, y, _exp2_f32(exponent))


def of_size(x: X, y: X, size: X) -> X:
    """Compute pow with |x|^y known for all y but 0 and all |x| but 1."""
    whole = y.floor().equals(y)
    half = y * 0.5
    odd = whole & ~half.floor().equals(half)
    negative = x.bits("i32" if x.kind == "f32" else "i64") < 0
    value = (negative & odd).select(-size, size)
    nowhere = (x < 0.0) & ~whole & (x > -math.inf)
    value = (nowhere | x.is_nan() | y.is_nan()).select(math.nan, value)
    return (x.equals(1.0) | y.equals(0.0)).select(1.0, value)
