"""The checks of results: those of StableHLO's reference interpreter, and a tolerance for two implementations.

Complex numbers are compared part by part. A mismatch is one line: how many elements, the worst of them, both values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import is_float

_ULPS = 3
# How far apart two correct implementations may be: of the value, and of the largest value beside it.
_TOLERANCES = {8: (1e-9, 1e-11), 4: (2e-4, 2e-5), 2: (2e-2, 4e-3), 1: (0.3, 0.1)}


def mismatch(kind: str, got: np.ndarray, want: np.ndarray) -> str:
    """Describe what is wrong with `got`; "" when it passes the check `kind`. Raises KeyError for an unknown check."""
    wrong = CHECKS[kind]
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{kind}: got {_type(got)}, expected {_type(want)}"
    if want.dtype.kind == "c":
        bad = _bad(wrong, got.real, want.real) | _bad(wrong, got.imag, want.imag)
    else:
        bad = _bad(wrong, got, want)
    count = int(bad.sum())
    if not count:
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    where = f" at {list(at)}" if at else ""
    return f"{kind}: {count} of {want.size} elements differ; first{where}: got {got[at]}, expected {want[at]}"


def _bad(wrong: Callable[[np.ndarray, np.ndarray], np.ndarray], got: np.ndarray, want: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(wrong(got, want) & ~_same(got, want))


def _same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    equal = np.asarray(got == want)
    return equal | ((got != got) & (want != want)) if is_float(want.dtype) else equal


def _unequal(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return np.asarray(got != want)


def _not_close(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    if not is_float(want.dtype):
        return _unequal(got, want)
    finite = np.isfinite(got) & np.isfinite(want)
    # Differences of the ordered bit patterns: what overflows is far apart in any case.
    distance = np.abs(_ordered(got).astype(np.longdouble) - _ordered(want).astype(np.longdouble))
    return np.asarray(~finite | (distance > _ULPS))


def _ordered(x: np.ndarray) -> np.ndarray:
    """Map floats to integers in their order; neighbours are 1 apart, and both zeros are 0."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape)
    lowest = np.iinfo(bits.dtype).min
    return np.where(bits < 0, lowest - bits, bits)


def _further(tolerance: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def wrong(got: np.ndarray, want: np.ndarray) -> np.ndarray:
        if not is_float(want.dtype):
            return _unequal(got, want)
        return ~(np.abs(got.astype(np.float64) - want.astype(np.float64)) <= tolerance)

    return wrong


def _unlike(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return which elements differ by more than two correct implementations may, which order their sums differently."""
    if not is_float(want.dtype):
        return _unequal(got, want)
    relative, of_largest = _TOLERANCES[want.dtype.itemsize]
    wide = want.astype(np.float64)
    largest = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
    return np.asarray(~(np.abs(got.astype(np.float64) - wide) <= relative * np.abs(wide) + of_largest * largest))


CHECKS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "expect_eq": _unequal,
    "expect_close": _not_close,
    "expect_almost_eq": _further(1e-3),
    "eq": _further(1e-4),
    "like XLA": _unlike,
}


def _type(x: np.ndarray) -> str:
    return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
