"""Bitcasts between elements of fewer than 8 bits, which take a byte each in memory, and wider ones.

A bitcast between whole bytes is another view of the same memory. Shifts move the bits of a byte to bytes of their own,
and back.
"""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import Dim

_BYTE = np.dtype(np.uint8)


def moves_bits(op: Op) -> bool:
    """Whether an op is a bitcast that splits or joins bytes."""
    return kind(op) == "alias" and min(bit_width(op.operands[0].dtype), bit_width(op.result.dtype)) < 8


def move_bits(b: GraphBuilder, op: Op, x: Value) -> Value:
    """Return the op as shifts: u8[n] -> u8[n, 2] -> ui4[n, 2], or the reverse, with views of bytes before or after."""
    source, target = bit_width(x.dtype), bit_width(op.result.dtype)
    parts = min(8, max(source, target)) // min(source, target)  # of a byte
    if source > target:
        spread = _cast(b, x, _BYTE)
        shape = (*spread.shape, Dim.const(parts))
        spread = b.op("broadcast", [spread], shape=shape, dims=tuple(range(spread.rank)))
        low = b.op("shift_right_logical", [spread, _places(b, shape, target)])
        low = b.op("and", [low, _number(b, (1 << target) - 1, shape)])
        return b.op("reshape", [_cast(b, low, op.result.dtype)], shape=op.result.shape)
    shape = (*x.shape[:-1], Dim.const(target // source // parts), Dim.const(parts))
    word = b.op("reshape", [_cast(b, x, _BYTE)], shape=shape)
    word = b.op("shift_left", [word, _places(b, shape, source)])
    zero = b.op("constant", value=np.zeros((), _BYTE))
    bytes_ = b.op("reduce", [word, zero], dims=(len(shape) - 1,), kind="or")
    if target <= 8:
        bytes_ = b.op("reshape", [bytes_], shape=op.result.shape)
    return _cast(b, bytes_, op.result.dtype)


def _cast(b: GraphBuilder, x: Value, dtype: np.dtype) -> Value:
    """Convert to or from bytes; an element of fewer bits is the byte that stores it."""
    if x.dtype == dtype:
        return x
    whole = min(bit_width(x.dtype), bit_width(dtype)) == 8
    return b.op("bitcast_convert" if whole else "reinterpret", [x], dtype=dtype)


def _places(b: GraphBuilder, shape: Shape, width: int) -> Value:
    """Return where in its byte each element of the last axis begins."""
    count = b.op("iota", shape=shape, dim=len(shape) - 1, dtype=_BYTE)
    return b.op("multiply", [count, _number(b, width, shape)])


def _number(b: GraphBuilder, number: int, shape: Shape) -> Value:
    return b.op("broadcast", [b.op("constant", value=np.array(number, _BYTE))], shape=shape, dims=())
