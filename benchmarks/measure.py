"""The time of a call that is too short to be timed alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def per_call(call: Callable[[], Any], count: int = 2000, turns: int = 7) -> float:
    """Return the seconds of a very short call: the median over turns of the mean of `count` calls.

    Only the last result of a turn is waited for.
    """
    means = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        means.append((time.perf_counter() - start) / count)
    return statistics.median(means)
