"""MLIR types and constants as LLVM IR text, each computed once.

Rank-1 vectors and memrefs only: a memref is its pointer, an `index` is an i64, or an i32 (`TypeCache`). Asking for
anything else raises Untranslatable, which the translator turns into a CompileError that names the op and its location.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hlo_disc.mlir import ir


class Untranslatable(Exception):
    """An error that says what is wrong with an op; the translator adds which op and where."""


@dataclass(frozen=True, slots=True)
class Type:
    """One type: its LLVM text, the suffix in an intrinsic's name, lanes (0: no vector) and the element's facts.

    For a vector `element` is the type of a lane, for a memref the type in memory, else the type itself (None).
    `size` is the bytes of one element in memory, which is also its alignment. `name` tells floats apart that are
    integers to LLVM: those that it does not know, and bf16, whose lanes it takes apart by calls to nothing.
    """

    text: str
    suffix: str
    lanes: int = 0
    size: int = 0
    is_float: bool = False
    element: Type | None = None
    name: str = ""

    def vector(self, lanes: int) -> Type:
        """Return a vector of `lanes` elements of this scalar type."""
        return Type(f"<{lanes} x {self.text}>", f"v{lanes}{self.suffix}", lanes, self.size, self.is_float, self)


I1 = Type("i1", "i1", size=1)
I4 = Type("i4", "i4", size=1)
I6 = Type("i6", "i6", size=1)
I8 = Type("i8", "i8", size=1)
I16 = Type("i16", "i16", size=2)
I32 = Type("i32", "i32", size=4)
I64 = Type("i64", "i64", size=8)
F16 = Type("half", "f16", size=2, is_float=True)
BF16 = Type("i16", "i16", size=2, is_float=True, name="bf16")
F32 = Type("float", "f32", size=4, is_float=True)
F64 = Type("double", "f64", size=8, is_float=True)
PTR = Type("ptr", "p0", size=8)
# Floats of 4 to 8 bits by MLIR's names, which say their formats (`minifloats.py`): f8E4M3FN is float8_e4m3fn.
MINI_FLOATS = {
    f"f{name[5]}{name[7:].upper()}": kind for name, kind in vars(ml_dtypes).items() if re.match(r"float[4-8]_e", name)
}

_SCALARS = {
    "i1": I1,
    "i4": I4,
    "i6": I6,
    "i8": I8,
    "i16": I16,
    "i32": I32,
    "i64": I64,
    "f16": F16,
    "bf16": BF16,
    "f32": F32,
    "f64": F64,
    "!llvm.ptr": PTR,
    **{name: Type("i8", "i8", size=1, is_float=True, name=name) for name in MINI_FLOATS},
}
_CONSTANT = {"half": ("<e", "<H", "0xH%04X"), "float": ("<f", "<I", ""), "double": ("<d", "<Q", "0x%016X")}


class TypeCache(dict[ir.Type, Type]):
    """MLIR type -> Type, cached by the MLIR type (not by its text, which is slow to print).

    narrow: the number that all indices are below, which are i32 then; 0 where they are i64.
    """

    def __init__(self, narrow: int = 0) -> None:
        self.narrow = narrow
        self.index = I32 if narrow else I64

    def __missing__(self, type_: ir.Type) -> Type:
        found = self[type_] = self._make(type_)
        return found

    def _make(self, type_: ir.Type) -> Type:
        text = str(type_)
        scalar = self.index if text == "index" else _SCALARS.get(text)
        if scalar is not None:
            return scalar
        if isinstance(type_, ir.VectorType):
            if type_.rank != 1 or type_.scalable:
                raise Untranslatable(f"only fixed vectors of rank 1 can be translated, not {text}")
            return self[type_.element_type].vector(type_.shape[0])
        if isinstance(type_, ir.MemRefType):
            if type_.rank != 1:
                raise Untranslatable(f"only memrefs of rank 1 can be translated, not {text}")
            element = self[type_.element_type]
            if element in (I1, I4, I6) or element.lanes:
                raise Untranslatable(f"{text} has no defined layout in memory; use i8 or a scalar element")
            return Type("ptr", "p0", size=element.size, is_float=element.is_float, element=element)
        raise Untranslatable(f"no LLVM type for {text}")


def float_constant(value: float, type_: Type) -> str:
    """Return the LLVM text of a floating-point scalar constant, exact to the last bit."""
    if type_ is BF16:
        return str(_bf16_bits(value))
    if type_.name:
        with np.errstate(over="ignore", invalid="ignore"):
            return str(np.array(value, MINI_FLOATS[type_.name]).view(np.uint8))
    if type_ is F32:
        # LLVM writes a float as the bits of the double with the same value
        value = struct.unpack("<f", _pack_f32(value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    pack, unpack, form = _CONSTANT[type_.text]
    if type_ is F16 and abs(value) >= 65520 and value == value:
        value = float("inf") if value > 0 else float("-inf")
    bits: int = struct.unpack(unpack, struct.pack(pack, value))[0]
    return form % bits


def int_constant(value: int, type_: Type) -> str:
    """Return the LLVM text of an integer scalar constant."""
    return ("true" if value & 1 else "false") if type_ is I1 else str(int(value))


def splat(type_: Type, scalar: str) -> str:
    """Return a constant with `scalar` (a constant's text) in every lane; the scalar itself if `type_` is no vector."""
    return f"splat ({type_.element.text} {scalar})" if type_.element is not None and type_.lanes else scalar


def vector_constant(element: Type, scalars: Iterable[str]) -> str:
    """Return a vector constant with one constant's text for each lane."""
    return "<" + ", ".join(f"{element.text} {x}" for x in scalars) + ">"


def attribute_constant(attr: ir.Attribute, type_: Type, most: int = 0) -> str:
    """Return the LLVM text of an `arith.constant`'s value; most: of an integer's size, if that is not 0."""
    if not type_.lanes:
        if type_.is_float:
            return float_constant(ir.FloatAttr(attr).value, type_)
        assert isinstance(attr, (ir.BoolAttr, ir.IntegerAttr))
        value = int(attr.value)
        return int_constant(min(max(value, -most), most) if most else value, type_)
    element = type_.element
    assert element is not None and isinstance(attr, ir.DenseElementsAttr)
    if attr.is_splat:
        return splat(type_, attribute_constant(attr.get_splat_value(), element, most))
    if element.name:
        # the bindings cannot read such elements; their text is exact enough to round back to the same value
        body = str(attr).split("[", 1)[1].split("]", 1)[0]
        return vector_constant(element, (_float_text(x.strip(), element) for x in body.split(",")))
    if element.is_float:
        return vector_constant(element, (float_constant(x.item(), element) for x in np.array(attr)))
    values = np.clip(np.array(attr), -most, most) if most else np.array(attr)
    return vector_constant(element, (int_constant(x.item(), element) for x in values))


def _pack_f32(value: float) -> bytes:
    with np.errstate(over="ignore"):
        return np.float32(value).tobytes()


def _bf16_bits(value: float) -> int:
    bits: int = struct.unpack("<I", _pack_f32(value))[0]
    if value != value:
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _float_text(text: str, type_: Type) -> str:
    return str(int(text, 16)) if text.startswith("0x") else float_constant(float(text), type_)
