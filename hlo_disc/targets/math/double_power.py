"""pow and cbrt in f64, over the whole range: pow by a logarithm of about 70 bits, cbrt by a Newton step."""

from __future__ import annotations

import math

from hlo_disc.targets.math import double_double as pairs
from hlo_disc.targets.math import log
from hlo_disc.targets.math.double import LN2_HIGH, LN2_LOW, exp_of_pair, power_of_two, scale, split_any
from hlo_disc.targets.math.double_double import Pair
from hlo_disc.targets.math.vecexpr import X

# log(1 + f) = 2s (1 + s^2/3 + s^4/5 + …), s = f / (2 + f); the first two terms with what their doubles leave out
_THIRD = (1 / 3, 1 / 3 * 2.0**-54)
_FIFTH = (1 / 5, -1 / 5 * 2.0**-54)
_REST = tuple(1 / k for k in range(7, 29, 2))
# beyond it every power is 0 or infinite
_MOST = 800.0


def _plus(constant: Pair | tuple[float, float], x: Pair) -> Pair:
    """Add a constant and a smaller number."""
    high, low = constant
    total, rest = pairs.ordered_sum(x[0].code.lift(high, "f64"), x[0])
    return total, rest + (x[1] + low)


def _log(x: X) -> Pair:
    """Compute log of a finite x > 0."""
    zero = x.code.constant(0.0, "f64")
    e, m = split_any(x)
    f = m - 1.0
    s = pairs.divide((f, zero), pairs.ordered_sum(x.code.constant(2.0, "f64"), f))
    z = pairs.multiply(s, s)
    q = _plus(_FIFTH, (z[0] * z[0].horner(_REST), zero))
    q = pairs.multiply(z, _plus(_THIRD, pairs.multiply(z, q)))
    twice = (s[0] * 2.0, s[1] * 2.0)
    more = pairs.multiply(twice, q)
    high, low = pairs.ordered_sum(twice[0], more[0])
    whole, rest = pairs.ordered_sum(e * LN2_HIGH, high)
    return pairs.ordered_sum(whole, rest + e.fma(LN2_LOW, low + (twice[1] + more[1])))


def pow(x: X, y: X) -> X:
    """Compute C's pow, its special values included."""
    size = x.abs()
    finite = (size > 0.0) & (size < math.inf)
    high, low = _log(finite.select(size, 1.0))
    # log 0, log inf and NaN
    edge = size.equals(0.0).select(-math.inf, size)
    high = finite.select(high, edge)
    product, error = pairs.two_product(high, y)
    error = (product.abs() < _MOST).select(low.fma(y, error), 0.0)
    # 0 * inf: |x| is 1 and y infinite, or y is 0; both make 1
    product = product.is_nan().select(0.0, product.at_least(-_MOST).at_most(_MOST))
    n, one, rest = exp_of_pair(product, error)
    return log.of_size(x, y, scale(one + rest, n))


def cbrt(x: X) -> X:
    """Compute 2^(log2(x)/3), good to 1e-12, then a Newton step whose error is known in full."""
    size = x.abs()
    e, m = split_any(size)
    third = (e * (1 / 3)).round()
    left = e - third * 3.0
    root = ((log.log2_of_mantissa(m) + left) * (1 / 3)).horner(log.EXP2_F64)
    square, square_error = pairs.two_product(root, root)
    cube, error = pairs.two_product(square, root)
    rest = (m * power_of_two(left) - cube) - square_error.fma(root, error)
    root = root + rest / (square * 3.0)
    value = root * power_of_two(third)
    # zeros, infinities and NaN are their own
    return ((size > 0.0) & (size < math.inf)).select(value, x + x).with_sign_of(x)
