"""Judges results: integers exactly, floats by their error against a float64 evaluation, next to XLA's error."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from cases.programs import Program

FACTOR = 2.0
QUICK = {"xla_backend_optimization_level": 0}


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == np.dtype(ml_dtypes.bfloat16)


def leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    """The arrays of a result, each with its path."""
    return [(jax.tree_util.keystr(path), np.asarray(x)) for path, x in jax.tree_util.tree_leaves_with_path(tree)]


@functools.lru_cache(maxsize=64)
def expected(program: Program, sizes: tuple[tuple[str, int], ...]) -> tuple[list, list]:
    """Return XLA's results, and the results in float64."""
    inputs = program.inputs(dict(sizes))
    with jax.enable_x64(program.x64):
        xla = leaves(jax.jit(program.fn)(*inputs))
    if program.x64 or not any(is_float(x.dtype) for _, x in xla):
        return xla, xla
    wide = [x.astype(np.float64) if is_float(x.dtype) else x for x in inputs]
    if program.exact is not None:
        with np.errstate(all="ignore"):
            return xla, leaves(program.exact(*wide))
    with jax.enable_x64(True):
        return xla, leaves(jax.jit(program.fn, compiler_options=QUICK)(*wide))


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


def complaints(program: Program, sizes: dict[str, int], result: Any) -> list[str]:
    """Every way in which `result` at `sizes` is wrong."""
    xla, exact = expected(program, tuple(sizes.items()))
    got = leaves(result)
    if [path for path, _ in got] != [path for path, _ in xla]:
        return [f"{sizes}: results {[path for path, _ in got]} instead of {[path for path, _ in xla]}"]
    found: list[str] = []
    rows: Sequence = list(zip(got, xla, exact, strict=True))
    for (path, ours), (_, theirs), (_, best) in rows:
        text = complaint(ours, theirs, best, program.relative, program.slack)
        if text:
            found.append(f"{sizes}{' ' + path if path else ''}: {text}")
    return found
