"""Pieces of StableHLO text: types, constants, names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class, element_type
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value

# The attribute that says what the sizes of an argument are.
ARGUMENT_SHAPE = "hlo_disc.shape"


def tensor_type(dtype: np.dtype, shape: Shape) -> str:
    """Write a type: `tensor<?x768xf32>`, with `?` for each size that is not constant."""
    sizes = "".join(f"{size}x" if size.is_const else "?x" for size in shape)
    return f"tensor<{sizes}{element_type(dtype)}>"


def value_type(value: Value) -> str:
    return tensor_type(value.dtype, value.shape)


def _element(x: np.ndarray | np.generic) -> str:
    dtype = x.dtype
    if dtype == BOOL:
        return "true" if x else "false"
    if dtype_class(dtype) == "complex":
        return f"({_element(x.real)}, {_element(x.imag)})"
    if dtype_class(dtype) != "float":
        return str(int(x))
    # MLIR reads a decimal as f64 and rounds: good where that gives the same bits.
    text = f"{float(x):.6e}"
    bits = np.asarray(x).view(f"u{dtype.itemsize}")
    if np.isfinite(float(x)) and np.asarray(float(text)).astype(dtype).view(bits.dtype) == bits:
        return text
    return f"0x{int(bits):0{-(-bit_width(dtype) // 4)}X}"


def dense(array: np.ndarray) -> str:
    """Write an array as an MLIR elements attribute; a long one as a blob of bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return "dense<>"
    if flat.tobytes() == flat[:1].tobytes() * flat.size:
        return f"dense<{_element(flat[0])}>"
    if flat.size > 32 and array.dtype != BOOL and bit_width(array.dtype) >= 8:
        return f'dense<"0x{flat.tobytes().hex().upper()}">'
    return f"dense<{_nested(array)}>"


def _nested(array: np.ndarray) -> str:
    return _element(array[()]) if not array.ndim else listed(map(_nested, array))


def dense_array(numbers: Iterable[object], element: str = "i64") -> str:
    """Write `array<i64: 1, 2>`."""
    text = ", ".join(map(str, numbers))
    return f"array<{element}{f': {text}' if text else ''}>"


def listed(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def string(text: str) -> str:
    """Write an MLIR string literal, with a backslash and two hex digits for characters that need escaping."""
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda c: f"\\{ord(c[0]):02X}", text) + '"'


def symbol(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w.$]*", name) else string(name)
