"""erf and erfc in f64, over the whole range.

Up to 1 erf is its Taylor series, cut where what follows is below a quarter of an ulp. erfc(a) is
exp(-a^2) h(t) / (1 + 2a) with a polynomial h in t = (a - 7/2)/(a + 7/2) (M. Shepherd and J. Laframboise, "Chebyshev
approximation of (1 + 2x) exp(x^2) erfc x", Mathematics of Computation 36, 1981); its coefficients come from
tools/fit_polynomials.py.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math import double_double as pairs
from hlo_disc.targets.math.double import exp_of_pair, scale
from hlo_disc.targets.math.vecexpr import X

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
# erf(x) = x + x (2/sqrt(pi) - 1 + 2/sqrt(pi) (-x^2/3 + …)) on |x| <= 1
_ERF = (
    _TWO_OVER_ROOT_PI - 1,
    *(_TWO_OVER_ROOT_PI * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(1, 20)),
)
# below it erfc is 1 - erf
_ERFC_START = 0.46875
# from here on erfc is 0
_ERFC_END = 27.5
_CENTRE = 3.5
# fit_erfc_double: the first one with what its double leaves out, then the others
_H = (1.2423492448711544, -1.0736691223651247e-17)
_H_REST = (
    -0.14000918013761943, -0.010555596332218217, 0.09751909515325947, -0.11508959816019736,
    0.08798315382483066, -0.04882332582773932, 0.019099330943080722, -0.004215019910349067,
    -0.0003022678849193838, 0.000564384441232562, -0.00012151237088670324, -4.278236365300391e-05,
    2.4260723806260612e-05, 2.3287726991593343e-06, -3.8138584728290544e-06, -4.5245646591078344e-08,
    5.993672763397835e-07, -6.605925794784062e-09, -9.237099257369634e-08, -3.924686148329071e-10,
    1.0174190365166884e-08, 3.007177103536736e-10,
)  # fmt: skip


def _erf_small(x: X) -> X:
    return x.fma((x * x).horner(_ERF), x)


def _erfc_large(a: X) -> X:
    """Compute erfc from _ERFC_START on."""
    code = a.code
    a = a.at_most(_ERFC_END)
    square, error = pairs.two_product(a, a)
    n, one, rest = exp_of_pair(-square, -error)
    t = (a - _CENTRE) / (a + _CENTRE)
    h, h_rest = pairs.ordered_sum(code.constant(_H[0], "f64"), t * t.horner(_H_REST))
    over = pairs.multiply((one, rest), (h, h_rest + _H[1]))
    high, low = pairs.divide(over, pairs.two_sum(a * 2.0, code.constant(1.0, "f64")))
    return scale(high + low, n)


def erf(x: X) -> X:
    a = x.abs()
    return (a < 1.0).select(_erf_small(x), (1.0 - _erfc_large(a)).with_sign_of(x))


def erfc(x: X) -> X:
    a = x.abs()
    value = _erfc_large(a)
    value = (x < 0.0).select(2.0 - value, value)
    return (a < _ERFC_START).select(1.0 - _erf_small(x), value)
