"""Networks of one recurrent layer: LSTM (Hochreiter, Schmidhuber 1997), GRU (Cho et al. 2014, arXiv:1406.1078)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import DENSE, Draw, Program, normal

WIDTH = 256


def matrices(draw: Draw, gates: int) -> Any:
    return {name: {DENSE: draw.normal(WIDTH, gates * WIDTH, scale=WIDTH**-0.5)} for name in ("input", "hidden")}


def lstm_weights(draw: Draw) -> Any:
    return {**matrices(draw, 4), "bias": draw.normal(4 * WIDTH)}


def gru_weights(draw: Draw) -> Any:
    biases = {name: draw.normal(3 * WIDTH) for name in ("input_bias", "hidden_bias")}
    return {**matrices(draw, 3), **biases}


def lstm(ops: Any, weights: Any, xs: Any) -> Any:
    """Return the outputs of all steps (t, b, 256) and the last state, (b, 256) twice, for xs (t, b, 256)."""
    return ops.lstm(weights, xs)


def gru(ops: Any, weights: Any, xs: Any) -> Any:
    """Return the outputs of all steps (t, b, 256) and the last one (b, 256), for xs (t, b, 256)."""
    return ops.gru(weights, xs)


def inputs(t: int, b: int) -> list[np.ndarray]:
    return [normal(np.random.default_rng(1000 * t + b), (t, b, WIDTH))]


PROGRAMS = [
    Program(
        name,
        "one layer of 256, t steps of b sequences",
        fn,
        weights,
        inputs,
        dims=("(t, b, _)",),
        shapes=[dict(t=t, b=b) for t, b in ((128, 1), (128, 8), (128, 32), (50, 4))],
        stream={"t": (10, 130, 10), "b": (1, 16, 1)},
    )
    for name, fn, weights in (("LSTM", lstm, lstm_weights), ("GRU", gru, gru_weights))
]
