"""jax.nn, its initializers, and jax.image."""

from __future__ import annotations

import jax.numpy as jnp

from surface.row import Table, each, on, table

_X = "f32[n, 3]"
_QKV = ("f32[2, n, 4, 8]:calm", "f32[2, n, 4, 8]:calm", "f32[2, n, 4, 8]:calm")  # batch, length, heads, features

NN: Table = table(
    each(
        "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu "
        "relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh",
        on(_X),
        on("bf16[n]:calm"),
    ),
    each(
        "softmax log_softmax",
        on(_X),
        on(_X, axis=0),
        on(_X, "bool[n, 3]", call=lambda f, x, keep: f(x, where=keep)),
        on("bf16[2, n]"),
    ),
    each("logsumexp logmeanexp", on(_X), on(_X, axis=0, keepdims=True), on("f32[3, n]", axis=-1)),
    {
        "log1mexp": [on("f32[n, 3]:positive")],
        "glu": [on("f32[n, 6]"), on("f32[6, n]", axis=0)],
        "one_hot": [
            on("i32[n]:around:7", num_classes=7),
            on("i32[n]:below:n", call=lambda f, i: f(i, i.shape[0])),
            on("i32[n, 2]:below:5", num_classes=5, axis=0, dtype=jnp.int32),
        ],
        "standardize": [on(_X), on(_X, axis=0)],
        "dot_product_attention": [
            on(*_QKV),
            on(*_QKV, is_causal=True),
            on("f32[2, n, 4, 8]:calm", "f32[2, 5, 2, 8]:calm", "f32[2, 5, 2, 8]:calm"),
            on(*_QKV, local_window_size=3),
            on(*_QKV, "bool[2, 1, n, n]", call=lambda f, q, k, v, m: f(q, k, v, mask=m)),
        ],
    },
)

_MADE = on("key[]", _X, call=lambda f, k, x: f()(k, x.shape))

INITIALIZERS: Table = table(
    each(
        "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal lecun_uniform "
        "xavier_normal xavier_uniform normal truncated_normal uniform orthogonal",
        _MADE,
    ),
    each("ones zeros", on("key[]", _X, call=lambda f, k, x: f(k, x.shape))),
    {
        "constant": [on("key[]", _X, call=lambda f, k, x: f(2.5)(k, x.shape))],
        "delta_orthogonal": [on("key[]", "f32[n]", call=lambda f, k, x: f()(k, (3, 2, x.shape[0])))],
        "variance_scaling": [on("key[]", _X, call=lambda f, k, x: f(2.0, "fan_avg", "truncated_normal")(k, x.shape))],
    },
)

IMAGE: Table = {
    "resize": [
        *(
            on("f32[n, 6, 4]", call=lambda f, x, m=method: f(x, (x.shape[0], 4, 7), m))
            for method in ("nearest", "linear", "cubic", "lanczos3")
        ),
        on("f32[n, 6]", shape=(8, 3), method="linear"),
        on("f32[5, 6]", "f32[n]", call=lambda f, x, y: f(x, (y.shape[0], 6), "linear")),
        on("f32[n, 6]", shape=(8, 3), method="linear", antialias=False),
    ],
    "scale_and_translate": [
        on(
            "f32[n, 6]",
            "f32[2]:positive",
            "f32[2]",
            call=lambda f, x, s, t: f(x, (x.shape[0], 8), (0, 1), s, t, "linear"),
        ),
        on(
            "f32[n, 6, 6]",
            call=lambda f, x: f(x, (x.shape[0], 8, 4), (1, 2), jnp.array([1.2, 0.6]), jnp.zeros(2), "cubic"),
        ),
    ],
}
