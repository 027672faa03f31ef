"""A graph network after GraphSAGE (Hamilton et al. 2017, arXiv:1706.02216), of the mean over neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import Draw, Program, normal

LAYERS, WIDTH = 3, 128


def weights(draw: Draw) -> Any:
    return [{name: draw.dense(WIDTH, WIDTH, scale=WIDTH**-0.5) for name in ("own", "others")} for _ in range(LAYERS)]


def network(ops: Any, weights: Any, x: Any, sources: Any, targets: Any, degrees: Any) -> Any:
    """Return nodes (n, 128) after all layers.

    x: nodes (n, 128). sources, targets: the edges, i32 (e). degrees: f32 (n), the number of edges to each node.
    """
    for layer in weights:
        arrived = ops.segment_sum(ops.take(x, sources), targets, x) / degrees[:, None]
        x = ops.relu(ops.dense(layer["own"], x) + ops.dense(layer["others"], arrived))
    return x


def inputs(n: int, e: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 * n + e)
    sources, targets = rng.integers(0, n, (2, e), np.int32)
    degrees = np.maximum(np.bincount(targets, minlength=n), 1).astype(np.float32)
    return [normal(rng, (n, WIDTH)), sources, targets, degrees]


PROGRAMS = [
    Program(
        "GNN",
        "3 layers of message passing, 128 wide, over n nodes and e edges",
        network,
        weights,
        inputs,
        dims=("(n, _)", "(e)", "(e)", "(n)"),
        shapes=[dict(n=n, e=e) for n, e in ((100, 500), (1000, 8000), (10000, 50000))],
        stream={"n": (50, 1000, 1), "e": (100, 5000, 1)},
    )
]
