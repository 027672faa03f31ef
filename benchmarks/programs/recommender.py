"""A recommender after DLRM (Naumov et al. 2019, arXiv:1906.00091): tables of categories, and all pairs of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import Draw, Program, normal

TABLES, ROWS, WIDTH, FEATURES = 8, 50000, 64, 13
BOTTOM, TOP = (FEATURES, 512, 256, WIDTH), (WIDTH + (TABLES + 1) ** 2, 512, 256, 1)


def weights(draw: Draw) -> Any:
    def layers(widths: tuple[int, ...]) -> Any:
        return [draw.dense(a, b, scale=(2 / a) ** 0.5) for a, b in zip(widths, widths[1:], strict=False)]

    tables = [draw.normal(ROWS, WIDTH, scale=0.1) for _ in range(TABLES)]
    return {"tables": tables, "bottom": layers(BOTTOM), "top": layers(TOP)}


def recommender(ops: Any, weights: Any, features: Any, ids: Any) -> Any:
    """Return probabilities (b, 1) for features (b, 13) and the ids i32 (b, 8, n) of each table."""
    x = features
    for layer in weights["bottom"]:
        x = ops.relu(ops.dense(layer, x))
    bags = [ops.embedding_bag(table, ids[:, number]) for number, table in enumerate(weights["tables"])]
    vectors = ops.concatenate([y[:, None] for y in (x, *bags)], 1)
    products = vectors @ ops.transpose(vectors, (0, 2, 1))
    x = ops.concatenate([x, ops.reshape(products, (ops.shape(x)[0], (TABLES + 1) ** 2))], 1)
    for layer in weights["top"][:-1]:
        x = ops.relu(ops.dense(layer, x))
    return ops.sigmoid(ops.dense(weights["top"][-1], x))


def inputs(b: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 * b + n)
    return [normal(rng, (b, FEATURES)), rng.integers(0, ROWS, (b, TABLES, n), np.int32)]


PROGRAMS = [
    Program(
        "DLRM",
        "8 tables of 50 000 x 64, probabilities of b rows of 8 bags of n categories",
        recommender,
        weights,
        inputs,
        dims=("(b, _)", "(b, _, n)"),
        shapes=[dict(b=b, n=n) for b, n in ((1, 10), (32, 20), (256, 10), (1000, 5))],
        stream={"b": (1, 256, 5), "n": (1, 20, 1)},
    )
]
