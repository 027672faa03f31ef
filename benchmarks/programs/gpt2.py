"""GPT-2 small (Radford et al. 2019): the prompt, and one token more. The head is the transposed word embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import BOTH, Draw, Program, normal

LAYERS, WIDTH, HEADS, WORDS, POSITIONS = 12, 768, 12, 50257, 1024


def layer(draw: Draw, width: int) -> Any:
    return {
        "norm_1": draw.norm(width),
        "qkv": draw.dense(width, 3 * width),
        "output": draw.dense(width, width),
        "norm_2": draw.norm(width),
        "up": draw.dense(width, 4 * width),
        "down": draw.dense(4 * width, width),
    }


def weights(draw: Draw, layers: int = LAYERS) -> Any:
    return {
        "words": draw.normal(WORDS, WIDTH),
        "positions": draw.normal(POSITIONS, WIDTH),
        "layers": [layer(draw, WIDTH) for _ in range(layers)],
        "norm": draw.norm(WIDTH),
    }


def block(ops: Any, layer: Any, x: Any, past: Any = None, width: int = WIDTH, heads: int = HEADS) -> Any:
    """Return the result of a pre-norm block on x (b, s, width), and its keys and values (b, heads, length, …).

    The keys and values include the past ones.
    """
    b, s, _ = ops.shape(x)
    parts = ops.split(ops.dense(layer["qkv"], ops.layer_norm(layer["norm_1"], x, 1e-5)), 3)
    query, key, value = (ops.transpose(ops.reshape(y, (b, s, heads, width // heads)), (0, 2, 1, 3)) for y in parts)
    if past is not None:
        key, value = ops.concatenate([past[0], key], 2), ops.concatenate([past[1], value], 2)
    mixed = ops.transpose(ops.attention(query, key, value, causal=past is None), (0, 2, 1, 3))
    x = x + ops.dense(layer["output"], ops.reshape(mixed, (b, s, width)))
    y = ops.dense(layer["up"], ops.layer_norm(layer["norm_2"], x, 1e-5))
    return x + ops.dense(layer["down"], ops.gelu(y, approximate=True)), [key, value]


def logits(ops: Any, weights: Any, x: Any) -> Any:
    return ops.unembed(weights["words"], ops.layer_norm(weights["norm"], x, 1e-5))


def prefill(ops: Any, weights: Any, ids: Any) -> Any:
    """Return the last position's logits (b, 50257) and each layer's keys and values (b, 12, s, 64). ids: i32 (b, s)."""
    x = ops.take(weights["words"], ids) + weights["positions"][: ops.shape(ids)[1]]
    caches = []
    for layer in weights["layers"]:
        x, cache = block(ops, layer, x)
        caches += cache
    return [logits(ops, weights, x[:, -1]), *caches]


def decode(ops: Any, weights: Any, ids: Any, *caches: Any) -> Any:
    """Decode one token of each sequence: return logits (b, 50257), and caches of length l + 1.

    ids: i32 (b,). caches: of length l.
    """
    x = ops.take(weights["words"], ids) + ops.row(weights["positions"], ops.shape(caches[0])[2])
    x, grown = x[:, None, :], []
    for number, layer in enumerate(weights["layers"]):
        x, cache = block(ops, layer, x, caches[2 * number : 2 * number + 2])
        grown += cache
    return [logits(ops, weights, x[:, 0]), *grown]


def tokens(b: int, s: int) -> list[np.ndarray]:
    return [np.random.default_rng(1000 * b + s).integers(0, WORDS, (b, s), np.int32)]


def token_and_caches(b: int, t: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 * b + t)
    caches = [normal(rng, (b, HEADS, t, WIDTH // HEADS)) for _ in range(2 * LAYERS)]
    return [rng.integers(0, WORDS, b, np.int32), *caches]


PROGRAMS = [
    Program(
        "GPT-2 prefill",
        "small: logits of the last of s tokens, and all keys and values",
        prefill,
        weights,
        tokens,
        dims=("(b, s)",),
        shapes=[dict(b=b, s=s) for b, s in ((1, 17), (1, 128), (4, 64))],
        stream={"b": (1, 4, 1), "s": (4, 96, 1)},
        dtypes=BOTH,
        constraints=["s <= 1024"],
    ),
    Program(
        "GPT-2 decode",
        "small: one token more, after t tokens in the caches",
        decode,
        weights,
        token_and_caches,
        dims=("(b)", *["(b, _, t, _)"] * (2 * LAYERS)),
        shapes=[dict(b=b, t=t) for b, t in ((1, 1), (1, 100), (1, 1000), (4, 1000), (16, 100), (16, 250))],
        stream={"b": (1, 4, 1), "t": (1, 400, 1)},
        dtypes=BOTH,
    ),
]
