"""Judges results: integers exactly, floats by their error against a float64 evaluation, next to XLA's error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
from cases.programs import Program

from comparison.by_xla import at_each

FACTOR = 2.0
QUICK = {"xla_backend_optimization_level": 0}


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == np.dtype(ml_dtypes.bfloat16)


def leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    """The arrays of a result, each with its path."""
    return [(jax.tree_util.keystr(path), np.asarray(x)) for path, x in jax.tree_util.tree_leaves_with_path(tree)]


@functools.lru_cache(maxsize=2)
def expected(program: Program) -> list[tuple[list, list]]:
    """Return XLA's results at each of the program's sizes, and the results in float64."""
    calls = [program.inputs(sizes) for sizes in program.sizes()]
    with jax.enable_x64(program.x64):
        xla = [*map(leaves, at_each(program.fn, calls))]
    if program.x64 or not any(is_float(x.dtype) for _, x in xla[0]):
        return list(zip(xla, xla, strict=True))
    wide = [[x.astype(np.float64) if is_float(x.dtype) else x for x in call] for call in calls]
    if program.exact is not None:
        with np.errstate(all="ignore"):
            return [(theirs, leaves(program.exact(*call))) for theirs, call in zip(xla, wide, strict=True)]
    with jax.enable_x64(True):
        return list(zip(xla, map(leaves, at_each(program.fn, wide, compiler_options=QUICK)), strict=True))


def complaint(got: np.ndarray, xla: np.ndarray, exact: np.ndarray, relative: bool, slack: float = 4.0) -> str:
    """Return why `got` is not as good as `xla`, "" when it is.

    `exact` is the float64 evaluation. NaN and infinities must be where XLA has them, or where `exact` has: XLA's own
    vectorised reductions lose NaN at some sizes. The error, over the whole array or in ulp of each element, may be
    FACTOR times that of XLA and `slack` ulp.
    """
    if got.dtype != xla.dtype or got.shape != xla.shape:
        return f"{got.dtype}{list(got.shape)} instead of {xla.dtype}{list(xla.shape)}"
    if not is_float(xla.dtype):
        wrong = got != xla
        return _first(wrong, got, xla, "wrong") if wrong.any() else ""
    info = ml_dtypes.finfo(xla.dtype)
    epsilon, tiny = float(info.eps), float(info.tiny)
    got, xla, exact = (x.astype(np.float64) for x in (got, xla, exact))
    special = ~np.isfinite(xla) | ~np.isfinite(exact)
    wrong = special & ~(_same(got, xla) | _same(got, exact))
    wrong |= ~special & ~np.isfinite(got)
    if wrong.any():
        return _first(wrong, got, xla, "wrong NaN or infinity")
    finite = ~special
    if not finite.any():
        return ""
    size = np.abs(exact[finite])
    ulp = np.maximum(size if relative else size.max(), tiny) * epsilon
    ours, theirs = (np.abs(x[finite] - exact[finite]) / ulp for x in (got, xla))
    bound = FACTOR * theirs.max() + slack
    if ours.max() <= bound:
        return ""
    wrong = np.zeros(xla.shape, bool)
    wrong[finite] = ours > bound
    return _first(wrong, got, exact, f"error {ours.max():.3g} ulp, XLA's {theirs.max():.3g}, too large")


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _first(wrong: np.ndarray, got: np.ndarray, want: np.ndarray, what: str) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{what} at {wrong.sum()} of {wrong.size}, first {list(at)}: {got[at]} instead of {want[at]}"


def complaints(program: Program, run: Callable[..., Any]) -> list[str]:
    """Every way in which the results of `run` at the program's sizes are wrong."""
    found: list[str] = []
    for sizes, (xla, exact) in zip(program.sizes(), expected(program), strict=True):
        got = leaves(run(*program.inputs(sizes)))
        if [path for path, _ in got] != [path for path, _ in xla]:
            found.append(f"{sizes}: results {[path for path, _ in got]} instead of {[path for path, _ in xla]}")
            continue
        for (path, ours), (_, theirs), (_, best) in zip(got, xla, exact, strict=True):
            text = complaint(ours, theirs, best, program.relative, program.slack)
            if text:
                found.append(f"{sizes}{' ' + path if path else ''}: {text}")
    return found
