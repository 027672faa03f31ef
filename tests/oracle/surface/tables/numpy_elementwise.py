"""Functions of jax.numpy that work element by element."""

from __future__ import annotations

import jax.numpy as jnp

from surface.row import Table, each, on, table

_FLOAT, _INT, _COMPLEX = on("f32[n, 3]:calm"), on("i32[n]:small"), on("c64[n, 2]")

TABLE: Table = table(
    each(
        "abs absolute conj conjugate cos exp log log10 log2 negative positive reciprocal sin sinh cosh sqrt square tan "
        "tanh angle imag real isfinite isinf isnan iscomplex isreal sign",
        on("f32[n, 3]:special"),
        on("i32[n]:small"),
        on("c64[n, 2]"),
    ),
    each(
        "cbrt deg2rad degrees exp2 expm1 fabs floor ceil i0 log1p rad2deg radians rint signbit sinc spacing trunc",
        on("f32[n, 3]:special"),
        on("bf16[n]:unit"),
    ),
    each("arcsin asin arccos acos arctanh atanh", on("f32[n, 3]:unit"), on("c64[n]")),
    each("arctan atan arcsinh asinh", on("f32[n, 3]"), on("c64[n]")),
    each("arccosh acosh", on("f32[n, 3]:positive"), on("c64[n]")),
    each("isneginf isposinf", on("f32[n, 3]:infinite")),
    each("bitwise_not bitwise_invert invert", on("i32[n, 3]:full"), on("bool[n]"), on("u8[n]:full")),
    each("bitwise_count", on("i32[n, 3]:full"), on("u8[n]:full")),
    each("logical_not", on("bool[n, 3]"), on("f32[n]")),
    each("frexp modf", on("f32[n, 3]:special")),
    each(
        "add multiply subtract maximum minimum equal not_equal",
        on("f32[n, 3]:special", "f32[3]"),
        on("i32[n]:small", "i32[2, n]:small"),
        on("f32[n, 1]", "bf16[n]"),
        on("c64[n]", "f32[]"),
    ),
    each(
        "greater greater_equal less less_equal fmax fmin",
        on("f32[n, 3]:special", "f32[3]"),
        on("i32[n]:small", "u8[2, n]:small"),
    ),
    each(
        "divide true_divide",
        on("f32[n, 3]:special", "f32[3]"),
        on("i32[n]:small", "i32[n]:small"),
        on("c64[n]", "c64[n]"),
    ),
    each(
        "floor_divide mod remainder fmod divmod",
        on("f32[n, 3]", "f32[3]:positive"),
        on("i32[n]:small", "i32[n]:small"),
        on("u8[n]:full", "u8[2, n]:small"),
    ),
    each(
        "arctan2 atan2 copysign hypot logaddexp logaddexp2 nextafter heaviside float_power",
        on("f32[n, 3]:calm", "f32[3]:calm"),
        on("i32[n]:small", "i32[n]:small"),
    ),
    each(
        "pow power",
        on("f32[n, 3]:positive", "f32[3]:unit"),
        on("i32[n]:small", "i32[n]:below:5"),
        on("f32[n]:calm", call=lambda f, x: f(x, 3)),
        on("f32[n]", call=lambda f, x: f(2.0, x)),
    ),
    each(
        "bitwise_and bitwise_or bitwise_xor",
        on("i32[n, 3]:full", "i32[3]:full"),
        on("bool[n]", "bool[2, n]"),
    ),
    each(
        "bitwise_left_shift left_shift bitwise_right_shift right_shift",
        on("i32[n, 3]:full", "i32[3]:below:31"),
        on("u8[n]:full", "u8[n]:below:9"),
    ),
    each("logical_and logical_or logical_xor", on("bool[n, 3]", "bool[3]"), on("f32[n]", "i32[n]:small")),
    each("gcd lcm", on("i32[n, 3]:small", "i32[3]:small"), on("u8[n]:small", "u8[n]:small")),
    each("ldexp", on("f32[n, 3]", "i32[3]:small")),
    each("isclose allclose", on("f32[n, 3]:special", "f32[3]"), on("f32[n]", call=lambda f, x: f(x, x * 1.000001))),
    each(
        "array_equal array_equiv",
        on("f32[n, 3]", "f32[n, 3]"),
        on("f32[n]", call=lambda f, x: f(x, x)),
        on("i32[n]", "i32[3]"),
    ),
    {
        "around": [on("f32[n, 3]", decimals=2), on("i32[n]:small")],
        "round": [on("f32[n, 3]", decimals=1), _COMPLEX],
        "clip": [
            on("f32[n, 3]", min=-1.0, max=1.0),
            on("i32[n]:small", "i32[n]:small"),
            on("f32[n, 3]", "f32[3]", "f32[n, 1]"),
        ],
        "nan_to_num": [on("f32[n, 3]:special"), on("f32[n]:special", nan=1.5, posinf=9.0)],
        "where": [
            on("bool[n, 3]", "f32[n, 3]", "f32[3]"),
            on("bool[n]", "i32[n]", call=lambda f, p, x: f(p, x, 0)),
            on("f32[n]", call=lambda f, x: f(x > 0, size=x.shape[0], fill_value=-1)),
        ],
        "select": [on("f32[n, 3]", call=lambda f, x: f([x > 1, x < 0], [x, -x], 7.0))],
        "piecewise": [on("f32[n, 3]", call=lambda f, x: f(x, [x < 0, x > 1], [lambda v: -v, lambda v: v * v, 0.5]))],
        "unwrap": [on("f32[n, 3]"), on("f32[n, 3]", axis=0), on("f32[n]", period=3.0)],
        "iscomplexobj": [_FLOAT, _COMPLEX],
        "isrealobj": [_FLOAT, _COMPLEX],
        "astype": [
            on("f32[n, 3]", call=lambda f, x: f(x, jnp.int32)),
            on("i32[n]:small", call=lambda f, x: f(x, bool)),
        ],
        "interp": [
            on("f32[n, 3]", "f32[5]:sorted", "f32[5]"),
            on("f32[4]", "f32[n]:sorted", "f32[n]"),
            on("f32[4]", "f32[n]:sorted", "f32[n]", left=-1.0, period=7.0),
        ],
        "polyval": [on("f32[4]", "f32[n, 3]:unit"), on("f32[n]:unit", "f32[3]:unit")],
        "vectorize": [
            on("f32[n, 3]", call=lambda f, x: f(lambda row: row.sum(), signature="(k)->()")(x)),
            on("f32[n, 3]", "f32[3]", call=lambda f, x, y: f(jnp.add)(x, y)),
        ],
        "frompyfunc": [
            on("f32[n, 3]", "f32[3]", call=lambda f, x, y: f(lambda a, b: a * b + 1, 2, 1)(x, y)),
            on("f32[n, 3]", call=lambda f, x: f(jnp.add, 2, 1, identity=0).reduce(x, axis=0)),
        ],
        "isscalar": [_FLOAT],
        "ndim": [_FLOAT],
        "shape": [_FLOAT],
        "size": [_FLOAT, on("f32[n, 3]", axis=0)],
        "copy": [_FLOAT, _INT],
        "array": [_FLOAT, on("f32[n]", call=lambda f, x: f([x, x + 1])), on("f32[n]", dtype=jnp.int32, ndmin=3)],
        "asarray": [_FLOAT, on("i32[n]:small", dtype=jnp.float32)],
    },
)
