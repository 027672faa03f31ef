"""Functions of jax.lax that work element by element."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from surface.row import Table, each, on, table

TABLE: Table = table(
    each(
        "abs cos exp log neg sign sin sqrt square tanh cosh sinh tan reciprocal exp2 expm1 log1p logistic rsqrt",
        on("f32[n, 3]:special"),
        on("c64[n]"),
    ),
    each("cbrt ceil floor is_finite erf erfc bessel_i0e bessel_i1e round", on("f32[n, 3]:special"), on("bf16[n]")),
    each("acos asin atanh", on("f32[n, 3]:unit"), on("c64[n]")),
    each("acosh asinh atan", on("f32[n, 3]:positive"), on("c64[n]")),
    each("erf_inv", on("f32[n, 3]:unit")),
    each("digamma lgamma", on("f32[n, 3]:positive"), on("f32[n]:calm")),
    each("real imag conj", on("c64[n, 3]")),
    each("bitwise_not clz population_count", on("i32[n, 3]:full"), on("u8[n]:full")),
    each(
        "add sub mul max min eq ne ge gt le lt",
        on("f32[n, 3]:special", "f32[n, 3]"),
        on("i32[n]:small", "i32[n]:small"),
        on("f32[n]", call=lambda f, x: f(x, 1.0)),
    ),
    each("div rem", on("f32[n, 3]", "f32[n, 3]:positive"), on("i32[n]:small", "i32[n]:small")),
    each("atan2 nextafter", on("f32[n, 3]", "f32[n, 3]")),
    each("complex", on("f32[n, 3]", "f32[n, 3]")),
    each("mulhi", on("i32[n, 3]:full", "i32[n, 3]:full"), on("u32[n]:full", "u32[n]:full")),
    each("bitwise_and bitwise_or bitwise_xor", on("i32[n, 3]:full", "i32[n, 3]:full"), on("bool[n]", "bool[n]")),
    each("shift_left shift_right_arithmetic shift_right_logical", on("i32[n, 3]:full", "i32[n, 3]:below:33")),
    each("igamma igammac igamma_grad_a random_gamma_grad", on("f32[n, 3]:positive", "f32[n, 3]:positive")),
    {
        "pow": [on("f32[n, 3]:positive", "f32[n, 3]:unit"), on("f32[n]", call=lambda f, x: f(x, 3))],
        "integer_pow": [on("f32[n, 3]:calm", y=3), on("f32[n, 3]", y=-2)],
        "polygamma": [on("f32[n]:positive", call=lambda f, x: f(jnp.ones_like(x), x))],
        "zeta": [on("f32[n]:positive", "f32[n]:positive", call=lambda f, x, y: f(x + 1.5, y))],
        "betainc": [on("f32[n]:positive", "f32[n]:positive", "f32[n]:simplex")],
        "clamp": [
            on("f32[n, 3]", call=lambda f, x: f(-1.0, x, 1.0)),
            on("i32[n]:small", "i32[n]:small", "i32[n]:small"),
        ],
        "select": [on("bool[n, 3]", "f32[n, 3]", "f32[n, 3]")],
        "select_n": [on("bool[n, 3]", "f32[n, 3]", "f32[n, 3]"), on("i32[n]:below:3", "f32[n]", "f32[n]", "f32[n]")],
        "convert_element_type": [
            on("f32[n, 3]", new_dtype=jnp.int32),
            on("i32[n]:small", new_dtype=jnp.bfloat16),
            on("i32[n]", new_dtype=bool),
        ],
        "bitcast_convert_type": [
            on("f32[n, 3]", new_dtype=jnp.int32),
            on("f32[n]", new_dtype=jnp.uint8),
            on("u8[n, 4]:full", new_dtype=jnp.uint32),
        ],
        "reduce_precision": [on("f32[n, 3]", exponent_bits=5, mantissa_bits=10)],
        "stop_gradient": [on("f32[n, 3]")],
        "optimization_barrier": [on("f32[n, 3]")],
        "platform_dependent": [on("f32[n, 3]", call=lambda f, x: f(x, cpu=lambda v: v + 1, default=lambda v: v - 1))],
        "composite": [on("f32[n, 3]", call=lambda f, x: f(lambda v: lax.sin(v) * 2, "ours.twice_sin")(x))],
        "empty": [on("f32[n, 3]", call=lambda f, x: f(x.shape, jnp.float32))],
    },
)
