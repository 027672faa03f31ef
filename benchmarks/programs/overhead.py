"""The program that measures the overhead of a call, as it has almost nothing to do."""

from __future__ import annotations

import numpy as np

from benchmarks.program import Program

PROGRAMS = [
    Program(
        "x + 1",
        "the overhead of a call, on n numbers",
        lambda ops, weights, x: x + 1,
        lambda draw: {},
        lambda n: [np.arange(n, dtype=np.float32)],
        dims=("(n)",),
        shapes=[dict(n=8)],
        stream={"n": (1, 100, 1)},
    )
]
