"""Measures a subject at each of its sizes: calls both sides, compares their results, and then times them by turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from hlo_disc import pipeline, sources
from hlo_disc.benchmark import subjects
from hlo_disc.benchmark.result import Benchmark, Row, Timing
from hlo_disc.benchmark.turns import take_turns
from hlo_disc.conformance.checks import mismatch
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.executable import Executable
from hlo_disc.jitted import JitFunction
from hlo_disc.options import Options
from hlo_disc.profile import limits
from hlo_disc.random_inputs import LARGEST, shown

if TYPE_CHECKING:
    from jax.typing import ArrayLike

T = TypeVar("T")

Report = Callable[[str], object]


def run(
    source: Any,
    args: Sequence[object],
    sizes: Mapping[str, int | Sequence[int]],
    dims: Any,
    constraints: str | Sequence[str],
    seconds: float,
    seed: int,
    report: Report,
    trusted: bool,
    signature: str,
    options: Options | None,
    overrides: Mapping[str, object],
) -> Benchmark:
    """`hlo_disc.bench`, whose docstring has the arguments and errors."""
    if not seconds > 0:
        raise ArgumentError(f"seconds={seconds}: give a number above 0")
    listed = {name: [_size(name, n) for n in np.atleast_1d(np.asarray(of, object))] for name, of in sizes.items()}
    if isinstance(source, JitFunction):
        options = options or source._options
    merged = pipeline.merge(options, {**overrides, "cache": ""})  # its compile time is measured
    if merged.target.split(":")[0] not in ("cpu", "auto"):
        raise ArgumentError(f"target={merged.target!r}: only programs for the CPU are measured")
    with ExitStack() as open_:
        report("the machine's limits")
        found = limits.measure()
        report("compiling")
        if isinstance(source, Executable) or sources.is_compiled(source):
            if args or dims or constraints:
                raise ArgumentError("what is compiled already takes no specs, dims or constraints")
            subject = subjects.compiled(source, listed, merged, seed)
        elif sources.is_function(source, args):
            subject = subjects.function(source, args, listed, dims, constraints, merged, seed)
        else:
            subject = subjects.program(source, args, listed, dims, constraints, trusted, signature, merged, seed)
        if subject.wide:
            open_.enter_context(jax.enable_x64(True))
            open_.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        rows, notes = [], dict.fromkeys(subject.notes)
        for case in subject.cases:
            row, said = measured(case, found, seconds, report)
            rows.append(row)
            notes.update(dict.fromkeys(said))
    return Benchmark(
        subject.name,
        tuple(rows),
        subject.compiling,
        found.as_dict(),
        limits.describe(),
        tuple(notes),
    )


def _size(name: str, size: object) -> int:
    if not isinstance(size, (int, np.integer)) or not 0 <= size <= LARGEST:
        raise ShapeError(f"the size {size!r} of {name}: must be an integer from 0 to {LARGEST}")
    return int(size)


def measured(case: subjects.Case, found: limits.Limits, seconds: float, report: Report) -> tuple[Row, list[str]]:
    """Measure one row. Returns it with remarks on how to read it."""
    at = f"{shown(case.dims)}: " if case.dims else ""
    notes = []
    report(f"{at}first calls")
    first, result = _first(case.ours)
    calls, firsts, error, wrong = [case.ours], [first], None, ""
    if case.theirs is not None:
        try:
            first, reference = _first(case.theirs)
        except Exception as problem:  # of many kinds; XLA's and JAX's words are all there is
            notes.append(f"{at}jax.jit does not run it: {' '.join(str(problem).split())[:300]}")
        else:
            calls.append(case.theirs)
            firsts.append(first)
            error, wrong = compare(jax.tree.leaves(result), jax.tree.leaves(reference))
    if wrong:
        notes.append(f"{at}{wrong}")
    if case.work.partial:
        notes.append(f"the limit leaves out {case.work.partial}")
    report(f"{at}taking turns for {seconds:.3g} s")
    times = take_turns(calls, seconds)
    ours, *theirs = (Timing(median(t), min(t), first) for t, first in zip(times, firsts, strict=True))
    work = case.work
    limit = work.seconds(found)
    other = theirs[0] if theirs else None
    return Row(case.dims, ours, other, work.total, work.bytes, limit, work.partial, error, wrong), notes


def _first(call: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return time.perf_counter() - start, result


def compare(results: Sequence[ArrayLike], references: Sequence[ArrayLike]) -> tuple[float, str]:
    """Return the error, and a description of what exceeds rounding."""
    pairs = enumerate(zip(map(np.asarray, results), map(np.asarray, references), strict=True))
    texts = ((i, mismatch("like XLA", got, want)) for i, (got, want) in pairs)
    return error(results, references), next((f"result {i}: {text}" for i, text in texts if text), "")


def error(results: Sequence[ArrayLike], references: Sequence[ArrayLike]) -> float:
    """Return the largest difference of all results, each by the largest value of its reference."""
    pairs = zip(map(np.asarray, results), map(np.asarray, references), strict=True)
    return max((_difference(got, want) for got, want in pairs), default=0.0)


def _difference(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape:
        return np.inf
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    got, want = got.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        apart = np.where((got == want) | ((got != got) & (want != want)), 0.0, np.abs(got - want))
        largest = np.max(np.abs(want), initial=0.0, where=np.isfinite(want))
    most = float(np.max(apart, initial=0.0))
    return most / (float(largest) or 1.0) if np.isfinite(most) else np.inf
