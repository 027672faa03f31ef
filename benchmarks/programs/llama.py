"""Blocks of Llama (Touvron et al. 2023, arXiv:2302.13971) of the sizes of TinyLlama (arXiv:2401.02385).

RMS norm, rotary positions (arXiv:2104.09864), heads that share keys and values (arXiv:2305.13245), and SwiGLU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import BOTH, DENSE, Draw, Program, normal

LAYERS, WIDTH, HEADS, SHARED, SIZE, HIDDEN, POSITIONS = 2, 2048, 32, 4, 64, 5632, 2048


def weights(draw: Draw) -> Any:
    def matrix(inputs: int, outputs: int) -> Any:
        return {DENSE: draw.normal(inputs, outputs)}

    def layer() -> Any:
        return {
            "norm_1": draw.normal(WIDTH, mean=1.0),
            "query": matrix(WIDTH, WIDTH),
            "key": matrix(WIDTH, WIDTH // SHARED),
            "value": matrix(WIDTH, WIDTH // SHARED),
            "output": matrix(WIDTH, WIDTH),
            "norm_2": draw.normal(WIDTH, mean=1.0),
            "gate": matrix(WIDTH, HIDDEN),
            "up": matrix(WIDTH, HIDDEN),
            "down": matrix(HIDDEN, WIDTH),
        }

    angles = np.outer(np.arange(POSITIONS), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles), "layers": [layer() for _ in range(LAYERS)]}


def llama(ops: Any, weights: Any, x: Any) -> Any:
    """Return the hidden states (b, s, 2048) after two blocks."""
    b, s, _ = ops.shape(x)
    cos, sin = weights["cos"][:s], weights["sin"][:s]

    def rotated(y: Any) -> Any:
        first, second = ops.split(y, 2)
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    for layer in weights["layers"]:
        dense = lambda name, y: ops.linear(layer[name][DENSE], y)  # noqa: B023, E731
        y = ops.rms_norm(layer["norm_1"], x, 1e-5)
        query, key, value = (
            ops.transpose(ops.reshape(dense(name, y), (b, s, heads, SIZE)), (0, 2, 1, 3))
            for name, heads in (("query", HEADS), ("key", HEADS // SHARED), ("value", HEADS // SHARED))
        )
        mixed = ops.transpose(ops.attention(rotated(query), rotated(key), value, causal=True), (0, 2, 1, 3))
        x = x + dense("output", ops.reshape(mixed, (b, s, WIDTH)))
        y = ops.rms_norm(layer["norm_2"], x, 1e-5)
        x = x + dense("down", ops.silu(dense("gate", y)) * dense("up", y))
    return x


def inputs(b: int, s: int) -> list[np.ndarray]:
    return [normal(np.random.default_rng(1000 * b + s), (b, s, WIDTH))]


PROGRAMS = [
    Program(
        "Llama block",
        "2 blocks of width 2048, 32 heads of which 4 share keys, on b x s hidden states",
        llama,
        weights,
        inputs,
        dims=("(b, s, _)",),
        shapes=[dict(b=b, s=s) for b, s in ((1, 1), (1, 17), (1, 128), (2, 77), (1, 384))],
        stream={"b": (1, 2, 1), "s": (4, 96, 1)},
        dtypes=BOTH,
        constraints=["s <= 2048"],
    )
]
