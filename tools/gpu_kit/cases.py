"""The programs of the kit: what they compute, at which sizes they are checked and timed, and what they are given.

Inputs follow from their names and sizes, so that none travels. JAX is needed to compile, and to compare with it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
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
    """function: the program. specs: what `hlo_disc.compile` is told of its arguments. checked, timed: sizes.

    moved: passes over memory, in bytes for sizes; flops: the same; 0 where that is not what limits it. most: how far a
    result may be off, relative to the largest. on_cpu: whether it is timed on the CPU, too.
    """

    function: Callable[..., Any]
    specs: Callable[[], Sequence[Any]]
    checked: Sequence[Sizes]
    timed: Sequence[Sizes]
    moved: Callable[[Sizes], int] = lambda sizes: 0
    flops: Callable[[Sizes], int] = lambda sizes: 0
    most: float = 1e-5
    on_cpu: bool = False

    @property
    def is_model(self) -> bool:
        return not self.moved({"m": 1, "n": 1}) and not self.flops({"m": 1, "k": 1, "n": 1})


def _layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _matrix() -> Sequence[str]:
    return ("f32[m, n]",)


def _factors(dtype: str) -> Callable[[], Sequence[str]]:
    return lambda: (f"{dtype}[m, k]", f"{dtype}[k, n]")


def _shapes(make: Callable[[], Any], dtype: str = "float32") -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), jax.eval_shape(make))


def _caches() -> list[Any]:
    return [(f"f32[b, {models.HEADS}, l, {models.WIDTH // models.HEADS}]",) * 2] * models.LAYERS


def _rows(elements: int) -> list[Sizes]:
    return [{"m": elements // n, "n": n} for n in (128, 512, 1024, 4096, 8192, 32768)]


def _checked(*pairs: tuple[int, int]) -> list[Sizes]:
    return [{"m": m, "n": n} for m, n in pairs]


_EDGES = _checked((0, 4), (1, 1), (3, 127), (2, 128), (5, 1000), (2, 1025), (1, 8192))
_LARGE = [{"m": ELEMENTS // 4096, "n": 4096}, {"m": 5790, "n": 5795}]
_TWICE: Callable[[Sizes], int] = lambda s: 8 * s["m"] * s["n"]  # noqa: E731 - a row's field
_ONCE: Callable[[Sizes], int] = lambda s: 4 * s["m"] * s["n"]  # noqa: E731
_PRODUCTS: list[Sizes] = [
    {"m": m, "k": k, "n": n} for m, k, n in ((1, 1, 1), (3, 0, 2), (17, 33, 65), (64, 64, 64), (130, 257, 128))
]
_SQUARES: list[Sizes] = [{"m": n, "k": n, "n": n} for n in (512, 1024, 2048, 4096)]
_FLOPS: Callable[[Sizes], int] = lambda s: 2 * s["m"] * s["k"] * s["n"]  # noqa: E731
_TEXTS: list[Sizes] = [{"b": 1, "s": 17}, {"b": 1, "s": 128}, {"b": 2, "s": 77}, {"b": 4, "s": 128}, {"b": 1, "s": 384}]

CASES: dict[str, Case] = {
    # The first one is what the others are compared with: as many bytes as it moves a second, memory can.
    "copy": Case(lambda x: x * 2, _matrix, _EDGES, _LARGE, _TWICE),
    "map": Case(lambda x: jnp.tanh(x) * x + 1, _matrix, _EDGES, _LARGE, _TWICE),
    "softmax": Case(lambda x: jax.nn.softmax(x), _matrix, _EDGES, _rows(ELEMENTS), _TWICE, on_cpu=True),
    "layer norm": Case(_layer_norm, _matrix, _EDGES, _rows(ELEMENTS), _TWICE, most=1e-4),
    "column sum": Case(lambda x: x.sum(0), _matrix, _EDGES, [*_LARGE, {"m": 1 << 16, "n": 1024}], _ONCE, most=1e-4),
    "transpose": Case(lambda x: x.T, _matrix, _EDGES, _LARGE, _TWICE, most=0),
    "dot": Case(
        lambda x, y: x @ y, _factors("f32"), _PRODUCTS, [*_SQUARES, {"m": 1, "k": 4096, "n": 4096}],
        flops=_FLOPS, most=1e-4,
    ),
    "dot bf16": Case(
        lambda x, y: x @ y, _factors("bf16"), _PRODUCTS, [*_SQUARES, {"m": 8192, "k": 8192, "n": 8192}],
        flops=_FLOPS, most=1e-2,
    ),
    "bert": Case(
        lambda params, ids, mask: models.bert(params, ids, mask),
        lambda: (_shapes(models.bert_params), "i32[b, s]", "i32[b, s]"),
        _TEXTS[:1], _TEXTS, most=1e-3, on_cpu=True,
    ),
    "bert bf16": Case(
        lambda params, ids, mask: models.bert(params, ids, mask),
        lambda: (_shapes(models.bert_params, "bfloat16"), "i32[b, s]", "i32[b, s]"),
        _TEXTS[:1], _TEXTS, most=0.1,
    ),
    "gpt2": Case(
        lambda params, ids: models.gpt2_prefill(params, ids)[0],
        lambda: (_shapes(models.gpt2_params), "i32[b, s]"),
        [{"b": 1, "s": 17}], [{"b": 1, "s": 128}, {"b": 4, "s": 77}], most=1e-3, on_cpu=True,
    ),
    "gpt2 decode": Case(
        lambda params, ids, caches: models.gpt2_decode(params, ids, caches),
        lambda: (_shapes(models.gpt2_params), "i32[b]", _caches()),
        [{"b": 1, "l": 5}, {"b": 2, "l": 0}],
        [{"b": b, "l": length} for b, length in ((1, 1), (1, 128), (1, 1000), (4, 128), (16, 500))],
        most=1e-3, on_cpu=True,
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
    if "params" in name:
        made = made * np.float32(0.02) + np.float32("scale" in name)
    return made.astype(getattr(ml_dtypes, dtype, dtype))


def inputs(rows: Sequence[Any], sizes: Sizes) -> list[np.ndarray]:
    """rows: of a program, whose shapes are texts of dims."""
    return [drawn(row.name, row.dtype, [sizes.get(d) or int(sizes.get(d, d)) for d in row.shape]) for row in rows]


def nested(rows: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """The arguments of a program's function, from its inputs: a dict and a list for each that names say there is."""
    root: dict[str, Any] = {}
    for row, leaf in zip(rows, leaves, strict=True):
        *path, last = re.findall(r"\w+", row.name)
        at = root
        for step in path:
            at = at.setdefault(step, {})
        at[last] = leaf
    return [_lists(x) for x in root.values()]


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    items = {key: _lists(x) for key, x in node.items()}
    return list(items.values()) if all(key.isdigit() for key in items) else items
