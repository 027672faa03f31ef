"""Small programs that cover what the compiler must do: one row a program, as plain JAX functions.

An argument is written `dtype[shape]:values`, for example `f32[n, m]:positive`; names in a shape are dynamic dims. The
tests compile each program once and run it at many sizes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

SIZES = (0, 1, 7, 31, 32, 33, 257)
SOME = (7, 31, 32, 33)
MIXED = ((33, 1, 7, 2), (1, 257, 2, 7), (7, 33, 1, 3), (7, 0, 5, 2))
LARGEST = 70_000

DTYPES = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "bool": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class Arg:
    """One argument: shape entries are dim names or sizes; `values` says how it is filled."""

    name: str
    dtype: np.dtype
    shape: tuple[str, ...]
    values: str

    @property
    def dims(self) -> str:
        return "(" + ", ".join(self.shape) + ("," if len(self.shape) == 1 else "") + ")"

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(int(d) if d.isdigit() else sizes[d] for d in self.shape)


@dataclass(frozen=True, eq=False)
class Program:
    """A function with its arguments.

    least: dims that the function itself needs to be at least so large, under `jax.jit` too.
    relative: compare each element by its own size, not by the largest in the array.
    exact: the float64 evaluation in numpy, where XLA's own cannot be trusted.
    slack: ulp allowed beside XLA's error; more where one number comes of hundreds of roundings, and XLA may be lucky.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Arg, ...]
    least: Mapping[str, int] = field(default_factory=dict)
    relative: bool = False
    exact: Callable[..., Any] | None = None
    slack: float = 4.0

    @property
    def dims(self) -> dict[str, str]:
        """The `dims=` argument of hlo_disc.jit."""
        return {arg.name: arg.dims for arg in self.args}

    @property
    def constraints(self) -> list[str]:
        """The `constraints=` argument of hlo_disc.jit."""
        return [f"{name} >= {size}" for name, size in self.least.items() if size > 1]

    @property
    def symbols(self) -> tuple[str, ...]:
        names = [d for arg in self.args for d in arg.shape if not d.isdigit()]
        return tuple(dict.fromkeys(names))

    @property
    def x64(self) -> bool:
        return any(arg.dtype.itemsize == 8 for arg in self.args)

    def __str__(self) -> str:
        return self.name

    def sizes(self) -> list[dict[str, int]]:
        """The sizes to run at: every size of SIZES for every dim, all equal where that is small enough, and mixed.

        Without `--full` one of SOME, and every other one of MIXED, which are others for other programs.
        """
        names = self.symbols
        if not names:
            return [{}]
        rows, number = [], zlib.crc32(self.name.encode())
        some = depth.some(SOME, number)
        for i, size in enumerate(SIZES):
            if size in SOME and size not in some:
                continue
            equal = dict.fromkeys(names, size)
            if self._volume(equal) <= LARGEST:
                rows.append(equal)
                continue
            turns = range(len(names)) if size == SIZES[-1] else [i]
            for turn in turns:
                rows.append({name: size if k == turn % len(names) else 2 + k for k, name in enumerate(names)})
        if len(names) > 1:
            mixed = [dict(zip(names, (row * 2)[: len(names)], strict=True)) for row in MIXED]
            rows += [row for row in depth.some(mixed, number, 2) if self._volume(row) <= LARGEST]
        rows = [{name: max(size, self.least.get(name, 0)) for name, size in row.items()} for row in rows]
        return [row for i, row in enumerate(rows) if row not in rows[:i]]

    def _volume(self, sizes: Mapping[str, int]) -> int:
        return max(int(np.prod(arg.concrete(sizes), dtype=np.int64)) for arg in self.args)

    def inputs(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """Arguments at `sizes`, the same at every call."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {sorted(sizes.items())}".encode()))
        return [fill(rng, arg, sizes) for arg in self.args]


def fill(rng: np.random.Generator, arg: Arg, sizes: Mapping[str, int]) -> np.ndarray:
    """Return an array for one argument.

    Its values are of one of these kinds. normal: with a large one here and there. calm: without. positive: above 0.
    unit: in -1..1. infinite: infinities among normal ones. special: NaN, infinities, zeros of both signs, huge and tiny
    ones among normal ones. full: every bit pattern of an integer. small: integers in -9..9. below:d: an index into a
    dim or a number d. around:d: an index that may be negative or too large.
    """
    shape = arg.concrete(sizes)
    kind, _, bound = arg.values.partition(":")
    if kind in ("below", "around"):
        limit = int(bound) if bound.isdigit() else sizes[bound]
        low, high = (0, max(limit, 1)) if kind == "below" else (-limit - 3, limit + 4)
        return rng.integers(low, high, shape).astype(arg.dtype)
    if arg.dtype == np.bool_:
        return rng.random(shape) < 0.6
    if arg.dtype.kind in "iu":
        if kind == "small":
            return rng.integers(0 if arg.dtype.kind == "u" else -9, 10, shape).astype(arg.dtype)
        info = np.iinfo(arg.dtype)
        return rng.integers(info.min, info.max, shape, dtype=arg.dtype, endpoint=True)
    x = rng.normal(0.0, 2.0, shape)
    if kind == "positive":
        x = np.exp(x)
    elif kind == "unit":
        x = rng.uniform(-1.0, 1.0, shape)
    elif kind == "special":
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e4, -1e4, 1e-7, -88.5, 89.5, 0.5, -1.0, 2.5])
        x = np.where(rng.random(shape) < 0.4, rng.choice(odd, shape), x)
    elif kind == "infinite":
        x = np.where(rng.random(shape) < 0.3, rng.choice(np.array([np.inf, -np.inf]), shape), x)
    elif kind != "calm":
        x = np.where(rng.random(shape) < 0.05, 40.0 * x, x)
    if arg.dtype.kind == "c":
        x = x + 1j * rng.normal(0.0, 2.0, shape)
    return np.asarray(x).astype(arg.dtype)


def program(
    name: str,
    fn: Callable[..., Any],
    *specs: str,
    relative: bool = False,
    exact: Callable[..., Any] | None = None,
    slack: float = 4.0,
    **least: int,
) -> Program:
    """A row. The arguments take the names of the function's parameters."""
    names = fn.__code__.co_varnames[: len(specs)]
    args = tuple(argument(parameter, spec) for parameter, spec in zip(names, specs, strict=True))
    return Program(name, fn, args, least, relative, exact, slack)


def argument(name: str, spec: str) -> Arg:
    """The argument of that name that is written like f32[n, m]:positive. Raises ValueError."""
    match = re.fullmatch(r"(\w+)\[(.*?)\](?::(.*))?", spec)
    if match is None:
        raise ValueError(f"cannot read the argument {name}: {spec!r}; write it like f32[n, m]:positive")
    dtype, shape, values = match.groups()
    entries = tuple(entry.strip() for entry in shape.split(",") if entry.strip())
    return Arg(name, DTYPES[dtype], entries, values or "normal")


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale + bias


def masked_softmax(x, keep):
    return jax.nn.softmax(jnp.where(keep[:, None, :], x * 0.125, jnp.finfo(x.dtype).min), axis=-1)


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def masked_attention(q, k, v, keep):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    scores = jnp.where(keep[:, None, None, :], scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


def causal_attention(q, k, v):
    s = q.shape[-2]
    scores = q @ jnp.swapaxes(k, -1, -2) * 0.25
    causal = jnp.arange(s)[:, None] >= jnp.arange(s)[None, :]
    return jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1) @ v


def transformer_block(x, qkv, out, up, down):
    b, s, d = x.shape
    h = layer_norm(x, 1.0, 0.0)
    q, k, v = jnp.split((h @ qkv).reshape(b, s, 3, 4, d // 4), 3, axis=2)
    mixed = masked_attention(q[:, :, 0], k[:, :, 0], v[:, :, 0], jnp.ones((b, s), bool))
    x = x + mixed.reshape(b, s, d) @ out
    return x + jax.nn.gelu(layer_norm(x, 1.0, 0.0) @ up) @ down


def mlp(x, w1, b1, w2, b2):
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


def batch_norm(x, scale, bias):
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale[:, None, None] + bias[:, None, None]


TABLE = np.random.default_rng(7).normal(size=(19, 24)).astype(np.float32)
WEIGHT = np.random.default_rng(8).normal(size=(24, 40)).astype(np.float32)


def closed_over(ids):
    return jnp.tanh(jnp.asarray(TABLE)[ids] @ jnp.asarray(WEIGHT))


def closed_over_exactly(ids):
    return np.tanh(TABLE.astype(np.float64)[ids] @ WEIGHT.astype(np.float64))


def dot(*dimension_numbers):
    """A dot_general of two arguments with the given contracting and batch dims."""
    return lambda x, y: lax.dot_general(x, y, dimension_numbers)


def reductions(axis, keepdims=False):
    """Sum, product, min and max over an axis, together."""

    def fn(x):
        return {
            "sum": x.sum(axis, keepdims=keepdims),
            "max": x.max(axis, keepdims=keepdims, initial=-jnp.inf),
            "min": x.min(axis, keepdims=keepdims, initial=jnp.inf),
            "prod": (1 + x / 64).prod(axis, keepdims=keepdims),
        }

    return fn


ELEMENTWISE = [
    program(
        "exp_log",
        lambda x: {
            "exp": jnp.exp(x),
            "expm1": jnp.expm1(x),
            "log": jnp.log(x),
            "log1p": jnp.log1p(x),
            "tanh": jnp.tanh(x),
            "logistic": jax.nn.sigmoid(x),
        },
        "f32[n]",
        relative=True,
    ),
    program(
        "exp_log_special",
        lambda x: {
            "exp": jnp.exp(x),
            "expm1": jnp.expm1(x),
            "log": jnp.log(x),
            "log1p": jnp.log1p(x),
            "tanh": jnp.tanh(x),
            "logistic": jax.nn.sigmoid(x),
        },
        "f32[n]:special",
        relative=True,
    ),
    program(
        "roots",
        lambda x: {"sqrt": jnp.sqrt(x), "rsqrt": lax.rsqrt(x), "cbrt": jnp.cbrt(x), "cube": x**3, "inverse": x**-2},
        "f32[n]:special",
        relative=True,
    ),
    program(
        "trigonometry",
        lambda x: {"sin": jnp.sin(x), "cos": jnp.cos(x), "tan": jnp.tan(x)},
        "f32[n]",
    ),
    program("trigonometry_special", lambda x: {"sin": jnp.sin(x), "cos": jnp.cos(x)}, "f32[n]:special"),
    program("erf", lambda x: {"erf": lax.erf(x), "erfc": lax.erfc(x)}, "f32[n]"),
    program(
        "rounding",
        lambda x: {
            "floor": jnp.floor(x),
            "ceil": jnp.ceil(x),
            "even": jnp.round(x),
            "away": lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
            "sign": jnp.sign(x),
            "abs": jnp.abs(x),
            "negate": -x,
            "finite": jnp.isfinite(x),
        },
        "f32[n, m]:special",
        relative=True,
    ),
    program(
        "arithmetic",
        lambda x, y: {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "rem": lax.rem(x, y)},
        "f32[n, m]",
        "f32[n, m]",
        relative=True,
    ),
    program(
        "min_max",
        lambda x, y: {"min": jnp.minimum(x, y), "max": jnp.maximum(x, y), "clip": jnp.clip(x, -1.0, 2.0)},
        "f32[n]:special",
        "f32[n]:special",
        relative=True,
    ),
    program("power", lambda x, y: {"power": x**y, "atan2": jnp.arctan2(x, y)}, "f32[n]:positive", "f32[n]"),
    program(
        "power_special",
        lambda x, y: {"power": x**y, "atan2": jnp.arctan2(x, y)},
        "f32[n]:special",
        "f32[n]:special",
        relative=True,
    ),
    program(
        "compare",
        lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y, jnp.where(x < y, x, -y)),
        "f32[n]:special",
        "f32[n]:special",
        relative=True,
    ),
    program(
        "integers",
        lambda x, y: {
            "add": x + y,
            "sub": x - y,
            "mul": x * y,
            "div": lax.div(x, jnp.where(y == 0, 3, y)),
            "rem": lax.rem(x, jnp.where(y == 0, 3, y)),
            "min": jnp.minimum(x, y),
            "max": jnp.maximum(x, y),
            "neg": -x,
            "abs": jnp.abs(x),
            "sign": jnp.sign(x),
        },
        "i32[n, m]:full",
        "i32[n, m]:full",
    ),
    program(
        "integer_division_edges",
        lambda x, y: {"div": lax.div(x, y), "rem": lax.rem(x, y), "floor": x // jnp.where(y == 0, 1, y)},
        "i32[n]:small",
        "i32[n]:small",
    ),
    program(
        "bits",
        lambda x, y: {
            "and": x & y,
            "or": x | y,
            "xor": x ^ y,
            "not": ~x,
            "left": lax.shift_left(x, y & 31),
            "right": lax.shift_right_logical(x, y & 31),
            "arithmetic": lax.shift_right_arithmetic(x, y & 31),
            "population": lax.population_count(x),
            "zeros": lax.clz(x),
        },
        "i32[n]:full",
        "i32[n]:full",
    ),
    program("shift_too_far", lambda x, y: (lax.shift_left(x, y), lax.shift_right_logical(x, y)), "u32[n]", "u32[n]"),
    program(
        "bytes",
        lambda x, y: (x + y, x * y, lax.div(x, y | 1), x < y, jnp.right_shift(x, 3)),
        "u8[n, m]:full",
        "u8[n, m]:full",
    ),
    program("shorts", lambda x, y: (x - y, x * y, jnp.maximum(x, y)), "i16[n]:full", "i16[n]:full"),
    program(
        "bool_logic",
        lambda p, q: (p & q, p | q, p ^ q, ~p, jnp.where(p, q, ~q), p == q),
        "bool[n, m]",
        "bool[n, m]",
    ),
    program(
        "converts",
        lambda x, i: {
            "to_int": x.astype(jnp.int32),
            "to_bool": x != 0,
            "bool_to_float": (x > 0).astype(jnp.float32) * x,
            "to_float": i.astype(jnp.float32),
            "to_byte": i.astype(jnp.int8),
            "to_unsigned": i.astype(jnp.uint32),
            "bits": lax.bitcast_convert_type(x, jnp.int32),
        },
        "f32[n]",
        "i32[n]:full",
    ),
]

VIEWS = [
    program("broadcast_row", lambda x, y: x * y + 1.0, "f32[n, m]", "f32[m]"),
    program("broadcast_column", lambda x, y: x - y[:, None], "f32[n, m]", "f32[n]"),
    program("outer", lambda x, y: x[:, None] * y[None, :], "f32[n]", "f32[m]"),
    program("degenerate", lambda x, y: x[:, :1] * y + x.T[0][:, None], "f32[n, 3]", "f32[1, m]"),
    program("reshape", lambda x: (x.reshape(-1), x.reshape(x.shape[0], -1, 2), x.reshape(-1, 6)), "f32[n, m, 6]", n=1),
    program("transpose_2", lambda x: x.T + 1.0, "f32[n, m]"),
    program(
        "transpose_3", lambda x: (x.transpose(2, 0, 1), x.transpose(1, 0, 2), x.transpose(2, 1, 0)), "f32[a, b, c]"
    ),
    program("transpose_4", lambda x: x.transpose(0, 2, 1, 3) * 2.0, "f32[a, b, c, 5]"),
    program("transpose_5", lambda x: x.transpose(4, 2, 0, 3, 1), "f32[a, 2, b, 3, c]"),
    program("slice", lambda x: (x[:, 1:4], x[..., ::3], x[::2, 5:1:-1], x[:-1]), "f32[n, 6]", n=1),
    program("slice_dynamic", lambda x: x[1:, 2:] - x[:-1, :-2], "f32[n, m]", n=1, m=2),
    program("reverse", lambda x: (x[::-1], x[:, ::-1] + x), "f32[n, m]"),
    program("concatenate_0", lambda x, y: jnp.concatenate([x, y, x * 2], 0), "f32[n, m]", "f32[k, m]"),
    program("concatenate_1", lambda x, y: jnp.concatenate([x, jnp.exp(y)], 1), "f32[n, m]", "f32[n, k]"),
    program("concatenate_2", lambda x, y: jnp.concatenate([x, y], -1).sum(-1), "f32[n, 3, m]", "f32[n, 3, 4]"),
    program("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=-1.5), "f32[n, m]"),
    program("pad_interior", lambda x: lax.pad(x, x[0, 0], [(2, -1, 1), (-1, 2, 2)]), "f32[n, m]", n=1, m=1),
    program("iota", lambda x: x * jnp.arange(x.shape[0])[:, None] + jnp.arange(x.shape[1]), "f32[n, m]"),
    program("triangle", lambda x: jnp.where(jnp.tri(x.shape[0], x.shape[1], dtype=bool), x, 0.0), "f32[n, m]"),
    program("stack_split", lambda x: jnp.stack([x, -x], 1).reshape(-1, x.shape[1]), "f32[n, m]", m=1),
    program(
        "rank_8",
        lambda x: x.transpose(7, 1, 2, 0, 4, 3, 6, 5).sum((2, 5)) * 0.5,
        "f32[n, 2, 3, 1, 2, m, 1, 2]",
    ),
    program("rank_0", lambda x, y: {"sum": x + y, "exp": jnp.exp(x), "greater": x > y}, "f32[]", "f32[]"),
    program("size_as_value", lambda x: x.sum() / x.shape[0] + x.shape[1], "f32[n, m]", n=1),
    program("passes_input_through", lambda x, y: (x, y, x), "f32[n]", "i32[m]"),
    program("constant_output", lambda x: (jnp.full(x.shape, 2.5), jnp.zeros((3,)), jnp.ones_like(x)), "f32[n]"),
]

ROWS = [
    program("softmax", lambda x: jax.nn.softmax(x, axis=-1), "f32[n, m]"),
    program("softmax_special", lambda x: jax.nn.softmax(x, axis=-1), "f32[n, m]:special"),
    program("softmax_columns", lambda x: jax.nn.softmax(x, axis=0), "f32[n, m]"),
    program("softmax_middle", lambda x: jax.nn.softmax(x, axis=1), "f32[a, b, c]"),
    program("masked_softmax", masked_softmax, "f32[b, s, t]", "bool[b, t]"),
    program("log_softmax", lambda x: jax.nn.log_softmax(x, axis=-1), "f32[n, m]"),
    program("log_sum_exp", lambda x: jax.nn.logsumexp(x, axis=-1), "f32[n, m]"),
    program("log_sum_exp_infinite", lambda x: jax.nn.logsumexp(x, axis=-1), "f32[n, m]:infinite"),
    program("layer_norm", layer_norm, "f32[n, m]", "f32[m]", "f32[m]"),
    program("layer_norm_fixed_width", layer_norm, "f32[b, s, 48]", "f32[48]", "f32[48]"),
    program("rms_norm", lambda x, w: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, "f32[n, m]", "f32[m]"),
    program("cross_entropy", cross_entropy, "f32[n, m]", "i32[n]:below:m", n=1, m=1),
    program("gelu", lambda x, b: jax.nn.gelu(x + b, approximate=False), "f32[n, m]", "f32[m]"),
    program("gelu_tanh", lambda x, b: jax.nn.gelu(x + b, approximate=True), "f32[n, m]", "f32[m]"),
    program("silu_gate", lambda x, y: jax.nn.silu(x) * y, "f32[n, m]", "f32[n, m]"),
    program("reduce_rows", reductions(-1), "f32[n, m]", slack=16.0),
    program("reduce_columns", reductions(0), "f32[n, m]", slack=16.0),
    program("reduce_columns_narrow", reductions(0), "f32[n, 3]", slack=16.0),
    program("reduce_middle", reductions(1), "f32[a, b, c]", slack=16.0),
    program("reduce_ends", reductions((0, 2), keepdims=True), "f32[a, b, c]", slack=16.0),
    program("reduce_all", reductions(None), "f32[n, m]:positive", slack=16.0),
    program(
        "reduce_special",
        lambda x: (jnp.isnan(x.sum(-1)), x.max(-1, initial=-9.0), x.min(0, initial=9.0), (x * x).sum(0)),
        "f32[n, m]:special",
        exact=lambda x: (np.isnan(x.sum(-1)), x.max(-1, initial=-9.0), x.min(0, initial=9.0), (x * x).sum(0)),
    ),
    program("reduce_bool", lambda p: (p.any(-1), p.all(-1), p.any(0), p.all(), p.sum(-1)), "bool[n, m]"),
    program("reduce_integers", lambda x: (x.sum(-1), x.prod(0), x.max(-1, initial=-5), x.min(initial=5)), "i32[n, m]"),
    program("reduce_then_broadcast", lambda x: (x - x.sum(0)) * x.sum(1, keepdims=True) / 64, "f32[n, m]"),
    program("mean_variance", lambda x: (x.mean(), x.var(0), x.std(-1)), "f32[n, m]:positive"),
    program("batch_norm", batch_norm, "f32[b, c, h, 6]", "f32[c]", "f32[c]"),
]

INDEXED = [
    program("embedding", lambda table, ids: table[ids], "f32[50, d]", "i32[b, s]:below:50"),
    program("take_clip", lambda x, i: jnp.take(x, i, axis=1, mode="clip"), "f32[n, m]", "i32[k]:around:m", m=1),
    program("take_fill", lambda x, i: jnp.take(x, i, axis=0, mode="fill"), "f32[n, m]", "i32[k]:around:n", n=1),
    program("take_along", lambda x, i: jnp.take_along_axis(x, i, axis=1), "f32[n, m]", "i32[n, 3]:below:m", m=1),
    program("gather_pairs", lambda x, i, j: x[i, j], "f32[n, m]", "i32[k]:below:n", "i32[k]:below:m", n=1, m=1),
    program(
        "embedding_sum", lambda table, ids: jnp.take(table, ids, axis=0).sum(1), "f32[50, 24]", "i32[b, s]:below:50"
    ),
    program(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i, jnp.zeros_like(i)), (2, x.shape[1])),
        "f32[n, m]",
        "i32[]:around:n",
        n=2,
    ),
    program(
        "dynamic_update_slice",
        lambda x, y, i: lax.dynamic_update_slice(x, y, (i, jnp.ones_like(i))),
        "f32[n, m]",
        "f32[2, 3]",
        "i32[]:around:n",
        n=2,
        m=4,
    ),
    program(
        "cache_append",
        lambda cache, new: jnp.concatenate([cache, new[:, None]], 1).sum(-1),
        "f32[b, s, 16]",
        "f32[b, 16]",
    ),
    program("one_hot", lambda ids: jax.nn.one_hot(ids, 13), "i32[n]:around:13"),
    program("closed_over", closed_over, "i32[b, s]:below:19", exact=closed_over_exactly),
]

DOTS = [
    program("matmul", lambda x, y: x @ y, "f32[n, k]", "f32[k, m]"),
    program("matmul_left_transposed", lambda x, y: x.T @ y, "f32[k, n]", "f32[k, m]"),
    program("matmul_right_transposed", lambda x, y: x @ y.T, "f32[n, k]", "f32[m, k]"),
    program("matmul_both_transposed", dot(([0], [1]), ([], [])), "f32[k, n]", "f32[m, k]"),
    program("matrix_vector", lambda x, y: x @ y, "f32[n, k]", "f32[k]"),
    program("vector_matrix", lambda x, y: x @ y, "f32[k]", "f32[k, m]"),
    program("vector_vector", lambda x, y: x @ y, "f32[k]", "f32[k]"),
    program("batch_matmul", lambda x, y: x @ y, "f32[b, n, 16]", "f32[b, 16, m]"),
    program("batch_last", dot(([1], [0]), ([2], [2])), "f32[n, 5, b]", "f32[5, m, b]"),
    program("two_contracting", dot(([1, 2], [2, 0]), ([], [])), "f32[n, 4, k]", "f32[k, m, 4]"),
    program("batch_two_contracting", dot(([1, 3], [3, 0]), ([2], [1])), "f32[n, 3, b, k]", "f32[k, b, m, 3]"),
    program("rank_5", dot(([3, 4], [4, 2]), ([0, 2], [1, 0])), "f32[a, n, b, k, 2]", "f32[b, a, 2, m, k]"),
    program("outer_dot", dot(([], []), ([], [])), "f32[n]", "f32[m]"),
    program(
        "dense_gelu", lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False), "f32[n, 32]", "f32[32, m]", "f32[m]"
    ),
    program("norm_dense", lambda x, w: layer_norm(x, 1.0, 0.0) @ w + x, "f32[n, 24]", "f32[24, 24]"),
    program("integer_dot", lambda x, y: x @ y, "i32[n, k]:full", "i32[k, m]:full"),
    program("special_dot", lambda x, y: x @ y, "f32[n, k]:infinite", "f32[k, m]"),
    program("attention", attention, "f32[b, h, s, 16]:calm", "f32[b, h, t, 16]:calm", "f32[b, h, t, 16]", t=1),
    program(
        "masked_attention",
        masked_attention,
        "f32[b, s, 3, 16]:calm",
        "f32[b, s, 3, 16]:calm",
        "f32[b, s, 3, 16]",
        "bool[b, s]",
    ),
    program("causal_attention", causal_attention, "f32[b, s, 16]:calm", "f32[b, s, 16]:calm", "f32[b, s, 16]"),
    program("mlp", mlp, "f32[b, 20]", "f32[20, 48]", "f32[48]", "f32[48, 10]", "f32[10]"),
    program(
        "transformer_block",
        transformer_block,
        "f32[b, s, 32]",
        "f32[32, 96]:unit",
        "f32[32, 32]:unit",
        "f32[32, 64]:unit",
        "f32[64, 32]:unit",
    ),
]

OTHER_TYPES = [
    program("f64_softmax", lambda x: jax.nn.softmax(x, axis=-1), "f64[n, m]"),
    program("f64_math", lambda x: (jnp.exp(x), jnp.tanh(x), jnp.sin(x), jnp.log(jnp.abs(x)), lax.erf(x)), "f64[n]"),
    program("f64_matmul", lambda x, y: x @ y + 1.0, "f64[n, k]", "f64[k, m]"),
    program("i64_arithmetic", lambda x, y: (x * y, x + y, x >> 3, x.sum(-1)), "i64[n, m]:full", "i64[n, m]:full"),
    program("bf16_layer_norm", layer_norm, "bf16[n, m]", "bf16[m]", "bf16[m]"),
    program("bf16_softmax", lambda x: jax.nn.softmax(x, axis=-1), "bf16[n, m]"),
    program("bf16_dense", lambda x, w, b: jax.nn.relu(x @ w + b), "bf16[n, 24]", "bf16[24, m]", "bf16[m]"),
    program("f16_gelu", lambda x: jax.nn.gelu(x), "f16[n, m]"),
    program("f16_sum", lambda x: (x.sum(-1), x.mean(0), x.max(initial=-9)), "f16[n, m]"),
    program("f16_matmul", lambda x, y: x @ y, "f16[n, k]:unit", "f16[k, m]:unit"),
]

PROGRAMS = {row.name: row for row in [*ELEMENTWISE, *VIEWS, *ROWS, *INDEXED, *DOTS, *OTHER_TYPES]}
