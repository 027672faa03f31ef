"""Facts about element types: numpy's, and those of ml_dtypes, of which numpy itself knows almost nothing.

Types of fewer than 8 bits take a byte an element in memory, in its low bits.
"""

from __future__ import annotations

import functools
import re

import ml_dtypes
import numpy as np

from hlo_disc.errors import CompileError

BOOL = np.dtype(bool)
COMPLEX_PARTS: dict[np.dtype, np.dtype] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
_CLASSES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


# Every type that StableHLO has and that is supported, but for bool and the complex ones.
FLOATS: tuple[np.dtype, ...] = tuple(
    np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "float16", "bfloat16", "float32", "float64", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4",
        "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
)  # fmt: skip
INTEGERS: tuple[np.dtype, ...] = tuple(
    np.dtype(getattr(ml_dtypes, f"{sign}int{bits}", f"{sign}int{bits}"))
    for sign in ("", "u")
    for bits in (2, 4, 8, 16, 32, 64)
)


@functools.cache
def dtype_class(dtype: np.dtype) -> str:
    """Return bool, int, uint, float or complex; numpy itself calls the types of ml_dtypes void."""
    if dtype.kind in _CLASSES:
        return _CLASSES[dtype.kind]
    return "uint" if dtype.name.startswith("uint") else "int" if dtype.name.startswith("int") else "float"


def is_integer(dtype: np.dtype) -> bool:
    """Whether a dtype is a signed or unsigned integer, not bool."""
    return dtype_class(dtype) in ("int", "uint")


def is_float(dtype: np.dtype) -> bool:
    """Whether it is real, of any width."""
    return dtype_class(dtype) == "float"


def is_small_float(dtype: np.dtype) -> bool:
    """Whether it is a float of fewer bits than f32, which is computed in f32."""
    return is_float(dtype) and dtype.itemsize < 4


def computed(dtype: np.dtype) -> np.dtype:
    """Return the type in which formulas and sums of a type are computed."""
    return np.dtype(np.float32) if is_small_float(dtype) else dtype


def is_unsigned(dtype: np.dtype) -> bool:
    """Whether its integers, or truth values, compare and widen as unsigned."""
    return dtype_class(dtype) in ("uint", "bool")


def part_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of a complex number's parts; any other dtype itself."""
    return COMPLEX_PARTS.get(dtype, dtype)


@functools.cache
def bit_width(dtype: np.dtype) -> int:
    """Return the number of significant bits of an element."""
    match dtype_class(dtype):
        case "bool":
            return 1
        case "int" | "uint":
            return int(ml_dtypes.iinfo(dtype).bits)
        case "float":
            return int(ml_dtypes.finfo(dtype).bits)
    return 8 * dtype.itemsize


@functools.cache
def dtype_text(dtype: np.dtype) -> str:
    """Return `str(dtype)`, for which numpy calls a dozen functions of Python each time."""
    return str(dtype)


@functools.cache
def int_limits(dtype: np.dtype) -> tuple[int, int]:
    """Return the smallest and the largest integer of a type."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


@functools.cache
def limits(dtype: np.dtype) -> tuple[float, float]:
    """Return the least and the greatest element of a type that is not complex. Some small floats lack infinities."""
    if not is_float(dtype):
        return (0, 1) if dtype == BOOL else int_limits(dtype)
    if np.isinf(np.array(np.inf).astype(dtype)):
        return -np.inf, np.inf
    info = ml_dtypes.finfo(dtype)
    return float(info.min), float(info.max)


@functools.cache
def element_type(dtype: np.dtype) -> str:
    """Return the MLIR name of a dtype: float32 is f32, uint8 is ui8, float8_e4m3fn is f8E4M3FN."""
    if dtype == BOOL:
        return "i1"
    if dtype in COMPLEX_PARTS:
        return f"complex<{element_type(COMPLEX_PARTS[dtype])}>"
    match = re.fullmatch(r"(bfloat|float|uint|int)(\d+)(?:_(\w+))?", dtype.name)
    if match is None:
        raise CompileError(f"dtype {dtype} has no StableHLO type")
    prefix = {"bfloat": "bf", "float": "f", "uint": "ui", "int": "i"}[match[1]]
    return f"{prefix}{match[2]}{(match[3] or '').upper()}"
