"""Special functions, by the formulas that JAX has of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.import_.aten.rows.numbers.elementwise import elementwise
from hlo_disc.import_.by_jax import by_jax, traced
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.jax_later import jax, jnp

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _trigamma(x: jax.Array) -> jax.Array:
    """Compute trigamma: left of 1/2 by reflection, else by six steps up to where the asymptotic series holds."""
    low = x < 0.5
    sine = jnp.sin(np.pi * x)
    y = jnp.where(low, 1 - x, x)
    sum_ = jnp.where(low, -(np.pi**2) / (sine * sine), 0)
    for _ in range(6):
        sum_, y = sum_ + 1 / (y * y), y + 1
    z = 1 / (y * y)
    sum_ = sum_ + (1 + 1 / (2 * y) + z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42)))) / y
    return jnp.where(low, -sum_, sum_)


def zeta(x: jax.Array, q: jax.Array) -> jax.Array:
    """Compute Hurwitz' zeta function for x > 1. Left of 0 its first terms are added one by one, until q is positive.

    At a pole of q it is infinite, whatever the sign of its term (Cephes' zeta, as in PyTorch).
    """

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, sum_ = state
        negative = a < 0
        return jnp.where(negative, a + 1, a), jnp.where(negative, sum_ + jnp.power(a, -x), sum_)

    defined = (jnp.floor(q) != q) & (jnp.floor(x) == x)
    start = jnp.where(defined, q, jnp.ones_like(q)), jnp.zeros_like(q)
    a, sum_ = jax.lax.while_loop(lambda state: jnp.any(state[0] < 0), step, start)
    value = jnp.where(defined, sum_ + jax.lax.zeta(x, a), jax.lax.zeta(x, q))
    value = jnp.where((q <= 0) & (jnp.floor(q) == q), np.inf, value)
    return jnp.where(x < 1, np.nan, jnp.where(x == 1, np.inf, value))


def _digamma(x: jax.Array) -> jax.Array:
    """Compute digamma. At 0 it is infinite, with the sign opposite to the argument's."""
    return jnp.where(x == 0, jnp.copysign(np.inf, -x), jax.lax.digamma(x))


def _polygamma(r: AtenReader, order: int, x: Array) -> Array:
    """Compute the derivative of this order of digamma."""

    order = r.fixed(order)

    def fn(y: jax.Array) -> jax.Array:
        sign = 1.0 if order % 2 else -1.0
        return sign * math.factorial(order) * zeta(jnp.full_like(y, order + 1), y)

    low = {0: _digamma, 1: _trigamma}
    wide = x.cast(computed(r.out.dtype))
    return traced(r, low.get(order, fn), wide)[0].cast(r.out.dtype)


def function(fn: Callable[..., jax.Array]) -> Callable[..., Array]:
    """Make the row of a function whose result is a float, also for integers."""
    return elementwise(by_jax(fn), KIND.INT_TO_FLOAT)


_OF_JAX = "lgamma acos asin atan acosh asinh atanh cosh sinh igamma igammac".split()

ROWS: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}.default": function(getattr(jax.lax, name)) for name in _OF_JAX},
    "aten.digamma.default": function(_digamma),
    "aten.erfinv.default": function(jax.lax.erf_inv),
    "aten.polygamma.default": _polygamma,
    "aten.nextafter.default": elementwise(by_jax(jax.lax.nextafter), KIND.NO_OPMATH),
}
