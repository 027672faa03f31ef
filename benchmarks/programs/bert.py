"""BERT-base (Devlin et al. 2018, arXiv:1810.04805) without pooler and heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.program import BOTH, Draw, Program

LAYERS, WIDTH, HEADS, WORDS = 12, 768, 12, 30522


def weights(draw: Draw, layers: int = LAYERS) -> Any:
    def layer() -> Any:
        return {
            **{name: draw.dense(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
            "output_norm": draw.norm(WIDTH),
            "up": draw.dense(WIDTH, 4 * WIDTH),
            "down": draw.dense(4 * WIDTH, WIDTH),
            "down_norm": draw.norm(WIDTH),
        }

    return {
        "words": draw.normal(WORDS, WIDTH),
        "positions": draw.normal(512, WIDTH),
        "type": draw.normal(WIDTH),
        "norm": draw.norm(WIDTH),
        "layers": [layer() for _ in range(layers)],
    }


def bert(ops: Any, weights: Any, ids: Any, mask: Any) -> Any:
    """Return hidden states (b, s, 768) for ids and mask i32 (b, s)."""
    b, s = ops.shape(ids)
    bias = (1 - ops.cast(mask[:, None, None, :], weights["type"])) * -1e9
    x = ops.take(weights["words"], ids) + weights["positions"][:s] + weights["type"]
    x = ops.layer_norm(weights["norm"], x, 1e-12)
    for layer in weights["layers"]:
        split = lambda y: ops.transpose(ops.reshape(y, (b, s, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))  # noqa: E731
        query, key, value = (split(ops.dense(layer[name], x)) for name in ("query", "key", "value"))
        mixed = ops.transpose(ops.attention(query, key, value, bias), (0, 2, 1, 3))
        y = ops.dense(layer["output"], ops.reshape(mixed, (b, s, WIDTH)))
        x = ops.layer_norm(layer["output_norm"], x + y, 1e-12)
        y = ops.dense(layer["down"], ops.gelu(ops.dense(layer["up"], x), approximate=False))
        x = ops.layer_norm(layer["down_norm"], x + y, 1e-12)
    return x


def inputs(b: int, s: int) -> list[np.ndarray]:
    """Return token ids, and a mask whose rows have different lengths; the first row has the full length."""
    rng = np.random.default_rng(1000 * b + s)
    lengths = rng.integers(max(s // 2, 1), s + 1, b)
    lengths[0] = s
    return [rng.integers(0, WORDS, (b, s), np.int32), (np.arange(s) < lengths[:, None]).astype(np.int32)]


PROGRAMS = [
    Program(
        "BERT-base",
        "12 layers of 768, hidden states of b sentences of s tokens",
        bert,
        weights,
        inputs,
        dims=("(b, s)", "(b, s)"),
        shapes=[dict(b=b, s=s) for b, s in ((1, 17), (1, 128), (2, 77), (4, 128), (1, 384))],
        stream={"b": (1, 4, 1), "s": (4, 96, 1)},
        dtypes=BOTH,
        constraints=["s <= 512"],
    )
]
SMALL = replace(PROGRAMS[0], name="BERT, 2 layers", weights=lambda draw: weights(draw, 2))
