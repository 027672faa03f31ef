"""Times calls that alternate in one process, so that changes of the machine's speed affect all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import jax

SHORT = 5e-3  # seconds; shorter calls are timed several in a row, after one that wakes the thread pool


def elapsed(call: Callable[[], object]) -> float:
    """Return the seconds until the results of a call are ready."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def take_turns(calls: Sequence[Callable[[], object]], budget: float) -> list[list[float]]:
    """Return the seconds of each call. The calls alternate for about `budget` seconds, at least three times each.

    All must have been called before.
    """
    guess = [min(elapsed(call) for _ in range(2)) for call in calls]
    inner = [max(1, min(50, int(SHORT / 2 / g))) if g < SHORT else 1 for g in guess]
    times: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    while len(times[0]) < 3 * inner[0] or time.perf_counter() - start < budget:
        for call, count, taken in zip(calls, inner, times, strict=True):
            if count > 1:
                jax.block_until_ready(call())
            for _ in range(count):
                taken.append(elapsed(call))
    return times
