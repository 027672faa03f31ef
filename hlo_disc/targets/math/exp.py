"""exp, expm1, tanh, erf and erfc in f32, over the whole range, without branches.

Coefficients come from tools/fit_polynomials.py. NaN gives NaN: clamps are written so that it passes.
"""

from __future__ import annotations

import math

from hlo_disc.targets.math.vecexpr import X

_LOG2E = 1 / math.log(2)
# log(2) in two parts, the first short enough that its products with exponents are exact
_LN2_HIGH = 0.693145751953125
_LN2_LOW = math.log(2) - _LN2_HIGH
# log2(e) is the f32 next to it and this
_LOG2E_LOW = 1.9259629911266175e-08
# adding it leaves n in the low bits, as the exponent of 2^n
_BIASED = 1.5 * 2.0**23 + 127
# where exp in f32 is surely 0 and surely infinite
_EXP_LOW, _EXP_HIGH = -104.0, 89.0

# fit_exp: exp(r) = 1 + r + r^2 (…) on |r| <= log(2)/2
_EXP = (0.49999994, 0.166665211, 0.0416682661, 0.00836868398, 0.00138209458)
# fit_expm1: exp(r) - 1 = r + r^2 (…) on |r| <= log(2)/2
_EXPM1 = (0.49999997, 0.166665465, 0.0416674353, 0.00836626161, 0.00138706574)
# fit_tanh: tanh(x)/x in x^2. The ends here and below are numbers where the rational, too, rounds to 1 or above
_TANH_END = 9.02300930
_TANH_P = (1, 0.136785015, 0.00386655889, 2.7971606e-05, 3.05008285e-08, -1.21510458e-11)
_TANH_Q = (1, 0.470118344, 0.0272393599, 0.000393550814, 1.28486727e-06)
# fit_erf: erf(x)/x in x^2
_ERF_END = 3.92199850
_ERF_P = (1.83452868, 0.301048994, 0.0882403404, 0.00624859193, 0.000614452525, 7.54477242e-06, -2.10883329e-08)
_ERF_Q = (1.62580872, 0.808734059, 0.185197338, 0.0251085162, 0.00212015724, 0.000101926817)
# fit_erfc: exp(a^2) erfc(a) in a, up to where erfc underflows
_ERFC_END = 10.1
_ERFC_P = (1, 1.23843014, 0.731624961, 0.22922875, 0.0327986442)
_ERFC_Q = (1, 2.36680984, 2.40227461, 1.32540739, 0.40632382, 0.0581333786)


def _reduce(x: X) -> tuple[X, X]:
    """Return n and r with x = n log(2) + r, n integral, |r| <= log(2)/2."""
    n = (x * _LOG2E).round()
    return n, n.fma(-_LN2_LOW, n.fma(-_LN2_HIGH, x))


def _exp_small(r: X) -> X:
    return r.horner((1.0, 1.0, *_EXP))


def _exp_by_machine(x: X, exp2: str) -> X:
    """Compute exp as 2^n 2^f with n + f = x log2(e): n is integral, and 2^n normal; f takes the rest."""
    biased = x.fma(_LOG2E, _BIASED).at_least(_BIASED - 126).at_most(_BIASED + 127)
    f = x.fma(_LOG2E_LOW, x.fma(_LOG2E, -(biased - _BIASED)))
    return x.code.each(exp2, f) * (biased.bits("i32") << 23).bits("f32")


def exp(x: X) -> X:
    if exp2 := x.code.machine.exp2:
        return _exp_by_machine(x, exp2)
    n, r = _reduce(x.at_least(_EXP_LOW).at_most(_EXP_HIGH))
    # What is masked is mostly far below: 0 is scaled at once, and a number until it is 0 takes a hundred times as long.
    return (x < _EXP_LOW).select(0.0, _exp_small(r)).scale(n)


def expm1(x: X) -> X:
    n, r = _reduce(x.at_least(-26.0).at_most(_EXP_HIGH))
    small = r.fma(r * r.horner(_EXPM1), r)
    # half of the result first: 2^n alone may overflow where the result does not
    half = (n - 1.0).power_of_two()
    whole = small.fma(half, half - 0.5) * 2.0
    return (x.abs() < 2.0**-25).select(x, whole)


def _odd_rational(x: X, end: float, p: tuple[float, ...], q: tuple[float, ...]) -> X:
    """Compute x P(x^2) / Q(x^2) up to `end`, where the function has become 1; rounding must not take it beyond."""
    bounded = x.at_least(-end).at_most(end)
    u = bounded * bounded
    return (bounded * u.horner(p)).over(u.horner(q)).at_least(-1.0).at_most(1.0)


def tanh(x: X) -> X:
    return _odd_rational(x, _TANH_END, _TANH_P, _TANH_Q)


def erf(x: X) -> X:
    return _odd_rational(x, _ERF_END, _ERF_P, _ERF_Q)


def erfc(x: X) -> X:
    """Compute exp(-a^2) P(a)/Q(a) with a = |x|, reflected for negative x. The rounding error of a^2 goes into the
    exponent."""
    a = x.abs().at_most(_ERFC_END)
    square = a * a
    n, r = _reduce(-square)
    tail = (_exp_small(r - a.fma(a, -square)) * a.horner(_ERFC_P)).over(a.horner(_ERFC_Q))
    value = tail.scale(n)
    return (x < 0.0).select(2.0 - value, value)
