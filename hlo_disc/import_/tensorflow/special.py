"""Special functions, by the formulas that JAX has of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.jax_later import jax, jnp
from hlo_disc.import_.tensorflow.elementwise import formula, widely


def _applied(fn: Callable[..., object]) -> Handler:
    """Apply a function of JAX's arrays."""
    return formula(widely(lambda *xs: traced(xs[0].r, fn, *xs)[0]))


def _gamma(fn: Callable[..., jax.Array], at_most: float) -> Handler:
    """Compute an incomplete gamma function; at its edges TensorFlow's values differ from JAX's. at_most: for a =
    infinity."""

    def apply(a: jax.Array, x: jax.Array) -> jax.Array:
        made = jnp.where(jnp.isinf(a) & (x >= 0) & jnp.isfinite(x), at_most, fn(a, x))
        made = jnp.where(a <= 0, np.nan, made)
        return made if at_most else jnp.where(x == 0, 0, made)

    return _applied(apply)


HANDLERS: dict[str, Handler] = {
    "BesselI0": _applied(lambda x: jax.lax.bessel_i0e(x) * jnp.exp(jnp.abs(x))),
    "BesselI0e": _applied(jax.lax.bessel_i0e),
    "BesselI1": _applied(lambda x: jax.lax.bessel_i1e(x) * jnp.exp(jnp.abs(x))),
    "Betainc": _applied(jax.lax.betainc),
    "Igamma": _gamma(jax.lax.igamma, 0.0),
    "IgammaGradA": _applied(jax.lax.igamma_grad_a),
    "Igammac": _gamma(jax.lax.igammac, 1.0),
    "RandomGammaGrad": _applied(jax.lax.random_gamma_grad),
}
