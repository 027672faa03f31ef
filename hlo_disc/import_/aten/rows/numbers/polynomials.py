"""Orthogonal polynomials whose degree is data, by their recurrences, in as many steps as the highest degree.

ATen has a closed form for high degrees of Chebyshev's inside their interval, which is used too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hlo_disc.import_.aten.rows.numbers.special import function
from hlo_disc.import_.jax_later import jax, jnp


class Recurrence(NamedTuple):
    """A recurrence. first: the polynomial of degree 1. step(k, x, last, before): that of degree k. closed: (least
    degree, formula)."""

    first: Callable[[jax.Array], jax.Array]
    step: Callable[..., jax.Array]
    closed: tuple[int, Callable[[jax.Array, jax.Array], jax.Array]] | None = None
    highest: bool = False


def _chebyshev_step(k: jax.Array, x: jax.Array, last: jax.Array, before: jax.Array) -> jax.Array:
    return (x + x) * last - before


_CHEBYSHEV = {
    "t": Recurrence(lambda x: x, _chebyshev_step, (7, lambda n, a: jnp.cos(n * a))),
    "u": Recurrence(lambda x: x + x, _chebyshev_step, (9, lambda n, a: jnp.sin((n + 1) * a) / jnp.sin(a))),
    "v": Recurrence(
        lambda x: x + x - 1, _chebyshev_step, (9, lambda n, a: jnp.cos((n + 0.5) * a) / jnp.cos(a / 2))
    ),
    "w": Recurrence(
        lambda x: x + x + 1, _chebyshev_step, (9, lambda n, a: jnp.sin((n + 0.5) * a) / jnp.sin(a / 2))
    ),
}  # fmt: skip
_OTHERS = {
    "hermite_polynomial_h": Recurrence(
        lambda x: x + x, lambda k, x, last, before: (x + x) * last - (2 * (k - 1)) * before, highest=True),
    "hermite_polynomial_he": Recurrence(
        lambda x: x, lambda k, x, last, before: x * last - (k - 1) * before, highest=True),
    "laguerre_polynomial_l": Recurrence(
        lambda x: 1 - x, lambda k, x, last, before: ((2 * (k - 1) + (1 - x)) * last - (k - 1) * before) / k),
    "legendre_polynomial_p": Recurrence(
        lambda x: x, lambda k, x, last, before: ((2 * k - 1) * x * last - (k - 1) * before) / k),
}  # fmt: skip


def _polynomial(kind: Recurrence, shifted: bool) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def evaluate(x: jax.Array, n: jax.Array) -> jax.Array:
        degree = n.astype(np.int64)
        x = x + x - 1 if shifted else x
        stepped = degree
        if kind.closed:
            is_closed = (degree >= (7 if shifted else kind.closed[0])) & (jnp.abs(x) < 1)
            stepped = jnp.where(is_closed, 0, degree)
        if kind.highest:
            too_high = degree > (128 if x.dtype == np.float32 else 512)
            stepped = jnp.where(too_high, 0, degree)
        top = jnp.max(stepped, initial=1)

        def body(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            k, last, before = state
            made = kind.step(k.astype(x.dtype), x, last, before)
            active = k <= stepped
            return k + 1, jnp.where(active, made, last), jnp.where(active, last, before)

        start = jnp.asarray(2, np.int64), kind.first(x), jnp.ones_like(x)
        _, made, _ = jax.lax.while_loop(lambda state: state[0] <= top, body, start)
        made = jnp.where(degree == 0, 1, made)
        if kind.closed:
            made = jnp.where(is_closed, kind.closed[1](degree.astype(x.dtype), jnp.arccos(x)), made)
        if kind.highest:
            made = jnp.where(too_high, np.nan, made)
        return jnp.where(degree < 0, 0, made)

    return evaluate


_KINDS = {
    **{f"chebyshev_polynomial_{name}": (kind, False) for name, kind in _CHEBYSHEV.items()},
    **{f"shifted_chebyshev_polynomial_{name}": (kind, True) for name, kind in _CHEBYSHEV.items()},
    **{name: (kind, False) for name, kind in _OTHERS.items()},
}

ROWS: dict[str, Callable[..., Any]] = {
    f"aten.special_{name}.{form}": function(_polynomial(*kind))
    for name, kind in _KINDS.items()
    for form in ("default", "x_scalar", "n_scalar")
}
