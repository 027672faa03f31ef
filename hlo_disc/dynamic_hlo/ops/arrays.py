"""The functions that the numpy meanings of ops share.

Sums and products of floats accumulate in f64, so that a comparison against them measures the other side's error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class

Array = np.ndarray
Ints = tuple[int, ...]
Function = Callable[..., list[Array]]  # a region


def accumulator(dtype: np.dtype) -> np.dtype:
    if bit_width(dtype) < 8 and dtype_class(dtype) in ("int", "uint"):
        return np.dtype(np.int64)  # wraps to the same
    return {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}.get(dtype_class(dtype), dtype)


def wide(x: Array) -> Array:
    """Widen: narrow floats to f32, narrow integers to 8 bits, complex numbers to double precision; others stay."""
    if x.dtype == np.complex64:
        return x.astype(np.complex128)
    if dtype_class(x.dtype) == "float":
        return x.astype(np.float32) if x.dtype.itemsize < 4 else x
    if x.dtype == BOOL or bit_width(x.dtype) >= 8:
        return x
    return x.astype(np.int8 if dtype_class(x.dtype) == "int" else np.uint8)


def narrow(x: Array, dtype: np.dtype) -> Array:
    """Convert back to a type: floats are rounded once, integers wrap."""
    if x.dtype == dtype:
        return x
    if x.dtype == np.float64 and dtype_class(dtype) == "float" and dtype.itemsize < 4:
        x = _to_odd_f32(x)
    return x.astype(dtype)


def _to_odd_f32(x: Array) -> Array:
    """Round f64 to f32 such that one more rounding gives the result of a single rounding."""
    nearest = np.asarray(x.astype(np.float32))
    beyond = (np.abs(nearest) > np.abs(x)) & np.isfinite(x)
    below = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    odd = (np.asarray(below).view(np.int32) | (below != x)).view(np.float32)
    return np.where(np.isfinite(x), odd, nearest)
