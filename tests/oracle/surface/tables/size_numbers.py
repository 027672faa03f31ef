"""Functions that take a number elsewhere than in the place of an array or of an option of the other tables."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax

from surface.row import Table, each, on, table

_N, _X, _SMALL, _KEY = "i8[n, 0]", "f32[4, 3]", "i8[3]:small", "key[]"

NUMPY: Table = table(
    each("bartlett blackman hamming hanning identity", on(_N, call=lambda f, x: f(x.shape[0] % 100))),
    each("add multiply minimum less", on(_N, _SMALL, call=lambda f, x, y: f(y, x.shape[0]))),
    {
        "arange": [
            on(_N, call=lambda f, x: f(x.shape[0])),
            on(_N, call=lambda f, x: f(x.shape[0], dtype=jnp.int8)),
            on(_N, call=lambda f, x: f(x.shape[0], dtype=jnp.float32)),
            on(_N, call=lambda f, x: f(x.shape[0], x.shape[0] + 3)),
            on(_N, call=lambda f, x: f(x.shape[0] / 2, x.shape[0] / 2 + 3)),
            on(_N, call=lambda f, x: f(x.shape[0], 0, -1)),
        ],
        "array": [
            on(_N, call=lambda f, x: f([x.shape[0], 1])),
            on(_N, call=lambda f, x: f([x.shape[0] / 3, 1], jnp.float16)),
            on(_N, call=lambda f, x: f((x.shape[0], x.shape[0]), jnp.uint16)),
        ],
        "append": [on(_N, _X, call=lambda f, x, y: f(y, x.shape[0]))],
        "clip": [
            on(_N, _X, call=lambda f, x, y: f(y, 0, x.shape[0])),
            on(_N, _SMALL, call=lambda f, x, y: f(y, x.shape[0])),
        ],
        "cov": [on(_N, _X, call=lambda f, x, y: f(y, ddof=x.shape[0]))],
        "digitize": [on(_N, _X, call=lambda f, x, y: f(y, jnp.array([0.0, x.shape[0]])))],
        "eye": [on(_N, call=lambda f, x: f(3, k=x.shape[0])), on(_N, call=lambda f, x: f(4, 3, 2 - x.shape[0]))],
        "full": [
            on(_N, call=lambda f, x: f(3, x.shape[0])),
            on(_N, call=lambda f, x: f((2, 3), x.shape[0], jnp.float32)),
            on(_N, call=lambda f, x: f((2, 3), x.shape[0], jnp.int16)),
        ],
        "geomspace": [on(_N, call=lambda f, x: f(1, x.shape[0], 5))],
        "gradient": [on(_N, _X, call=lambda f, x, y: f(y, x.shape[0]))],
        "histogram": [on(_N, _X, call=lambda f, x, y: f(y, bins=4, range=(0, x.shape[0])))],
        "insert": [on(_N, _X, call=lambda f, x, y: f(y, 1, x.shape[0]))],
        "interp": [on(_N, "f32[4]:sorted", "f32[4]", call=lambda f, x, at, y: f(x.shape[0] / 1e9, at, y))],
        "kaiser": [on(_N, call=lambda f, x: f(7, x.shape[0] / 1e4))],
        "linspace": [on(_N, call=lambda f, x: f(0, x.shape[0], 5)), on(_N, call=lambda f, x: f(0.0, 1.0, x.shape[0]))],
        "logspace": [on(_N, call=lambda f, x: f(0.0, x.shape[0] / 1e8, 5))],
        "mean": [on(_N, "f32[]", call=lambda f, x, y: f(jnp.broadcast_to(y, (x.shape[0], 0, 2)), 1))],
        "nan_to_num": [on(_N, "f32[9]:special", call=lambda f, x, y: f(y, nan=x.shape[0]))],
        "pad": [on(_N, _X, call=lambda f, x, y: f(y, 1, constant_values=x.shape[0]))],
        "piecewise": [on(_N, _X, call=lambda f, x, y: f(y, [y < 0], [x.shape[0], 2]))],
        "polyval": [on(_N, "f32[3]", call=lambda f, x, y: f(y, x.shape[0]))],
        "searchsorted": [on(_N, "f32[4]:sorted", call=lambda f, x, y: f(y, x.shape[0]))],
        "select": [on(_N, _X, call=lambda f, x, y: f([y > 1], [y], x.shape[0]))],
        "take": [
            on(_N, _X, call=lambda f, x, y: f(y, x.shape[0], mode="wrap")),
            on(_N, _X, call=lambda f, x, y: f(y, jnp.array([1]), fill_value=x.shape[0])),
        ],
        "tri": [on(_N, call=lambda f, x: f(3, 4, x.shape[0])), on(_N, call=lambda f, x: f(3, 4, 2 - x.shape[0]))],
        "unravel_index": [on(_N, "i32[3]:below:9", call=lambda f, x, i: f(i, (3, x.shape[0])))],
        "where": [on(_N, _SMALL, call=lambda f, x, y: f(y > 0, y, x.shape[0]))],
    },
)

LAX: Table = {
    "argmax": [on(_N, call=lambda f, x: f(lax.iota(jnp.int8, x.shape[0]), 0, jnp.int8))],
    "broadcasted_iota": [on(_N, call=lambda f, x: f(jnp.uint8, (x.shape[0], 2), 0))],
    "clamp": [on(_N, _X, call=lambda f, x, y: f(0.0, y, jnp.float32(x.shape[0])))],
    "cond": [
        on(_N, _X, call=lambda f, x, y: f(x.shape[0] > 46340, lambda y: y + x.shape[0], lambda y: y - x.shape[0], y))
    ],
    "convert_element_type": [
        on(_N, call=lambda f, x, t=dtype: f(x.shape[0], t))
        for dtype in (jnp.int8, jnp.uint16, jnp.int32, jnp.float16, jnp.bfloat16, jnp.complex64, bool)
    ],
    "dynamic_index_in_dim": [on(_N, _X, call=lambda f, x, y: f(y, x.shape[0]))],
    "fori_loop": [
        on(_N, call=lambda f, x: f(0, 3, lambda i, c: c + x.shape[0], 0)),
    ],
    "full": [on(_N, call=lambda f, x: f((3,), x.shape[0])), on(_N, call=lambda f, x: f((3,), x.shape[0], jnp.uint8))],
    "integer_pow": [
        on(_N, _X, call=lambda f, x, y: f(y, x.shape[0])),
        on(_N, _SMALL, call=lambda f, x, y: f(y, x.shape[0])),
    ],
    "iota": [on(_N, call=lambda f, x: f(jnp.int8, x.shape[0])), on(_N, call=lambda f, x: f(jnp.float32, x.shape[0]))],
    "pad": [on(_N, _X, call=lambda f, x, y: f(y, jnp.float32(x.shape[0]), ((1, 2, 0), (0, 1, 1))))],
    "reduce": [on(_N, _X, call=lambda f, x, y: f(y, jnp.float32(x.shape[0]), lax.max, (0,)))],
    "scan": [on(_N, _X, call=lambda f, x, y: f(lambda c, row: (c + x.shape[0], row / x.shape[0]), 0, y))],
    "shape_as_value": [on(_N, call=lambda f, x: f(x.shape))],
    "switch": [on(_N, call=lambda f, x: f(x.shape[0] % 3, [lambda: 1.0, lambda: 2.0, lambda: 3.0]))],
    "top_k": [on(_N, "f32[9]", call=lambda f, x, y: f(y, x.shape[0] % 5 + 1))],
    "while_loop": [on(_N, call=lambda f, x: f(lambda c: c < x.shape[0], lambda c: c * 2 + 1, 1))],
}

RANDOM: Table = {
    "categorical": [on(_KEY, _N, call=lambda f, k, x: f(k, jnp.zeros(4), shape=(x.shape[0] % 7,)))],
    "choice": [on(_KEY, _N, call=lambda f, k, x: f(k, x.shape[0], (3,)))],
    "fold_in": [on(_KEY, _N, call=lambda f, k, x: jax.random.bits(f(k, x.shape[0])))],
    "key": [on(_N, call=lambda f, x: jax.random.bits(f(x.shape[0])))],
    "permutation": [on(_KEY, _N, call=lambda f, k, x: f(k, x.shape[0]))],
    "randint": [
        on(_KEY, _N, call=lambda f, k, x: f(k, (4,), 0, x.shape[0])),
        on(_KEY, _N, call=lambda f, k, x: f(k, (4,), -x.shape[0], 3)),
        on(_KEY, _N, call=lambda f, k, x: f(k, (4,), 0, x.shape[0], jnp.uint8)),
    ],
    "truncated_normal": [on(_KEY, _N, call=lambda f, k, x: f(k, -2, x.shape[0], (3,)))],
    "uniform": [on(_KEY, _N, call=lambda f, k, x: f(k, (3,), minval=1, maxval=x.shape[0]))],
}

TABLES: Mapping[str, Table] = {
    "jax.numpy": NUMPY,
    "jax.numpy.fft": each(
        "fftfreq rfftfreq", on(_N, call=lambda f, x: f(8, x.shape[0])), on(_N, call=lambda f, x: f(x.shape[0]))
    ),
    "jax.lax": LAX,
    "jax.nn": {
        "one_hot": [
            on(_N, call=lambda f, x: f(x.shape[0], 7)),
            on(_N, "i32[2]:small", call=lambda f, x, i: f(i, x.shape[0])),
        ]
    },
    "jax.random": RANDOM,
    "jax.scipy.special": {"expn": [on(_N, "f32[3]:positive", call=lambda f, x, y: f(3, y * x.shape[0]))]},
    "jax.scipy.stats.multinomial": each(
        "pmf logpmf", on(_N, "f32[3]:simplex", call=lambda f, x, p: f(jnp.array([x.shape[0] - 5, 2, 3]), x.shape[0], p))
    ),
}
