"""The error of functions of floats, in units of the last place of the exact result."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
REFERENCES = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "cbrt")},
    **{name: getattr(np, name) for name in ("tanh", "sin", "cos", "tan")},
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
}
# (largest exponent, smallest exponent of a normal number, bits of the significand)
FORMATS = {"f16": (15, -14, 11), "bf16": (127, -126, 8), "f32": (127, -126, 24), "f64": (1023, -1022, 53)}
SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, 1e-45, -1e-45, 1e-40,
    1.1754944e-38, 3.4028235e38, -3.4028235e38, 1e30, -1e30, 16777216.0, 16777215.0, 88.72284, 88.8, -87.4, -103.97,
    -104.5, 9.03, -9.03, 10.05, 1e5,
]  # fmt: skip


def exact_of(function: str, arguments: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return REFERENCES[function](*[x.astype(np.float64) for x in arguments])


def ulps(actual: np.ndarray, exact: np.ndarray, dtype: str) -> np.ndarray:
    """Return each result's error in units of the last place of the exact one; inf where a special value is wrong."""
    _, lowest, bits = FORMATS[dtype]
    _, exponent = np.frexp(np.abs(exact))
    with np.errstate(all="ignore"):
        rounded = exact.astype(DTYPES[dtype]).astype(np.float64)
        unit = np.ldexp(1.0, np.maximum(exponent, lowest + 1) - bits)
        got = actual.astype(np.float64)
        error = np.abs(got - exact) / unit
    error = np.where(np.isnan(error), np.inf, error)
    special = ~np.isfinite(rounded)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # beyond the largest number, the largest number is one ulp off and an infinity is right
    return np.where(special, np.where(same, 0.0, error), error)


def numbers_of_all_sizes(dtype: str, count: int) -> np.ndarray:
    """Return numbers of every size: random bits, the ranges where functions change, and special values."""
    rng = np.random.default_rng(len(dtype) + count)
    kind = DTYPES[dtype]
    width = np.dtype(kind).itemsize
    random_bits = rng.integers(0, 256, (count, width), np.uint8).view(kind)[:, 0]
    pieces = [random_bits.astype(kind)]
    for low, high in ((-110, 110), (-10, 10), (-1, 1), (0.5, 2), (0, 1e-3)):
        pieces.append(rng.uniform(low, high, count).astype(kind))
    with np.errstate(over="ignore"):
        pieces.append(np.array(SPECIAL).astype(kind))
    return np.concatenate(pieces)
