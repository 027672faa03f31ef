"""The programs of the kit: what they compute, at which sizes they are checked and timed, and what they are given.

Inputs follow from their names and sizes, so that none travels. JAX is needed to compile, and to compare with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import jax
    import jax.numpy as jnp
    import models
except ImportError:  # nothing is compiled then, nor compared with JAX
    jax = None  # type: ignore[assignment]

Sizes = Mapping[str, int]
ELEMENTS = 1 << 25  # of what is timed: far more than caches hold


@dataclass(frozen=True)
class Case:
    """function: the program, of arrays with these specs. checked, timed: sizes of its dims.

    moved: passes over memory, in bytes for sizes; flops: the same; 0 where that is not what limits it. most: how far a
    result may be off, relative to the largest.
    """

    function: Callable[..., Any]
    specs: Sequence[str]
    checked: Sequence[Sizes]
    timed: Sequence[Sizes]
    moved: Callable[[Sizes], int] = lambda sizes: 0
    flops: Callable[[Sizes], int] = lambda sizes: 0
    most: float = 1e-5


def _layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _rows(elements: int) -> list[Sizes]:
    return [{"m": elements // n, "n": n} for n in (128, 512, 1024, 4096, 8192, 32768)]


def _checked(*pairs: tuple[int, int]) -> list[Sizes]:
    return [{"m": m, "n": n} for m, n in pairs]


_EDGES = _checked((0, 4), (1, 1), (3, 127), (2, 128), (5, 1000), (2, 1025), (1, 8192))
_LARGE = [{"m": ELEMENTS // 4096, "n": 4096}, {"m": 5790, "n": 5795}]
_TWICE: Callable[[Sizes], int] = lambda s: 8 * s["m"] * s["n"]  # noqa: E731 - a row's field
_ONCE: Callable[[Sizes], int] = lambda s: 4 * s["m"] * s["n"]  # noqa: E731

CASES: dict[str, Case] = {
    # The first one is what the others are compared with: as many bytes as it moves a second, memory can.
    "copy": Case(lambda x: x * 2, ("f32[m, n]",), _EDGES, _LARGE, _TWICE),
    "map": Case(lambda x: jnp.tanh(x) * x + 1, ("f32[m, n]",), _EDGES, _LARGE, _TWICE),
    "softmax": Case(lambda x: jax.nn.softmax(x), ("f32[m, n]",), _EDGES, _rows(ELEMENTS), _TWICE),
    "layer norm": Case(_layer_norm, ("f32[m, n]",), _EDGES, _rows(ELEMENTS), _TWICE, most=1e-4),
    "column sum": Case(lambda x: x.sum(0), ("f32[m, n]",), _EDGES, _LARGE, _ONCE, most=1e-4),
    "transpose": Case(lambda x: x.T, ("f32[m, n]",), _EDGES, _LARGE, _TWICE, most=0),
    "dot": Case(
        lambda x, y: x @ y,
        ("f32[m, k]", "f32[k, n]"),
        [{"m": m, "k": k, "n": n} for m, k, n in ((1, 1, 1), (3, 0, 2), (17, 33, 65), (64, 64, 64), (130, 257, 128))],
        [{"m": n, "k": n, "n": n} for n in (512, 1024, 2048, 4096)] + [{"m": 1, "k": 4096, "n": 4096}],
        flops=lambda s: 2 * s["m"] * s["k"] * s["n"],
        most=1e-4,
    ),
    "bert": Case(
        lambda *args: models.bert(*args), (), [{"b": 1, "s": 17}], [{"b": 1, "s": 128}, {"b": 4, "s": 128}], most=1e-3
    ),
    "gpt2": Case(
        lambda *args: models.gpt2_prefill(*args)[0], (), [{"b": 1, "s": 17}], [{"b": 1, "s": 128}], most=1e-3
    ),
}  # fmt: skip


def key(sizes: Sizes) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def drawn(name: str, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Contents of an input that follow from its name: tokens, a mask, weights or numbers."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "int32":
        return rng.integers(0, 2 if "mask" in name else 30000, shape, dtype=np.int32) | np.int32("mask" in name)
    made = rng.standard_normal(shape, np.float32)
    if "params" not in name:
        return made
    return made * np.float32(0.02) + np.float32("scale" in name)


def inputs(rows: Sequence[Any], sizes: Sizes) -> list[np.ndarray]:
    """rows: of a program, whose shapes are texts of dims."""
    return [drawn(row.name, row.dtype, [sizes.get(d) or int(sizes.get(d, d)) for d in row.shape]) for row in rows]
