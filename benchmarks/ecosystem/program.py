"""A program of a library, written as in its documentation, and the goals of its calls next to `jax.jit`."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import hlo_disc
from hlo_disc.benchmark.turns import take_turns
from hlo_disc.conformance.checks import mismatch

MOST_COMPILATIONS = 3
# In the order of the calls.
BATCHES = (8, 32, 1, 7, 64, 33)
LENGTHS = (16, 32, 1, 77, 128, 31)

Made = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]


@dataclass(frozen=True)
class Program:
    """A program. make: imports the library; returns a function, and arguments by size. sizes: in the order of calls."""

    name: str
    make: Callable[[], Made]
    sizes: Sequence[int]


@dataclass
class Outcome:
    """The outcome of a program. wrong: the first difference from `jax.jit`. ratios: its time over ours, by size."""

    name: str
    wrong: str = ""
    fallbacks: list[str] = field(default_factory=list)
    compilations: list[str] = field(default_factory=list)
    ratios: dict[int, float] = field(default_factory=dict)
    ms: dict[int, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return statistics.geometric_mean(self.ratios.values()) if self.ratios else 0.0

    @property
    def missed(self) -> list[str]:
        """The goals that the program misses."""
        count = len(self.compilations)
        goals = {
            self.wrong: bool(self.wrong),
            f"{len(self.fallbacks)} fallbacks": bool(self.fallbacks),
            f"{count} compilations": count > MOST_COMPILATIONS,
            f"{self.ratio:.2f} of jax.jit's speed": 0.0 < self.ratio < 1.0,
        }
        return [text for text, missed in goals.items() if missed]


def run(program: Program, seconds: float) -> Outcome:
    """Call a program at all its sizes, then time it at each for about `seconds`."""
    fn, arguments = program.make()
    ours, theirs = hlo_disc.jit(fn), jax.jit(fn)
    outcome = Outcome(program.name)
    for n in program.sizes:
        args = arguments(n)
        want = theirs(*args)
        try:
            text = difference(ours(*args), want)
        except Exception as error:  # it does not end the table
            outcome.wrong = f"at {n}: raises {type(error).__name__}: {error}"
            return outcome
        outcome.wrong = outcome.wrong or (text and f"at {n}: {text}")
    for n in program.sizes if seconds else ():
        args = arguments(n)
        calls = [functools.partial(call, *args) for call in (ours, theirs)]
        mine, other = map(statistics.median, take_turns(calls, seconds))
        outcome.ratios[n], outcome.ms[n] = other / mine, 1e3 * mine
    stats = ours.stats()
    outcome.fallbacks = [fallback.reason for fallback in stats.fallbacks]
    outcome.compilations = [record.reason for record in stats.records]
    return outcome


def difference(got: Any, want: Any) -> str:
    """Return how `got` differs from `jax.jit`'s result in structure, types, weak types or values; "" if it does not."""
    if (ours := jax.tree.structure(got)) != (theirs := jax.tree.structure(want)):
        return f"the results are {ours} instead of {theirs}"
    named = jax.tree_util.tree_flatten_with_path(want)[0]
    for x, (path, y) in zip(jax.tree.leaves(got), named, strict=True):
        if jax.dtypes.issubdtype(y.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        text = mismatch("like XLA", np.asarray(x), np.asarray(y))
        if not text and x.weak_type != y.weak_type:
            text = f"weak_type is {x.weak_type} instead of {y.weak_type}"
        if text:
            return f"result{jax.tree_util.keystr(path)}: {text}"
    return ""


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def tokens(*shape: int, below: int) -> jax.Array:
    return jax.random.randint(jax.random.key(len(shape)), shape, 0, below)
