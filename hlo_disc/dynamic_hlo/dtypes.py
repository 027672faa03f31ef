"""Facts about element types: numpy's and those of ml_dtypes, which numpy itself knows next to nothing of.

Types of fewer than 8 bits take a byte an element in memory, in its low bits.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

BOOL = np.dtype(bool)
COMPLEX_PARTS: dict[np.dtype, np.dtype] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
_CLASSES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@functools.cache
def dtype_class(dtype: np.dtype) -> str:
    """bool, int, uint, float or complex; numpy itself calls the types of ml_dtypes void."""
    if dtype.kind in _CLASSES:
        return _CLASSES[dtype.kind]
    return "uint" if dtype.name.startswith("uint") else "int" if dtype.name.startswith("int") else "float"


def is_integer(dtype: np.dtype) -> bool:
    """Of either sign, not bool."""
    return dtype_class(dtype) in ("int", "uint")


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex number's parts; any other dtype itself."""
    return COMPLEX_PARTS.get(dtype, dtype)


@functools.cache
def bit_width(dtype: np.dtype) -> int:
    """The bits of an element that mean something; 8 for bool, which is a byte wherever its bits are looked at."""
    match dtype_class(dtype):
        case "int" | "uint":
            return ml_dtypes.iinfo(dtype).bits
        case "float":
            return ml_dtypes.finfo(dtype).bits
    return 8 * dtype.itemsize


@functools.cache
def int_limits(dtype: np.dtype) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)
