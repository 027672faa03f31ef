"""Complex functions in real arithmetic: one formula per function.

A `wide` formula computes single precision in double, which has range and digits to spare, so that the plain formula is
right. Numbers of double precision are scaled by powers of two if squares would leave the range, and summed exactly if
digits would cancel. Zeros keep their signs, infinities follow C99 (Annex G). Sources: C99; W. Kahan, "Branch cuts for
complex elementary functions" (1987), for sqrt and tanh; T. Dekker, "A floating-point technique for extending the
available precision" (1971), for sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import Array, where
from hlo_disc.dynamic_hlo.passes.complex.reals import (
    clamp,
    copysign,
    exact_sum,
    exponent,
    halves,
    is_finite,
    is_inf,
    is_nan,
    is_roomy,
    power_of_two,
)
from hlo_disc.frozen import frozen

INF = math.inf
# By bytes of a real: a number whose exp is finite, and one to take from larger ones.
_LARGE = {4: 80.0, 8: 700.0}
_SHIFT = {4: 64.0, 8: 512.0}


class Complex(NamedTuple):
    """The real and the imaginary part."""

    re: Array
    im: Array


@frozen
class Formula:
    """build(*complex operands). wide: single precision is computed in double."""

    build: Callable[..., Complex | Array]
    wide: bool = True


def _fn(name: str) -> Callable[..., Array]:
    return lambda x, *others: x.op(name, *others)


exp, expm1, log = map(_fn, ("exponential", "exponential_minus_one", "log"))
sin, cos, sqrt, cbrt, atan2 = map(_fn, ("sine", "cosine", "sqrt", "cbrt", "atan2"))


def _where(condition: Array, x: Complex, y: Complex) -> Complex:
    return Complex(where(condition, x.re, y.re), where(condition, x.im, y.im))


def _infinite(z: Complex) -> Array:
    return is_inf(z.re) | is_inf(z.im)


def _largest(z: Complex) -> Array:
    return abs(z.re).maximum(abs(z.im))


def _scaled(z: Complex, even: bool = False) -> tuple[Complex, Array | None]:
    """(w, e) with z = w * 2**e and the larger part of w from 1 to 2 (to 4 for an even e); (z, None) for a roomy z."""
    if is_roomy(z.re):
        return z, None
    e = exponent(_largest(z))
    if even:
        e = e & -2
    factor = power_of_two(-e)
    return Complex(z.re * factor, z.im * factor), e


# -------------------------------------------------------------------------------------------------------- arithmetic


def multiply(a: Complex, b: Complex) -> Complex:
    return Complex(a.re * b.re - a.im * b.im, a.im * b.re + a.re * b.im)


def _divide(a: Complex, b: Complex) -> Complex:
    """Infinities count as directions, with an infinite or vanishing factor."""
    (n, up), (d, down) = (_scaled(z) for z in (a, b))
    endless = _infinite(a), _infinite(b)
    factor = where(endless[0], INF, where(endless[1], b.re.like(0.0), 1.0))
    factor = where(endless[0] & endless[1], math.nan, factor)
    n, d = _direction(n, endless[0]), _direction(d, endless[1])
    square = d.re * d.re + d.im * d.im
    re, im = n.re * d.re + n.im * d.im, n.im * d.re - n.re * d.im
    if is_roomy(a.re):  # digits to spare
        factor = factor / square
    else:
        re, im = re / square, im / square
    if up is not None and down is not None:  # in two steps, neither of which leaves the range unless the result does
        e = up - down
        first, second = power_of_two(e >> 1), power_of_two(e - (e >> 1))
        re, im = re * first * second, im * first * second
    infinity = copysign(INF, b.re)
    by_zero = Complex(infinity * a.re, infinity * a.im)
    return _where((b.re == 0) & (b.im == 0), by_zero, Complex(re * factor, im * factor))


def _direction(z: Complex, endless: Array) -> Complex:
    """Return z, with infinite parts as 1 and finite ones as 0 where `endless`. Signs stay."""
    return Complex(*(where(endless, clamp(-1.0, x, 1.0) * where(is_inf(x), x.like(1.0), 0.0), x) for x in z))


def _abs(z: Complex) -> Array:
    w, e = _scaled(z)
    size = sqrt(w.re * w.re + w.im * w.im)
    return where(_infinite(z), INF, size if e is None else size * power_of_two(e))


def _sign(z: Complex) -> Complex:
    w, _ = _scaled(z)
    size = sqrt(w.re * w.re + w.im * w.im)
    return _where((z.re == 0) & (z.im == 0), z, Complex(w.re / size, w.im / size))


def _first(before: Callable[[Array, Array], Array]) -> Callable[[Complex, Complex], Complex]:
    """The one whose parts come first in lexicographic order; one with a NaN before all others."""

    def choose(a: Complex, b: Complex) -> Complex:
        taken = before(a.re, b.re) | ((a.re == b.re) & before(a.im, b.im)) | is_nan(a.re) | is_nan(a.im)
        return _where(taken & ~(is_nan(b.re) | is_nan(b.im)) | is_nan(a.re) | is_nan(a.im), a, b)

    return choose


# ------------------------------------------------------------------------------------------- exponentials, logarithms


def _exp(z: Complex) -> Complex:
    """Infinite when both cosine and sine times exp(re) are: exp alone may overflow before."""
    growth, factor = _exp_in_range(z.re)
    re, im = growth * cos(z.im) * factor, growth * sin(z.im) * factor
    direction = is_finite(z.im)
    re = where(direction, re, where(z.re == INF, INF, where(z.re == -INF, 0.0, re)))
    im = where(z.re == -INF, copysign(0.0, z.im), im)
    return Complex(re, where(z.im == 0, z.im, im))


def _exp_in_range(x: Array) -> tuple[Array, Array | float]:
    """(e, f) with exp(x) = e * f, e finite as long as exp(x) times something in x's precision may be."""
    if is_roomy(x):
        return exp(x), 1.0
    size = x.dtype.itemsize
    large = x > _LARGE[size]
    return exp(where(large, x - _SHIFT[size], x)), where(large, x.like(math.exp(_SHIFT[size])), 1.0)


def _expm1(z: Complex) -> Complex:
    whole = _exp(z)
    half = sin(0.5 * z.im)
    re = expm1(z.re) * cos(z.im) - 2.0 * half * half
    return Complex(where(abs(z.re) > _LARGE[8], whole.re - 1.0, re), whole.im)


def _squares(*parts: Array) -> list[Array]:
    """The sum of squares of doubles as a sum of exact products."""
    terms = []
    for high, low in map(halves, parts):
        terms += [high * high, 2.0 * high * low, low * low]
    return terms


def _excess(z: Complex) -> Array:
    """|z|**2 - 1 for z near the unit circle."""
    large, small = _largest(z), abs(z.re).minimum(abs(z.im))
    if is_roomy(z.re):
        return (large - 1.0) * (large + 1.0) + small * small
    return exact_sum(large.like(-1.0), *_squares(large, small))


def _log_abs(z: Complex, excess: Array) -> Array:
    """log|z|, near the unit circle from `excess`, |z|**2 - 1, in which digits cancel."""
    (w, e), large = _scaled(z), _largest(z)
    near = (large > 0.6) & (large < 1.5)
    half = 0.5 * _log_near_one(near, excess, w.re * w.re + w.im * w.im)
    if e is not None:
        half = where(near, half, half + e.cast(half.dtype) * math.log(2))
    return where(_infinite(z), INF, half)


def _log_near_one(near: Array, excess: Array, far: Array) -> Array:
    """log(1 + excess) where `near`, log(far) elsewhere. That 1 + excess is rounded is made up for to first order."""
    x = where(near, 1.0 + excess, far)
    found = log(x)
    return where(near, where(x == 1.0, excess, found * (excess / (x - 1.0))), found)


def _angle(z: Complex) -> Array:
    """The angle of a number, in its own precision: nothing cancels in it."""
    if not is_roomy(z.re):
        return atan2(z.im, z.re)
    im, re = (x.cast(np.float32) for x in (z.im, z.re))
    return atan2(im, re).cast(z.re.dtype)


def _log(z: Complex) -> Complex:
    return Complex(_log_abs(z, _excess(z)), _angle(z))


def _log1p(z: Complex) -> Complex:
    x, y = z
    moved = Complex(x + 1.0, y)
    excess = x * (x + 2.0) + y * y if is_roomy(x) else exact_sum(2.0 * x, *_squares(x, y))
    return Complex(_log_abs(moved, excess), _angle(moved))


def _logistic(z: Complex) -> Complex:
    """1 / (1 + exp(-z)), in terms of exp(-|re|), which is at most 1."""
    e, c, s = exp(-abs(z.re)), cos(z.im), sin(z.im)
    cosine, sine = e * c, e * s
    size = (1.0 + cosine) * (1.0 + cosine) + sine * sine
    return Complex(where(z.re < 0, e * (c + e), 1.0 + cosine) / size, sine / size)


def _power(a: Complex, b: Complex) -> Complex:
    size, angle = _log_abs(a, _excess(a)), atan2(a.im, a.re)
    growth, factor = _exp_in_range(b.re * size - b.im * angle)
    turn = b.re * angle + b.im * size
    result = Complex(growth * cos(turn) * factor, growth * sin(turn) * factor)
    one = Complex(size.like(1.0), size.like(0.0))
    of_zero = _where((b.re == 0) & (b.im == 0), one, Complex(size.like(0.0), size.like(0.0)))
    return _where((a.re == 0) & (a.im == 0) & ~(b.re < 0), of_zero, result)


# -------------------------------------------------------------------------------------------------------------- roots


def _sqrt(z: Complex) -> Complex:
    w, e = _scaled(z, even=True)
    long = sqrt(0.5 * (abs(w.re) + sqrt(w.re * w.re + w.im * w.im)))
    if e is not None:
        long = long * power_of_two(e >> 1)
    short = where(long == 0, 0.0, abs(z.im) / (2.0 * long))
    right = z.re >= 0
    re, im = where(right, long, short), where(right, short, long)
    endless = is_inf(z.im)
    return Complex(where(endless, INF, re), copysign(where(endless, INF, im), z.im))


def _rsqrt(z: Complex) -> Complex:
    root = _sqrt(z)
    square = root.re * root.re + root.im * root.im
    inverse = Complex(root.re / square, -root.im / square)
    zero, none = square.like(0.0), square.like(math.nan)
    result = _where(_infinite(z), Complex(zero, copysign(zero, -root.im)), inverse)
    return _where(square == 0, Complex(zero.like(INF), none), result)


def _cbrt(z: Complex) -> Complex:
    size, angle = cbrt(_abs(z)), atan2(z.im, z.re) / 3.0
    return Complex(size * cos(angle), size * sin(angle))


# -------------------------------------------------------------------------------------------------- circles, hyperbolas


def _cosh_sinh(x: Array) -> tuple[Array, Array]:
    """cosh and sinh of numbers between -700 and 700."""
    e = expm1(abs(x))
    rest = e / (e + 1.0)
    return 0.5 * (e * rest) + 1.0, copysign(0.5 * (e + rest), x)


def _hyperbolic(x: Array) -> tuple[Array, Array, Array | float]:
    """(c, s, f) with cosh(x) = c * f and sinh(x) = s * f."""
    cosh, sinh = _cosh_sinh(x.minimum(_LARGE[8]).maximum(-_LARGE[8]))
    if is_roomy(x):  # past 700 both are infinite in single precision
        return cosh, sinh, 1.0
    e, factor = _exp_in_range(abs(x))
    far = abs(x) > _LARGE[8]
    return where(far, 0.5 * e, cosh), where(far, copysign(0.5 * e, x), sinh), factor


def _sine(z: Complex) -> Complex:
    cosh, sinh, factor = _hyperbolic(z.im)
    re, im = sin(z.re) * cosh * factor, cos(z.re) * sinh * factor
    return Complex(where(z.re == 0, z.re, re), where(z.im == 0, z.im, im))


def _cosine(z: Complex) -> Complex:
    cosh, sinh, factor = _hyperbolic(z.im)
    re, im = cos(z.re) * cosh * factor, -(sin(z.re) * sinh * factor)
    zero = copysign(0.0, z.re) * copysign(1.0, -z.im)
    return Complex(re, where((z.re == 0) | (z.im == 0), zero, im))


def _tanh(z: Complex) -> Complex:
    cosh, sinh = _cosh_sinh(z.re.minimum(350.0).maximum(-350.0))
    c = cos(z.im)
    size = c * c + sinh * sinh
    re, im = sinh * cosh / size, sin(z.im) * c / size
    if not is_roomy(z.re):  # it vanishes
        im = where(abs(z.re) > 350.0, 0.0 * im, im)
    straight = is_inf(z.re)
    re, im = where(straight, copysign(1.0, z.re), re), where(straight & ~is_finite(z.im), 0.0, im)
    return Complex(where(z.re == 0, z.re, re), where(z.im == 0, z.im, im))


def _tan(z: Complex) -> Complex:
    turned = _tanh(Complex(-z.im, z.re))
    return Complex(turned.im, -turned.re)


def _atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + iy) / sqrt(x**2 + y**2))"""
    squares = [multiply(z, z) for z in (x, y)]
    size = _sqrt(Complex(squares[0].re + squares[1].re, squares[0].im + squares[1].im))
    re, im = _log(_divide(Complex(x.re - y.im, x.im + y.re), size))
    return Complex(im, -re)


FORMULAS: Mapping[str, Formula] = {
    "multiply": Formula(multiply, wide=False),
    "maximum": Formula(_first(Array.__gt__), wide=False),
    "minimum": Formula(_first(Array.__lt__), wide=False),
    "divide": Formula(_divide),
    "abs": Formula(_abs),
    "sign": Formula(_sign),
    "exponential": Formula(_exp, wide=False),
    "exponential_minus_one": Formula(_expm1),
    "log": Formula(_log),
    "log_plus_one": Formula(_log1p),
    "logistic": Formula(_logistic),
    "power": Formula(_power),
    "sqrt": Formula(_sqrt),
    "rsqrt": Formula(_rsqrt),
    "cbrt": Formula(_cbrt),
    "sine": Formula(_sine),
    "cosine": Formula(_cosine),
    "tan": Formula(_tan),
    "tanh": Formula(_tanh),
    "atan2": Formula(_atan2),
}
