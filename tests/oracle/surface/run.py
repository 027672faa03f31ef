"""One row, compiled by `hlo_disc.jit` without dims, at all sizes next to `jax.jit`."""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from comparison.accuracy import QUICK

import hlo_disc
from hlo_disc.conformance.checks import mismatch
from hlo_disc.conformance.run import Result, Settings, Stage
from hlo_disc.errors import HloDiscError
from surface import ROWS, Row, size_values
from surface.asking import innermost_lines
from surface.modules import function
from surface.transforms import NONE, TRANSFORMS, Transform

# Two ordinary sizes first, so that what comes after finds a program for all sizes.
SIZES = (7, 32, 1, 31, 0, 2)

# Why an array is not another one; "" where it is.
Unlike = Callable[[np.ndarray, np.ndarray], str]
LIKE_XLA: Unlike = functools.partial(mismatch, "like XLA")


@dataclass
class Outcome(Result):
    """The outcome of a row; "passed" is one that gave what `jax.jit` gives at every size.

    call: the row. fallback: why calls ran through `jax.jit`. asked: what compilations were asked about sizes, with the
    lines. raises: the sizes at which `jax.jit` raises. compilations: the most for one function. Transforms make several
    functions of a row's, each forward and backward.
    """

    call: str = ""
    fallback: str = ""
    compilations: int = 0
    asked: list[str] = field(default_factory=list)
    raises: list[int] = field(default_factory=list)

    @property
    def numbers(self) -> list[str]:
        """The sizes that became numbers, each with the line that asked. A size that is 0 or 1 is a case of its own."""
        return [text for text in self.asked if re.match(r".+ == ([2-9]|\d\d+) \(", text)]


def run_row(path: Path, name: str, settings: Settings, stage: Stage, sizes: Sequence[int] = SIZES) -> Outcome:
    """Run the row of that name, as `surface.ROWS` has it, in a worker of `hlo_disc.conformance.pool`.

    A name may begin with a transform: "vjp of jax.numpy.sum:0"; or with "n in ", a row of `surface.size_values`.
    """
    module = name.rpartition(".")[0]
    transform, of, plain = name.rpartition(" of ")
    _, number, called = plain.rpartition("n in ")
    row = size_values.ROWS[called] if number else ROWS[plain]
    how: dict[str, Any] = size_values.HOW if number else {}
    try:
        with jax.enable_x64(row.x64), innermost_lines(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fallback is in the statistics
            what = TRANSFORMS[transform] if of else NONE
            of_name = function(called.partition(":")[0])
            found = check(row, of_name, sizes, lambda at: stage(at, module, name), what, **how)
    except Exception as error:  # the row's arrays, or the comparison
        found = Outcome(name, status="error", reason=describe(error))
    found.name, found.kind, found.call = name, module, str(row)
    return found


def check(
    row: Row,
    function: Callable[..., Any],
    sizes: Sequence[int],
    at: Callable[[str], None] = lambda at: None,
    transform: Transform = NONE,
    skips: Callable[[Callable[..., Any], Sequence[jax.Array]], bool] = lambda program, arrays: False,
    unlike: Unlike = LIKE_XLA,
    refusable: bool = False,
) -> Outcome:
    """Run the function at these sizes; at(text) is told each before it runs.

    skips: the sizes at which it is not to run, by its arrays. unlike: why an array is not the other. refusable: whether
        `jax.jit` may raise at all sizes.
    """
    program = transform.inside(row.of(function))
    compiled = hlo_disc.jit(program)
    ours, theirs = transform.around(compiled), jax.jit(transform.around(program), compiler_options=QUICK)
    outcome = Outcome("", shapes=len(sizes))
    wrong: dict[int, str] = {}
    for n in sizes:
        at(f"n = {n}")
        arrays = stacked(row, n) if transform.batched else row.arrays(n)
        if skips(program, arrays):
            outcome.shapes -= 1
            continue
        want, got = _timed(outcome, "jax.jit", theirs, arrays), _timed(outcome, "hlo_disc", ours, arrays)
        if isinstance(want, Exception):
            outcome.raises.append(n)
            last = want
        if text := difference(got, want, unlike):
            wrong[n] = text
    stats = compiled.stats()
    outcome.fallback = "; ".join(fallback.reason for fallback in stats.fallbacks)
    outcome.compilations = max(Counter((record.of, record.backward) for record in stats.records).values(), default=0)
    outcome.asked = list(dict.fromkeys(asked for record in stats.records for asked in record.asked))
    if len(outcome.raises) == outcome.shapes and transform is NONE and not refusable:
        outcome.status, outcome.reason = "error", f"jax.jit raises at every size: {describe(last)}"
    elif wrong:
        n, text = next(iter(wrong.items()))
        others = f" (and at {', '.join(map(str, list(wrong)[1:]))})" if len(wrong) > 1 else ""
        outcome.status, outcome.reason = "failed", f"n = {n}: {text}{others}"
    return outcome


def stacked(row: Row, n: int) -> list[jax.Array]:
    """Three draws of the arrays of a row, for `jax.vmap`."""
    return [jax.numpy.stack(draws) for draws in zip(*(row.arrays(n, draw) for draw in range(3)), strict=True)]


def _timed(outcome: Outcome, who: str, function: Callable[..., Any], arrays: Sequence[jax.Array]) -> Any:
    """The results, or the exception."""
    start = time.perf_counter()
    try:
        return jax.block_until_ready(function(*arrays))
    except Exception as error:
        return error
    finally:
        outcome.seconds[who] = outcome.seconds.get(who, 0.0) + time.perf_counter() - start


def difference(got: Any, want: Any, unlike: Unlike = LIKE_XLA) -> str:
    """Why `got` is not what `jax.jit` gave, in values, types, weak types, structure or exception; "" when it is."""
    if isinstance(want, Exception):
        if isinstance(got, OverflowError if isinstance(want, OverflowError) else (HloDiscError, type(want))):
            return ""
        given = describe(got) if isinstance(got, Exception) else "a result"
        return f"{given} where jax.jit raises {describe(want)}"
    if isinstance(got, Exception):
        return f"raises {describe(got)}"
    if (ours := jax.tree.structure(got)) != (theirs := jax.tree.structure(want)):
        return f"the results are {ours} instead of {theirs}"
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return next(filter(None, (_unlike(x, y, unlike) for x, y in pairs)), "")


def _unlike(got: jax.Array, want: jax.Array, unlike: Unlike) -> str:
    if jax.dtypes.issubdtype(want.dtype, jax.dtypes.prng_key):
        if got.dtype != want.dtype:
            return f"got {got.dtype}, expected {want.dtype}"
        got, want = jax.random.key_data(got), jax.random.key_data(want)
    if want.dtype == jax.dtypes.float0:
        return "" if got.dtype == want.dtype and got.shape == want.shape else f"got {got.dtype}, expected float0"
    if got.weak_type != want.weak_type:
        return f"weak_type is {got.weak_type} instead of {want.weak_type}"
    return unlike(np.asarray(got), np.asarray(want))


def describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
