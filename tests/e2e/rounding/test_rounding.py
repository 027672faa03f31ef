"""Small floats are rounded after each op, wherever it is computed: exactly what numpy makes of them op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hand_written.kernel_runner import KIND, levels
from jax import lax

import hlo_disc

BF16, F16, F8 = (np.dtype(t) for t in (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn))
DTYPES = [BF16, F16, F8]
SIZES = (0, 1, 5, 64, 257)
# What the environment says, and all that this machine can run.
TARGETS: dict[str, dict[str, Any]] = {"": {}, **{level: {"target": f"{KIND}:{level}"} for level in levels()}}


def drawn(dtype: np.dtype, n: int, columns: int = 33) -> list[np.ndarray]:
    """Return arrays (n, columns) of numbers whose sums and products need more digits than they have."""
    rng = np.random.default_rng(n)
    return [(rng.standard_normal((n, columns)) * k).astype(dtype) for k in (1, 3)]


# Functions of an array module and two arrays, over ops that numpy computes as it does everything: one rounding each.
CHAINS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "error of a sum": lambda xp, x, y: y - ((x + y) - x),
    "products": lambda xp, x, y: (x * y + y) * x - y,
    "compared": lambda xp, x, y: (x + y) - x < y,
    "equal": lambda xp, x, y: x * y + x == x * (y + 1),
    "chosen": lambda xp, x, y: xp.where((x + y) - x > y, x * y - x, x - y * y) * y,
    "largest": lambda xp, x, y: xp.maximum(x * y, x + y) * x - y,
    "negated": lambda xp, x, y: -(x * y) + abs(x - y * x),
    "widened": lambda xp, x, y: (x * y).astype(np.float32) - x.astype(np.float32) * y.astype(np.float32),
    "narrowed": lambda xp, x, y: (x.astype(np.float32) * 1.1).astype(x.dtype) * y - x,
    "other views": lambda xp, x, y: ((x * y)[::-1] - (x + y)) * x,
    "of rows": lambda xp, x, y: (x * y - x * y.max(1, keepdims=True)) * y,
    "of columns": lambda xp, x, y: (x * y - x * y.max(0, keepdims=True, initial=-8)) * y,
    "a result of its own": lambda xp, x, y: ((x * y).max(1), x * y, x * y - x),
}


def exactly(got: Any, want: Any, message: str) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, message
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), message)


def forms(fn: Callable[..., Any], dtype: np.dtype, *specs: str) -> dict[str, Callable[..., Any]]:
    """The program, for all features that this machine has."""
    arrays = [f"{dtype.name}[{spec}]" for spec in specs]
    return {level: hlo_disc.compile(fn, *arrays, **target) for level, target in TARGETS.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*in (add|subtract|multiply)")
def test_chains(dtype: np.dtype) -> None:
    """All chains are in one program, where they meet values of each other."""
    fn = lambda x, y: jax.tree.leaves([f(jnp, x, y) for f in CHAINS.values()])  # noqa: E731
    names = [name for name, f in CHAINS.items() for _ in jax.tree.leaves(f(np, *drawn(dtype, 1)))]
    for level, compiled in forms(fn, dtype, "n, 33", "n, 33").items():
        for n in SIZES[1:]:
            x, y = drawn(dtype, n)
            wanted = jax.tree.leaves([f(np, x, y) for f in CHAINS.values()])
            for name, got, want in zip(names, compiled(x, y), wanted, strict=True):
                exactly(got, want, f"{name} of {n} at {level}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_jitted_and_of_a_file(dtype: np.dtype) -> None:
    def fn(x, y):
        r = lax.optimization_barrier(x + y)
        return y - lax.optimization_barrier(r - x), lax.reduce_precision(x * y, 8, 3) - x

    ours = hlo_disc.jit(fn)
    for n in SIZES:
        x, y = drawn(dtype, n)
        for got, want in zip(ours(x, y), jax.jit(fn)(x, y), strict=True):
            exactly(got, want, f"{n}")
        of_a_file = hlo_disc.compile(jax.jit(fn).lower(x, y).as_text())
        exactly(of_a_file(x, y)[0], y - ((x + y) - x), f"file {n}")


def whole(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Return small integers, whose dots are exact before they are rounded."""
    largest = 2 if dtype.itemsize == 1 else 8
    return np.random.default_rng(shape).integers(-largest, largest + 1, shape).astype(dtype)


@depth.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [7, 64])
def test_what_follows_a_dot(dtype: np.dtype, k: int) -> None:
    def fn(x, w, c):
        return (x @ w - c) * c - x @ w

    for level, compiled in forms(fn, dtype, f"m, {k}", f"{k}, 33", "m, 33").items():
        for m in (1, 6, 65):
            x, w, c = whole(dtype, m, k), whole(dtype, k, 33), whole(dtype, m, 33)
            dot = (x.astype(np.float32) @ w.astype(np.float32)).astype(dtype)
            exactly(compiled(x, w, c), (dot - c) * c - dot, f"{m} at {level}")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_long_sums_are_rounded_once(dtype: np.dtype) -> None:
    """A long sum is rounded once, also when blocks share it: parts of a sum are f32."""

    def fn(x):
        total = lambda axis: lax.reduce(x, np.zeros((), x.dtype)[()], lax.add, (axis,))  # noqa: E731
        return total(0), total(1)

    for level, compiled in forms(fn, dtype, "n, m").items():
        lengths = range(50_000, 50_300, 20)  # some are near the middle of two bf16
        for shape in (*((n, 1) for n in lengths), *((1, n) for n in lengths), (30_011, 3)):
            x = np.ones(shape, dtype)
            for axis, got in enumerate(compiled(x)):
                exactly(got, x.astype(np.float32).sum(axis).astype(dtype), f"{shape} at {level}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_loops_carry(dtype: np.dtype) -> None:
    """Loops carry scalars, which the host computes, and arrays."""

    def turn(s, x, y):
        return s * x.dtype.type(1.125) + x.dtype.type(0.3125), (x * y + x) - y * s

    def fn(x, y, s):
        return lax.fori_loop(0, 5, lambda _, c: turn(c[0], c[1], y), (s, x))

    for level, compiled in forms(fn, dtype, "n, 33", "n, 33", "").items():
        for n in (1, 64):
            x, y = drawn(dtype, n)
            made, want = np.ones((), dtype)[()], x / dtype.type(8)
            start = want
            for _ in range(5):
                made, want = turn(made, want, y)
            for got, wanted in zip(compiled(start, y, np.ones((), dtype)), (made, want), strict=True):
                exactly(got, wanted, f"{n} at {level}")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_what_is_scattered(dtype: np.dtype) -> None:
    """Each update is rounded, and each sum, in the order of the indices."""

    def fn(x, i, y):
        return x.at[i].add(y * y, mode="drop") - x

    name = dtype.name
    for level, target in TARGETS.items():
        compiled = hlo_disc.compile(fn, f"{name}[n, 33]", "i32[k]", f"{name}[k, 33]", **target)
        for n, k in ((5, 7), (64, 1), (3, 100)):
            x, y = drawn(dtype, n)[0], drawn(dtype, k)[1]
            at = np.random.default_rng(k).integers(0, n, k).astype(np.int32)
            want = x.copy()
            for row, i in enumerate(at):
                want[i] = want[i] + y[row] * y[row]
            exactly(compiled(x, at, y), want - x, f"{n}, {k} at {level}")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_every_element_as_an_operand(dtype: np.dtype) -> None:
    """Every element is an operand, infinities, NaN and subnormal numbers among them."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)

    def chain(x, y):
        return [(x + y) - y, (x * y) * y, (x - y) * x + y, -(x * y) - y]

    with np.errstate(all="ignore"):
        for y in (x[::-1].copy(), np.roll(x, 12345)):
            for level, compiled in forms(lambda x, y: chain(x, y), dtype, "n", "n").items():
                for got, want in zip(compiled(x, y), chain(x, y), strict=True):
                    exactly(got, want, level)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_around_every_bf16() -> None:
    """Numbers around each bf16 are rounded to the last bit. The machine's instruction takes subnormals for zero."""
    ends = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = ((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] + ends).reshape(-1)
    mixed = np.random.default_rng(0).permutation(bits)
    for level, compiled in forms(lambda x: x.astype(BF16), np.dtype(np.float32), "n").items():
        for x in (bits, mixed, mixed[:37], mixed[:1]):
            got, want = np.asarray(compiled(x.view(np.float32))), x.view(np.float32).astype(BF16)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), level)
            np.testing.assert_array_equal(*(y[~np.isnan(want)].view(np.uint16) for y in (got, want)), level)


def test_more_precision_where_it_is_allowed() -> None:
    """A program that rounds as it is written is another one than that with excess precision, also to the cache."""
    fn = lambda x, y: y - ((x + y) - x)  # noqa: E731
    x, y = drawn(BF16, 64)
    want = fn(x, y)
    assert want.any()
    for excess in (True, False, True):
        got = hlo_disc.jit(fn, excess_precision=excess)(x, y)
        exactly(got, np.zeros_like(want) if excess else want, f"{excess}")


def test_conversions_round_though_more_precision_is_allowed() -> None:
    fn = lambda x: lax.reduce_precision(x.astype(BF16) + 0, 8, 3).astype(F16).astype(jnp.float32)  # noqa: E731
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    exactly(hlo_disc.jit(fn, excess_precision=True)(x), fn(jnp.asarray(x)), "")
