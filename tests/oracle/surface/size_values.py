"""Sizes as numbers: the rows of the surface table with a size in the place of an argument, next to `jax.jit`.

Of a row that hands its arrays to the function, each array in turn and each number among its options becomes `n`, the
number of rows of an array that has no elements, so that it may be any number. The others stay, small. What takes
numbers elsewhere is in `tables/size_numbers.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax._src import core

from hlo_disc.conformance.checks import mismatch
from hlo_disc.dynamic_hlo.ir.dtypes import is_float
from surface.row import Row
from surface.tables import TABLES
from surface.tables.size_numbers import TABLES as OTHERS

# Ordinary ones first; then where a number, its square, or half of n * (n - 1) is the last one that 16 or 32 bits hold.
SIZES = (
    *(5, 6, 2**15 - 1, 2**15, 2**15 + 1, 46340, 46341, 46342, 2**16 - 1, 2**16, 2**16 + 1),
    *(2**31 - 1, 2**31, 2**31 + 1),
)
_SIZE = "i8[n, 0]"
# Options that say how many axes there are, parts to make, or steps that JAX's Python takes: none of them is a number.
_COUNTS = {"ndmin", "rank", "indices_or_sections", "reps", "jax.numpy.diff n", "jax.numpy.linalg.matrix_power n"}
# Functions that are not compared, or of one only this row, and why.
_CANCELS = "so many digits cancel that roundings, which are not XLA's one by one, decide about the rest"
_WRAPS = "a start of 2^31 wraps in JAX; here it is an error"
_ENDLESS = "XLA's own loop does not end at 2^31 - 1, which no f32 is"
LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("jax.random.wald", "jax.scipy.special.comb", "jax.scipy.stats.betabinom.logpmf"),
            *(f"jax.scipy.stats.cauchy.{name}" for name in ("cdf", "logcdf", "logsf", "sf")),
            *("jax.scipy.stats.betabinom.pmf:0", "jax.scipy.stats.nbinom.pmf:0", "jax.scipy.stats.binom.pmf:1"),
            *("jax.scipy.special.betainc:1", "jax.scipy.stats.beta.logsf:2", "jax.scipy.stats.beta.sf:2"),
        ),
        _CANCELS,
    ),
    **dict.fromkeys(("jax.scipy.special.expn:0", *(f"jax.scipy.special.hyp2f1:{i}" for i in range(3))), _ENDLESS),
    "jax.scipy.special.hyp1f1:2": "XLA subtracts infinities where the result is infinite",
    "jax.numpy.histogram:2": "a number that lies at an edge, whose last bit another rounding of linspace decides",
    "surface.compositions.powers:0": "each turn multiplies an error by the size",
    **dict.fromkeys(("jax.lax.dynamic_slice_in_dim", "jax.lax.dynamic_update_slice_in_dim"), _WRAPS),
    "jax.lax.slice_in_dim": "strides have to be numbers, so that the call falls back",
    "jax.scipy.special.polygamma": "XLA's zeta is NaN of a large exponent, also of an array",
}
_LARGEST = 1 << 24  # elements of an array that a row may make, and turns of a loop


def with_a_size(name: str, row: Row) -> Iterator[Row]:
    """The row of a function with a size in the place of each array, and of each number of its options."""
    if row.call is not None:
        return
    specs = tuple(spec if spec.startswith("key") else _small(spec) for spec in row.specs)
    for i, spec in enumerate(specs):
        if not spec.startswith("key"):
            yield Row((*specs[:i], _SIZE, *specs[i + 1 :]), _number_at(i, row.options), row.options)
    for option, value in row.options.items():
        if type(value) in (int, float) and not {option, f"{name} {option}"} & _COUNTS:
            yield Row((*specs, _SIZE), _number_as(option, row.options), {**row.options, option: "n"})


def _small(spec: str) -> str:
    """The array with 3 in the place of n."""
    return re.sub(r"\bn\b", "3", spec)


def _number_at(i: int, options: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda f, *arrays: f(*arrays[:i], arrays[i].shape[0], *arrays[i + 1 :], **options)


def _number_as(name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda f, *arrays: f(*arrays[:-1], **{**options, name: arrays[-1].shape[0]})


def is_large(program: Callable[..., Any], arrays: Sequence[jax.Array]) -> bool:
    """Whether an array that it makes is, or a loop is long. What raises makes nothing."""
    try:
        closed = jax.make_jaxpr(program)(*arrays)
    except Exception:
        return False
    return any(map(_is_large, _equations(closed.jaxpr)))


def _equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from _equations(inner)


def _is_large(eqn: Any) -> bool:
    counts = [math.prod(getattr(v.aval, "shape", ())) for v in eqn.outvars]
    return max([*counts, eqn.params.get("length") or 0]) > _LARGEST


def unlike(got: np.ndarray, want: np.ndarray) -> str:
    """Beyond what rounding in another order explains, much less than one more or one less in 2^16 does."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return mismatch("expect_eq", got, want)
    if want.dtype.kind == "c":
        got, want = (np.stack([x.real, x.imag]) for x in (got, want))
    if is_float(want.dtype):
        limits = ml_dtypes.finfo(want.dtype)
        wide, eps = want.astype(np.float64), float(limits.eps)
        largest = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
        with np.errstate(all="ignore"):
            near = np.abs(got.astype(np.float64) - wide) <= eps * (32 * np.abs(wide) + 8 * largest) + float(limits.tiny)
        got = np.where(near, want, got)
    return mismatch("expect_eq", got, want)


# Of `surface.run.check`. Where functions take no numbers, they say so.
HOW: Mapping[str, Any] = {"skips": is_large, "unlike": unlike, "refusable": True}


def _rows(module: str, name: str) -> list[Row]:
    """Rows that differ in no more than the array whose place the size has taken become the same."""
    made = [sized for row in TABLES[module][name] for sized in with_a_size(f"{module}.{name}", row)]
    return [*{str(row): row for row in made}.values(), *OTHERS.get(module, {}).get(name, ())]


ROWS: dict[str, Row] = {
    f"{module}.{name}:{i}": row
    for module, functions in TABLES.items()
    for name in functions
    for i, row in enumerate(_rows(module, name))
    if LEFT_OUT.keys().isdisjoint((f"{module}.{name}", f"{module}.{name}:{i}"))
}
