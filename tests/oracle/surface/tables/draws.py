"""jax.random."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from surface.row import Table, each, on, table

_X = "f32[n, 3]"
_LIKE = on("key[]", _X, call=lambda f, k, x: f(k, x.shape))
_EACH = on("key[]", "f32[n, 3]:positive")  # a draw for each parameter

TABLE: Table = table(
    each(
        "bits uniform normal exponential gumbel cauchy laplace logistic maxwell rademacher",
        _LIKE,
        on("key[n]", call=lambda f, k: jax.vmap(lambda one: f(one, (2,)))(k)),
    ),
    each(
        "chisquare gamma loggamma pareto rayleigh t poisson",
        _EACH,
        on("key[]", _X, call=lambda f, k, x: f(k, 2.0, x.shape)),
    ),
    each(  # digits cancel where the mean is large
        "wald",
        on("key[]", "f32[n, 3]:simplex"),
        on("key[]", _X, call=lambda f, k, x: f(k, 0.5, x.shape)),
    ),
    each(
        "beta f",
        on("key[]", "f32[n, 3]:positive", "f32[n, 3]:positive"),
        on("key[]", _X, call=lambda f, k, x: f(k, 2.0, 3.0, x.shape)),
    ),
    {
        "key": [
            on("u32[]:full", call=lambda f, s: jax.random.bits(f(s))),
            on("u32[n]:full", call=lambda f, s: jax.vmap(f)(s)),
        ],
        "PRNGKey": [on("u32[]:full", _X, call=lambda f, s, x: jax.random.bits(f(s), x.shape))],
        "clone": [on("key[n]"), on("key[]")],
        "key_data": [on("key[n]")],
        "key_impl": [on("key[n]", call=lambda f, k: jax.random.wrap_key_data(jax.random.key_data(k), impl=f(k)))],
        "wrap_key_data": [on("u32[n, 2]:full"), on("u32[n, 4]:full", impl="rbg")],
        "split": [on("key[]", _X, call=lambda f, k, x: f(k, x.shape[0])), on("key[]", num=(2, 3)), on("key[]")],
        "fold_in": [on("key[]", "u32[]:full"), on("key[n]", "u32[n]:full", call=lambda f, k, d: jax.vmap(f)(k, d))],
        "ball": [on("key[]", _X, call=lambda f, k, x: f(k, 3, shape=x.shape))],
        "bernoulli": [
            on("key[]", "f32[n]:simplex"),
            on("key[]", _X, call=lambda f, k, x: f(k, 0.3, x.shape)),
            on("key[]", _X, call=lambda f, k, x: f(k, 0.3, x.shape, mode="high")),
        ],
        "binomial": [
            on("key[]", "f32[n]:simplex", call=lambda f, k, p: f(k, 10.0, p)),
            on("key[]", _X, call=lambda f, k, x: f(k, 20.0, 0.6, x.shape)),
        ],
        "categorical": [
            on("key[]", _X),
            on("key[]", _X, axis=0),
            on("key[]", "f32[n, 5]", call=lambda f, k, x: f(k, x, shape=(2, x.shape[0]))),
            on("key[]", "f32[n, 5]", call=lambda f, k, x: f(k, x, shape=(2, x.shape[0]), replace=False)),
        ],
        "choice": [
            on("key[]", "f32[n]", shape=(3,)),
            on("key[]", "f32[n, 2]", call=lambda f, k, x: f(k, x, (min(2, x.shape[0]),), replace=False)),
            on("key[]", "f32[n]", "f32[n]:simplex", call=lambda f, k, x, p: f(k, x, (4,), p=p)),
            on("key[]", "f32[n]", call=lambda f, k, x: f(k, x.shape[0], (3,))),
        ],
        "dirichlet": [on("key[]", "f32[n, 3]:positive"), on("key[]", "f32[n]:positive", shape=(2,))],
        "double_sided_maxwell": [on("key[]", _X, call=lambda f, k, x: f(k, 1.0, 2.0, x.shape))],
        "generalized_normal": [on("key[]", _X, call=lambda f, k, x: f(k, 1.5, x.shape))],
        "geometric": [on("key[]", "f32[n]:simplex"), on("key[]", _X, call=lambda f, k, x: f(k, 0.3, x.shape))],
        "lognormal": [on("key[]", _X, call=lambda f, k, x: f(k, 0.5, x.shape))],
        "multinomial": [
            on("key[]", "f32[n]:simplex", call=lambda f, k, p: f(k, 9.0, p)),
            on("key[]", "f32[n, 3]:simplex", call=lambda f, k, p: f(k, jnp.full(p.shape[0], 9.0), p)),
        ],
        "multivariate_normal": [
            on("key[]", "f32[3]", "f32[3, 3]:definite", _X, call=lambda f, k, m, c, x: f(k, m, c, x.shape[:1])),
            on("key[]", "f32[n]", "f32[n, n]:definite"),
            on("key[]", "f32[n, 2]", call=lambda f, k, m: f(k, m, jnp.eye(2), method="svd")),
        ],
        "orthogonal": [
            on("key[]", _X, call=lambda f, k, x: f(k, 3, x.shape[:1])),
            on("key[]", _X, call=lambda f, k, x: f(k, x.shape[0])),
        ],
        "permutation": [
            on("key[]", _X),
            on("key[]", _X, axis=1),
            on("key[]", _X, call=lambda f, k, x: f(k, x.shape[0])),
            on("key[]", _X, independent=True),
        ],
        "randint": [
            on("key[]", _X, call=lambda f, k, x: f(k, x.shape, -5, 90)),
            on("key[]", "i32[n]:below:9", call=lambda f, k, i: f(k, i.shape, 0, i + 1)),
            on("key[]", _X, call=lambda f, k, x: f(k, (4,), 0, x.shape[0])),
        ],
        "triangular": [on("key[]", _X, call=lambda f, k, x: f(k, 0.0, 1.0, 3.0, x.shape))],
        "truncated_normal": [
            on("key[]", _X, call=lambda f, k, x: f(k, -2.0, 2.0, x.shape)),
            on("key[]", "f32[n]:positive", call=lambda f, k, x: f(k, -x, x)),
        ],
        "weibull_min": [on("key[]", _X, call=lambda f, k, x: f(k, 1.0, 2.0, x.shape))],
    },
)
