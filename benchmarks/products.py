"""`python -m benchmarks.products`: GFLOP/s of dots and attention, next to jax.jit, in one process.

Every program is compiled once and runs at several shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc
from benchmarks.measure import alternate

SECONDS = 0.3


@dataclass(frozen=True)
class Case:
    """A function, how its dims are named, and (label, arguments, FLOPs) for each shape."""

    name: str
    fn: Callable[..., jax.Array]
    dims: dict[str, str]
    shapes: Callable[[], Iterator[tuple[str, tuple[Any, ...], float]]]


def floats(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32), dtype)


def dense(rows: tuple[int, ...], inner: int, columns: int) -> Case:
    """A product with a packed weight."""
    weight = floats(inner, columns)

    def shapes() -> Iterator[tuple[str, tuple[Any, ...], float]]:
        for m in rows:
            yield f"{m}x{inner}x{columns}", (floats(m, inner), weight), 2.0 * m * inner * columns

    return Case("x @ weight", lambda x, w: x @ w, {"x": "(m, _)"}, shapes)


def matmul(sizes: tuple[tuple[int, int, int], ...], turned: bool, dtype: Any = jnp.float32) -> Case:
    """A product of two arguments of any size, the second perhaps transposed."""

    def shapes() -> Iterator[tuple[str, tuple[Any, ...], float]]:
        for m, k, n in sizes:
            arguments = floats(m, k, dtype=dtype), floats(*((n, k) if turned else (k, n)), dtype=dtype)
            yield f"{m}x{k}x{n}", arguments, 2.0 * m * k * n

    dims = {"x": "(m, k)", "y": "(n, k)" if turned else "(k, n)"}
    name, fn = ("x @ y.T", lambda x, y: x @ y.T) if turned else ("x @ y", lambda x, y: x @ y)
    return Case(name if dtype == jnp.float32 else f"{name} bf16", fn, dims, shapes)


def gradient(sizes: tuple[tuple[int, int, int], ...]) -> Case:
    """x (k, m) and y (k, n) summed over k, as the gradient of a weight is over a batch."""

    def shapes() -> Iterator[tuple[str, tuple[Any, ...], float]]:
        for m, k, n in sizes:
            yield f"{m}x{k}x{n}", (floats(k, m), floats(k, n)), 2.0 * m * k * n

    return Case("x.T @ y", lambda x, y: x.T @ y, {"x": "(k, m)", "y": "(k, n)"}, shapes)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


def attentions(sizes: tuple[tuple[int, int, int], ...]) -> Case:
    """Twelve heads of 64: (batch, queries, keys)."""

    def shapes() -> Iterator[tuple[str, tuple[Any, ...], float]]:
        for b, m, n in sizes:
            arguments = (floats(b, m, 12, 64), floats(b, n, 12, 64), floats(b, n, 12, 64))
            yield f"{b}x{m}x{n}", arguments, 4.0 * b * 12 * m * n * 64

    dims = {"q": "(b, m, _, _)", "k": "(b, n, _, _)", "v": "(b, n, _, _)"}
    return Case("attention", attention, dims, shapes)


CASES = (
    dense((1, 4, 17, 128, 512), 768, 3072),
    dense((1, 17, 128, 512), 3072, 768),
    dense((17, 512), 768, 768),
    dense((1, 128, 4096), 768, 2),
    matmul(((1, 768, 3072), (8, 768, 3072), (128, 768, 3072), (1000, 1000, 1000), (64, 64, 64)), turned=False),
    matmul(((1, 768, 3072), (8, 768, 3072), (128, 768, 3072), (512, 64, 512)), turned=True),
    matmul(((1, 1024, 1024), (128, 768, 3072), (1024, 1024, 1024)), turned=False, dtype=jnp.bfloat16),
    gradient(((512, 2048, 512), (256, 32768, 256), (64, 65536, 512), (10, 100000, 10))),
    attentions(((1, 17, 17), (1, 77, 77), (1, 128, 128), (8, 128, 128), (1, 384, 384), (1, 512, 512), (1, 1, 512))),
)


def main() -> None:
    for case in CASES:
        ours, theirs = hlo_disc.jit(case.fn, dims=case.dims), jax.jit(case.fn)
        for label, arguments, flops in case.shapes():
            error = float(jnp.abs(jnp.asarray(ours(*arguments)) - theirs(*arguments)).max())
            pair = alternate(partial(ours, *arguments), partial(theirs, *arguments), SECONDS)
            (a, x), (b, y) = ((t * 1e6, flops / t / 1e9) for t in pair)
            rates = f"{a:9.1f} µs {x:6.1f} GFLOP/s; jax {b:9.1f} µs {y:6.1f} GFLOP/s"
            print(f"{case.name:12} {label:16} {rates}; {pair.ratio:5.2f} times as fast; error {error:.1e}", flush=True)


if __name__ == "__main__":
    main()
