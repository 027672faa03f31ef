"""Times two implementations against each other in one process, taking turns, so that the machine's moods hit both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hlo_disc.benchmark.turns import elapsed, take_turns


class Pair(NamedTuple):
    """Median seconds of a call."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.theirs / self.ours


def alternate(ours: Callable[[], Any], theirs: Callable[[], Any], budget: float) -> Pair:
    """Medians over about `budget` seconds of turns, at least three each. Both must have been called before."""
    return Pair(*map(statistics.median, take_turns((ours, theirs), budget)))


def first_call(call: Callable[[], Any]) -> float:
    """Seconds of a call that compiles."""
    gc.collect()
    return elapsed(call)


def per_call(call: Callable[[], Any], count: int = 2000, turns: int = 7) -> float:
    """Seconds of a very short call: the median over turns of the mean of `count` calls, results not waited for."""
    means = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        means.append((time.perf_counter() - start) / count)
    return statistics.median(means)


def error(result: Any, reference: Any) -> float:
    """Largest absolute error over all arrays, each in units of the largest value of its reference."""
    worst = 0.0
    for got, want in zip(jax.tree.leaves(result), jax.tree.leaves(reference), strict=True):
        want = np.asarray(want)
        if want.size:
            worst = max(
                worst, float(np.abs(np.asarray(got, np.float64) - want).max() / max(np.abs(want).max(), 1e-300))
            )
    return worst


def float64(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What `fn` gives when its floats are float64, as numpy arrays."""

    def widen(x: Any) -> Any:
        return np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else x

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(fn)(*jax.tree.map(widen, tuple(args))))
