"""`bitcast_convert`: elementwise at equal widths, memory seen otherwise for whole bytes, else shifts and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.dtypes import BOOL, bit_width
from hlo_disc.dynamic_hlo.graph import Shape, Value
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader


def _bitcast_convert(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, dtype = r.data(operands[0]), r.result_type(op)[0]
    if x.dtype == dtype:
        return x
    source, target = bit_width(x.dtype), bit_width(dtype)
    if BOOL in (x.dtype, dtype) or max(source, target) % min(source, target):
        r.unsupported(f"{x.dtype} and {dtype} differ in width")
    if source < target:
        if not x.shape:
            r.unsupported(f"a scalar of {source} bits is no element of {target}")
        r.equal(x.shape[-1], Dim.const(target // source), "the last dimension and the parts of an element")
    if source == target or min(source, target) >= 8:
        return r.emit("bitcast_convert", (x,), dtype=dtype)
    return _parts(r, x, dtype) if source > target else _whole(r, x, dtype)


def _parts(r: Reader, x: Value, dtype: np.dtype) -> Value:
    """Elements narrower than a byte, along a new last axis."""
    source, target = bit_width(x.dtype), bit_width(dtype)
    shape = (*x.shape, Dim.const(source // target))
    bits = _as(r, x, _unsigned(source))
    spread = r.emit("broadcast", (bits,), shape=shape, dims=tuple(range(x.rank)))
    shifted = r.emit("shift_right_logical", (spread, _places(r, shape, target, bits.dtype)))
    return _as(r, r.emit("convert", (shifted,), dtype=_unsigned(target)), dtype)


def _whole(r: Reader, x: Value, dtype: np.dtype) -> Value:
    """The reverse: the last axis becomes one element."""
    source, word = bit_width(x.dtype), _unsigned(bit_width(dtype))
    bits = r.emit("convert", (_as(r, x, _unsigned(source)),), dtype=word)
    shifted = r.emit("shift_left", (bits, _places(r, x.shape, source, word)))
    zero = r.constant(np.zeros((), word))
    return _as(r, r.emit("reduce", (shifted, zero), dims=(x.rank - 1,), kind="or"), dtype)


def _unsigned(bits: int) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, f"uint{bits}", f"uint{bits}"))


def _as(r: Reader, x: Value, dtype: np.dtype) -> Value:
    return x if x.dtype == dtype else r.emit("bitcast_convert", (x,), dtype=dtype)


def _places(r: Reader, shape: Shape, width: int, dtype: np.dtype) -> Value:
    """0, width, 2 width … along the last axis."""
    number = r.emit("iota", shape=shape, dim=len(shape) - 1, dtype=dtype)
    step = r.emit("broadcast", (r.constant(np.array(width, dtype)),), shape=shape, dims=())
    return r.emit("multiply", (number, step))


HANDLERS: dict[str, Handler] = {"stablehlo.bitcast_convert": _bitcast_convert}
