"""Bessel and Airy functions and the scaled erfc, by approximations: those of the Cephes library, as in ATen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_disc.import_.aten.rows.numbers import bessel_coefficients as c
from hlo_disc.import_.aten.rows.numbers.special import function, zeta
from hlo_disc.import_.jax_later import jax, jnp

Function = Callable[[jax.Array], jax.Array]
_TWO_OVER_PI = 2 / np.pi

# erfc(x) * exp(x * x) * (1 + 2 x) of x >= 0: Chebyshev polynomials of (x - 3.75) / (x + 3.75), the first one halved.
_ERFCX = (
    2.3551578691348034, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189, -0.026658668435305753,
    0.009074997670705265, -0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05, 4.13902798607301e-06,
    7.74038306619849e-07, -2.1886401049234397e-07, 1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.25254814814874e-14,
    3.3478119482868056e-14, -1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17,
)  # fmt: skip


def _polynomial(x: jax.Array, coefficients: Sequence[float]) -> jax.Array:
    """Evaluate a polynomial; the first coefficient is that of the highest power."""
    return functools.reduce(lambda sum_, a: sum_ * x + a, coefficients[1:], jnp.full_like(x, coefficients[0]))


def _chebyshev(y: jax.Array, coefficients: Sequence[float]) -> jax.Array:
    """Evaluate Clenshaw's sum at twice the argument; the last coefficient is that of degree 0."""
    before, last, sum_ = jnp.zeros_like(y), jnp.zeros_like(y), jnp.full_like(y, coefficients[0])
    for a in coefficients[1:]:
        before, last, sum_ = last, sum_, y * sum_ - last + a
    return 0.5 * (sum_ - before)


def _wave(x: jax.Array, order: int, cosine: Function, sine: Function, sign: float) -> jax.Array:
    """Return the phase of a cosine and its amplitude, for x > 5."""
    part = functools.partial(lambda name: getattr(c, f"J{order}_{name}"))
    z = 25.0 / (x * x)
    p = _polynomial(z, part("PP")) / _polynomial(z, part("PQ"))
    q = _polynomial(z, part("QP")) / _polynomial(z, part("QQ"))
    phase = x - (np.pi / 4 if order == 0 else 3 * np.pi / 4)
    return (p * cosine(phase) + sign * 5.0 / x * q * sine(phase)) * np.sqrt(_TWO_OVER_PI) / jnp.sqrt(x)


def _j0(x: jax.Array) -> jax.Array:
    x = jnp.abs(x)
    z = x * x
    near = (z - 5.78318596294678452118) * (z - 30.4712623436620863991)
    near = near * _polynomial(z, c.J0_RP) / _polynomial(z, c.J0_RQ)
    near = jnp.where(x < 1e-5, 1 - z / 4, near)
    return jnp.where(x <= 5, near, _wave(x, 0, jnp.cos, jnp.sin, -1))


def _j1(x: jax.Array) -> jax.Array:
    size = jnp.abs(x)
    z = size * size
    near = _polynomial(z, c.J1_RP) / _polynomial(z, c.J1_RQ) * size
    near = near * (z - 14.6819706421238932572) * (z - 49.2184563216946036703)
    made = jnp.where(size <= 5, near, _wave(size, 1, jnp.cos, jnp.sin, -1))
    return jnp.where(x < 0, -made, made)


def _second_kind(order: int, x: jax.Array) -> jax.Array:
    z = x * x
    if order == 0:
        near = _polynomial(z, c.Y0_P) / _polynomial(z, c.Y0_Q) + _TWO_OVER_PI * jnp.log(x) * _j0(x)
    else:
        near = x * (_polynomial(z, c.Y1_P) / _polynomial(z, c.Y1_Q))
        near = near + _TWO_OVER_PI * (_j1(x) * jnp.log(x) - 1 / x)
    made = jnp.where(x <= 5, near, _wave(x, order, jnp.sin, jnp.cos, 1))
    return jnp.where(x == 0, -np.inf, jnp.where(x < 0, np.nan, made))


def _k(order: int, scaled: bool, x: jax.Array) -> jax.Array:
    """Compute the modified function of the second kind; scaled: times exp(x)."""
    growth = jnp.exp(x)
    if order == 0:
        near = _chebyshev(x * x - 2, c.K0_NEAR) - jnp.log(0.5 * x) * jax.scipy.special.i0(x)
        far = _chebyshev(8 / x - 2, c.K0_FAR)
    else:
        near = jnp.log(0.5 * x) * jax.scipy.special.i1(x) + _chebyshev(x * x - 2, c.K1_NEAR) / x
        far = _chebyshev(8 / x - 2, c.K1_FAR)
    far = far / jnp.sqrt(x)
    made = jnp.where(x <= 2, near * growth if scaled else near, far if scaled else jnp.exp(-x) * far)
    return jnp.where(x == 0, np.inf, jnp.where(x < 0, np.nan, made))


def _airy(x: jax.Array) -> jax.Array:
    """Compute Airy's function by series near 0, and by rational approximations away from it."""
    size = jnp.abs(x)
    zeta = 2 * size * jnp.sqrt(size) / 3
    fourth = jnp.sqrt(jnp.sqrt(size))
    z = 1 / zeta
    f, g = (
        _polynomial(z * z, a) / _polynomial(z * z, b) for a, b in ((c.AIRY_AFN, c.AIRY_AFD), (c.AIRY_AGN, c.AIRY_AGD))
    )
    t = zeta + np.pi / 4
    left = 1 / np.sqrt(np.pi) / fourth * (jnp.sin(t) * (1 + z * z * f) - jnp.cos(t) * (z * g))
    right = _polynomial(z, c.AIRY_AN) / _polynomial(z, c.AIRY_AD)
    right = right / np.sqrt(np.pi) / (2 * fourth * jnp.exp(zeta))
    cube = x * x * x
    one, other = jnp.ones_like(x), x
    even, odd = one, other
    for k in range(2, 60, 3):  # enough terms of |x| < 2.1
        one, other = one * cube / ((k + 0) * (k + 1)), other * cube / ((k + 1) * (k + 2))
        even, odd = even + one, odd + other
    middle = 0.355028053887817239260 * even - 0.258819403792806798405 * odd
    made = jnp.where(x < -2.09, left, jnp.where(x >= 2.09, right, middle))
    return jnp.where(jnp.isinf(x), np.nan, jnp.where(x > 103.892, 0, made))


def _spherical_j0(x: jax.Array) -> jax.Array:
    z = x * x
    series: jax.Array | float = 1.0
    for k in (13, 11, 9, 7, 5, 3):
        series = 1.0 - z / ((k - 1) * k) * series
    made = jnp.where(jnp.abs(x) < 0.5, series, jnp.sin(x) / x)
    return jnp.where(jnp.isinf(x), 0, made)


def _erfcx(x: jax.Array) -> jax.Array:
    size = jnp.abs(x)
    t = jnp.where(jnp.isinf(size), 1, (size - 3.75) / (size + 3.75))
    made = _chebyshev(2 * t, _ERFCX[::-1]) / (1 + 2 * size)
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - made, made)


_PRIMS = {
    "bessel_i0": jax.scipy.special.i0,
    "bessel_i0e": jax.scipy.special.i0e,
    "bessel_i1": jax.scipy.special.i1,
    "bessel_i1e": jax.scipy.special.i1e,
    "bessel_j0": _j0,
    "bessel_j1": _j1,
    "spherical_bessel_j0": _spherical_j0,
    "erfcx": _erfcx,
    "ndtri": jax.scipy.special.ndtri,
    "zeta": zeta,
}
_ATEN = {
    "airy_ai": _airy,
    "bessel_y0": functools.partial(_second_kind, 0),
    "bessel_y1": functools.partial(_second_kind, 1),
    "modified_bessel_i0": jax.scipy.special.i0,
    "modified_bessel_i1": jax.scipy.special.i1,
    "modified_bessel_k0": functools.partial(_k, 0, False),
    "modified_bessel_k1": functools.partial(_k, 1, False),
    "scaled_modified_bessel_k0": functools.partial(_k, 0, True),
    "scaled_modified_bessel_k1": functools.partial(_k, 1, True),
}

ROWS: dict[str, Callable[..., Any]] = {
    **{f"prims.{name}.default": function(fn) for name, fn in _PRIMS.items()},
    **{f"aten.special_{name}.default": function(fn) for name, fn in _ATEN.items()},
}
