"""Control flow of jax.lax, its functions of a named axis, and jax.lax.linalg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from surface.row import Row, Table, each, on, table


def _mapped(call: Callable[..., Any], *specs: str) -> Row:
    """The function on each row of an array, which are what the axis "i" runs over."""
    return on(*specs or ("f32[n, 3]",), call=lambda f, x: jax.vmap(lambda row: call(f, row), axis_name="i")(x))


def _halves(f: Callable[..., Any], x: jax.Array) -> Any:
    return f(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))


CONTROL: Table = {
    "cond": [on("bool[]", "f32[n, 3]", call=lambda f, p, x: f(p, lambda v: v + 1, lambda v: v * 2, x))],
    "switch": [
        on("i32[]:below:4", "f32[n, 3]", call=lambda f, i, x: f(i, [lambda v: v + 1, lambda v: v * 2, jnp.sin], x))
    ],
    "fori_loop": [
        on("f32[n, 3]", call=lambda f, x: f(0, 4, lambda i, v: v * 0.5 + i, x)),
        on("f32[n, 3]", call=lambda f, x: f(0, x.shape[0], lambda i, v: v.at[i].add(1.0), x)),
    ],
    "while_loop": [
        on("f32[n, 3]", call=_halves),
        on("f32[n, 3]", call=lambda f, x: f(lambda v: jnp.abs(v).sum() > 1, lambda v: v / 2, x)),
    ],
    "scan": [
        on("f32[n, 3]:unit", call=lambda f, x: f(lambda c, v: (c + v, c * 2), jnp.zeros(3), x)),
        on("f32[4, n]:unit", call=lambda f, x: f(lambda c, v: (c * v, c), jnp.ones(x.shape[1]), x, reverse=True)),
        on("f32[n]", call=lambda f, x: f(lambda c, _: (c / 2, c.sum()), x, None, length=3)),
    ],
    "map": [
        on("f32[n, 3]", call=lambda f, x: f(jnp.cumsum, x)),
        on("f32[n, 3]", call=lambda f, x: f(jnp.sum, x, batch_size=2)),
    ],
    "custom_root": [
        on("f32[n]:positive", call=lambda f, x: f(lambda y: y * y - x, x, lambda g, y: jnp.sqrt(x), lambda g, y: y / 2))
    ],
    "custom_linear_solve": [
        on(
            "f32[n, n]:regular",
            "f32[n]",
            call=lambda f, a, b: f(lambda v: a @ v, b, lambda _, v: jnp.linalg.solve(a, v)),
        )
    ],
    "dce_sink": [on("f32[n, 3]", call=lambda f, x: (f(x), x + 1)[1])],
    "stage": [on("f32[n, 3]")],
    "rng_uniform": [on("f32[n, 3]", call=lambda f, x: (u := f(0.0, 1.0, x.shape)).shape == x.shape and (u >= 0).all())],
    "rng_bit_generator": [on("u32[4]:full", "f32[n, 3]", call=lambda f, k, x: f(k, x.shape))],
    "with_sharding_constraint": [
        on("f32[n, 3]", call=lambda f, x: f(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])))
    ],
    "axis_size": [_mapped(lambda f, row: row * f("i"))],
    "axis_index": [_mapped(lambda f, row: row * f("i"))],
    **each("psum pmax pmin pmean", _mapped(lambda f, row: row - f(row, "i"))),
    "all_gather": [_mapped(lambda f, row: f(row, "i")), _mapped(lambda f, row: f(row, "i", axis=0, tiled=True))],
    "all_to_all": [on("f32[n, n]", call=lambda f, x: jax.vmap(lambda row: f(row, "i", 0, 0), axis_name="i")(x))],
    "ppermute": [
        on(
            "f32[4, n]",
            call=lambda f, x: jax.vmap(lambda row: f(row, "i", [(0, 2), (2, 1), (1, 3), (3, 0)]), axis_name="i")(x),
        )
    ],
    "pshuffle": [on("f32[4, n]", call=lambda f, x: jax.vmap(lambda row: f(row, "i", [2, 0, 3, 1]), axis_name="i")(x))],
    "pswapaxes": [on("f32[n, n]", call=lambda f, x: jax.vmap(lambda row: f(row, "i", 0), axis_name="i")(x))],
    "psum_scatter": [on("f32[n, n]", call=lambda f, x: jax.vmap(lambda row: f(row, "i"), axis_name="i")(x))],
}

_DEFINITE, _REGULAR = "f32[n, n]:definite", "f32[n, n]:regular"


def _orthonormal(q: jax.Array) -> jax.Array:
    """Return q times its transpose, which is the same whatever signs the columns have."""
    return q @ jnp.swapaxes(q, -1, -2)


LINALG: Table = table(
    {
        "cholesky": [on(_DEFINITE), on("f32[n, 3, 3]:definite")],
        "cholesky_update": [on("f32[n, n]:definite", "f32[n]", call=lambda f, a, w: f(jnp.linalg.cholesky(a).T, w))],
        "eig": [on("f32[n, n]", call=lambda f, x: jnp.sort(jnp.abs(f(x)[0])))],
        "eigh": [
            on("f32[n, n]:symmetric", call=lambda f, x: f(x)[1]),
            on("f32[n, 3, 3]:symmetric", call=lambda f, x: f(x, symmetrize_input=False)[1]),
        ],
        "hessenberg": [on("f32[n, n]")],
        "householder_product": [on("f32[n, 3]", call=lambda f, x: f(x, jnp.ones(min(x.shape)) * 0.5))],
        "lu": [on(_REGULAR), on("f32[n, 3]"), on("f32[n, 3, 3]:regular")],
        "lu_pivots_to_permutation": [on("f32[n, 3]", call=lambda f, x: f(lax.linalg.lu(x)[1], x.shape[0]))],
        "ormqr": [on("f32[n, 3]:unit", "f32[n, 2]", call=lambda f, a, c: f(a, jnp.ones(min(a.shape)) * 0.5, c))],
        "qdwh": [on(_REGULAR, call=lambda f, x: f(x)[:2])],
        "qr": [on("f32[n, 3]", full_matrices=False), on("f32[n, 3]"), on("f32[3, n]", pivoting=True)],
        "schur": [on("f32[n, n]:symmetric", call=lambda f, x: jnp.sort(jnp.diagonal(f(x)[0])))],
        "svd": [on("f32[n, 3]", compute_uv=False), on("f32[n, n]", call=lambda f, x: _orthonormal(f(x)[0]))],
        "symmetric_product": [on("f32[n, 3]", "f32[n, n]:symmetric", symmetrize_output=True)],
        "triangular_solve": [
            on("f32[n, n]:triangular", "f32[n, 3]", left_side=True, lower=True),
            on("f32[n, n]:triangular", "f32[3, n]", lower=True, transpose_a=True),
        ],
        "tridiagonal": [on("f32[n, n]:symmetric")],
        "tridiagonal_solve": [
            on(
                "f32[n]:unit",
                "f32[n]:positive",
                "f32[n]:unit",
                "f32[n, 2]",
                call=lambda f, low, d, u, b: f(low.at[:1].set(0), d + 3, u.at[-1:].set(0), b),
            )
        ],
    },
)
