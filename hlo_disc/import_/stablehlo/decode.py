"""MLIR types, attributes and locations as Python values, each distinct one decoded once.

MLIR objects are uniqued in their context and hash by address, so a cache look-up costs less than reading a type again.
A `Decoder` lives as long as one import; nothing is kept afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ir.dtypes import (
    BOOL,
    COMPLEX_PARTS,
    FLOATS,
    INTEGERS,
    bit_width,
    dtype_class,
    element_type,
    is_integer,
)
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.mlir import MlirValue, ir

T = TypeVar("T")

# Frames of ours, by which a traced function was called, are not the user's.
_OWN_FILES = str(Path(__file__).parents[2]) + "/"

_MOST_AXES = 64  # numpy's

# A static size, or None where the type says `?`.
TypeShape = tuple[int | None, ...]

_DTYPES: dict[str, np.dtype] = {
    "index": np.dtype(np.int64),
    **{element_type(dtype): dtype for dtype in (BOOL, *INTEGERS, *FLOATS, *COMPLEX_PARTS)},
}


class UnsupportedTypeError(UnsupportedOpError):
    """An element type that DHLO does not have; the reader adds the op."""


class Decoder:
    """Caches for one module."""

    def __init__(self) -> None:
        self._types: dict[ir.Type, tuple[np.dtype, TypeShape]] = {}
        self._attributes: dict[tuple[Callable[..., Any], ir.Attribute], Any] = {}
        self._lines: dict[ir.Attribute, str] = {}

    def tensor(self, kind: ir.Type) -> tuple[np.dtype, TypeShape]:
        """Return dtype and sizes of a tensor type. Raises UnsupportedTypeError."""
        found = self._types.get(kind)
        if found is None:
            found = self._types[kind] = _tensor(kind)
        return found

    def static_tensor(self, kind: ir.Type) -> tuple[np.dtype, tuple[int, ...] | None]:
        """Return dtype and sizes of a tensor type; None for the sizes if one is `?`. Raises UnsupportedTypeError."""
        dtype, sizes = self.tensor(kind)
        return dtype, None if None in sizes else sizes  # type: ignore[return-value]

    def attribute(self, attribute: ir.Attribute, decode: Callable[[ir.Attribute], T]) -> T:
        """Compute `decode(attribute)`, once for each attribute."""
        key = (decode, attribute)
        if key not in self._attributes:
            self._attributes[key] = decode(attribute)
        decoded: T = self._attributes[key]
        return decoded

    def line(self, op: ir.OpView) -> str:
        """Return the user's line of an op as "model.py:12:3 (layer)", or ""."""
        location = op.location
        key = location.attr
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = location_line(location)
        return found


def _tensor(kind: ir.Type) -> tuple[np.dtype, TypeShape]:
    if not isinstance(kind, ir.RankedTensorType):
        raise UnsupportedTypeError(f"a value of type {kind} is not supported: DHLO has tensors of known rank only")
    dtype = _DTYPES.get(str(kind.element_type))
    if dtype is None and "!quant." in str(kind):  # parsed where something has loaded the dialect
        raise UnsupportedTypeError(f"quantized types are not supported: {kind}")
    if dtype is None:
        raise UnsupportedTypeError(f"the element type of {kind} is not supported; supported are {', '.join(_DTYPES)}")
    if kind.rank > _MOST_AXES:
        raise UnsupportedTypeError(f"a tensor of {kind.rank} dimensions: arrays have at most {_MOST_AXES}")
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = tuple(None if size == dynamic else size for size in kind.shape)
    if math.prod(filter(None, sizes)) * dtype.itemsize >= 2**63:
        raise UnsupportedTypeError(f"{kind} has more bytes than 64 bits can count")
    return dtype, sizes


def ints(attribute: ir.Attribute) -> tuple[int, ...]:
    """Decode a dense array or dense elements of integers."""
    if isinstance(attribute, ir.DenseElementsAttr):
        return tuple(np.asarray(attribute).reshape(-1).tolist())
    # There is a class for arrays of each type. What is none has no elements: a TypeError.
    return tuple(map(int, cast("Iterable[int]", attribute)))


def integer(attribute: ir.Attribute) -> int:
    return ir.IntegerAttr(attribute).value


def enumerator(attribute: ir.Attribute) -> str:
    """Return the name of an enumeration's value, as LT or HIGHEST, in StableHLO's or CHLO's attribute."""
    return str(attribute).rstrip(">").rsplit(" ", 1)[-1]


def is_token(value: MlirValue) -> bool:
    """Whether a value of a module only orders effects."""
    return bool(mlir.stablehlo.TokenType.isinstance(value.type))


def flag(attribute: ir.Attribute) -> bool:
    return ir.BoolAttr(attribute).value


def text(attribute: ir.Attribute) -> str:
    """Decode a string; bytes that are not UTF-8, which MLIR allows, are replaced."""
    return ir.StringAttr(attribute).value_bytes.decode(errors="replace")


def constant(op: ir.OpView, dtype: np.dtype) -> np.ndarray:
    """Return the value of a constant op, as `array` does."""
    return _complex(op, dtype) if dtype.kind == "c" else array(op.attributes["value"], dtype)


def _complex(op: ir.OpView, dtype: np.dtype) -> np.ndarray:
    """Read a complex constant from its text, as pairs: the bindings have no attribute for it."""
    elements = str(op).partition("dense<")[2].rpartition("> : tensor<")[0]
    shape = ir.RankedTensorType(op.results[0].type).shape
    is_splat = elements.startswith("(")
    pairs = "".join(f"{size}x" for size in ([] if is_splat else shape))
    kind = f"tensor<{pairs}2xf{dtype.itemsize * 4}>"
    floats = ir.Attribute.parse(f"dense<{elements.replace('(', '[').replace(')', ']')}> : {kind}", op.context)
    # Pairs are not read from a splat: both parts may be one value.
    values = np.ascontiguousarray(np.asarray(floats)).view(dtype)[..., 0]
    return np.broadcast_to(values, shape) if is_splat else values


def array(attribute: ir.Attribute, dtype: np.dtype) -> np.ndarray:
    """Return a dense attribute as array: a view of MLIR's memory if numpy has the dtype. A splat has strides 0."""
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise UnsupportedOpError(
            f"a constant of the form {type(attribute).__name__} is not supported: write it as dense elements"
        )
    # The bindings hand out no buffer for types that numpy lacks.
    if is_integer(dtype):
        return np.asarray(attribute) if bit_width(dtype) >= 8 else _each(_bytes(attribute), lambda x: x.astype(dtype))
    if dtype == _DTYPES["bf16"]:
        return np.asarray(_bitcast(attribute, "i16")).view(dtype)
    if dtype.itemsize == 1 and dtype_class(dtype) == "float":
        bits = bit_width(dtype)
        words = _bytes(_bitcast(attribute, f"i{bits}"))
        return _each(words, lambda x: (x.view(np.uint8) & ((1 << bits) - 1)).view(dtype))
    return np.asarray(attribute)


def _each(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `function` to every element; a splat stays one."""
    if x.size < 2 or any(x.strides):
        return function(x)
    return np.broadcast_to(function(x[(slice(1),) * x.ndim]), x.shape)


def _bytes(attribute: ir.DenseElementsAttr) -> np.ndarray:
    """Return integers of up to 8 bits as int8 or uint8: the same text, read as elements of 8 bits."""
    kind = ir.RankedTensorType(attribute.type)
    wide = "ui8" if str(kind.element_type).startswith("ui") else "i8"
    elements = str(attribute).rsplit(" : ", 1)[0]
    shape = "".join(f"{size}x" for size in kind.shape)
    return np.asarray(ir.Attribute.parse(f"{elements} : tensor<{shape}{wide}>", attribute.context))


def _bitcast(attribute: ir.DenseElementsAttr, element: str) -> ir.DenseElementsAttr:
    """Reinterpret the bits of an attribute as integers, by MLIR's folding of a bitcast."""
    shape = ir.RankedTensorType(attribute.type).shape
    with attribute.context, ir.Location.unknown():
        attribute.context.get_dialect_descriptor("arith")  # loads it
        module = ir.Module.create()
        kind = ir.RankedTensorType.get(shape, ir.Type.parse(element))
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("bits", ([], [kind]))
            with ir.InsertionPoint(function.add_entry_block()):
                constant = mlir.arith.ConstantOp(attribute.type, attribute)
                mlir.func.ReturnOp([mlir.arith.BitcastOp(kind, constant.result)])
        mlir.run_passes(module, "canonicalize")
        bits: ir.DenseElementsAttr = function.entry_block.operations[0].attributes["value"]
        return bits


def _parts(location: ir.FusedLoc) -> list[ir.Location]:
    return cast("list[ir.Location]", location.locations)  # which are objects to jaxlib's stubs


def location_name(location: ir.Location) -> str:
    """Return the name of a location, or ""."""
    while isinstance(location, ir.FusedLoc) and location.locations:
        location = _parts(location)[0]
    return location.name_str if isinstance(location, ir.NameLoc) else ""


def location_line(location: ir.Location) -> str:
    """Return the user's innermost frame that has a line, as "model.py:12:3 (function)", or ""."""
    waiting, seen = [(location, "")], set()  # each with what it is called; parts may be shared, and nest deeply
    while waiting:
        at, function = waiting.pop()
        if at.attr in seen:
            continue
        seen.add(at.attr)
        if isinstance(at, ir.FileLineColLoc):
            if not at.filename.startswith(_OWN_FILES):
                # The parser calls text that came from no file "-".
                name = "<text>" if at.filename == "-" else at.filename
                line = f"{name}:{at.start_line}:{at.start_col}"
                return f"{line} ({function})" if function else line
        elif isinstance(at, ir.NameLoc):
            waiting.append((at.child_loc, at.name_str))
        elif isinstance(at, ir.CallSiteLoc):
            waiting += [(at.caller, ""), (at.callee, "")]
        elif isinstance(at, ir.FusedLoc):
            waiting += [(part, function) for part in reversed(_parts(at))]
    return ""
