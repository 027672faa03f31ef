"""Elements in memory and in registers: the form of each type, and conversions.

Registers hold floats of up to 16 bits as f32, integers of fewer than 8 as i8 (in range, with their sign), bool as i1.
Memory holds all of these as ml_dtypes does: a byte for what is smaller, its spare bits zero.

A register holds exact elements of its type: every op rounds its result (`settle`), so that a value is the same in all
kernels that compute it, and in memory. With `ModuleBuilder.excess_precision`, f16 and bf16 are rounded only where they
are stored, converted or read as bits.
"""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, int_limits, is_float, is_small_float, is_unsigned
from hlo_disc.kernel_ops import KNOWN, Known
from hlo_disc.mlir import MlirValue, arith, ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Val

_F64 = np.dtype(np.float64)


# ------------------------------------------------------------------------------------------- registers and memory


def from_memory(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """Convert a loaded value to the form in which registers hold it."""
    if dtype == BOOL:
        return b.compare("!=", x, 0)
    to = b.register_type(dtype)
    if x.element != to:
        return b.cast(arith.ExtFOp, to, x)
    return x if bit_width(dtype) >= 8 else wrap(b, x, dtype)


def to_memory(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """Convert a register value to the form in which it is stored."""
    if dtype == BOOL:
        return b.cast(arith.ExtUIOp, b.i8, x)
    to = b.memory_type(dtype)
    if x.element != to:
        return _narrowed(b, x, dtype, Known.NOTHING if keeps_more(b, dtype) else Known.EXACT)
    return low_bits(b, x, dtype)


def low_bits(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """Clear the spare bits of an integer's register."""
    bits = bit_width(dtype)
    return x if bits >= 8 else b.apply(arith.AndIOp, x, b.like((1 << bits) - 1, x))


def wrap(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """Reduce a register to the integer of its low bits."""
    bits = bit_width(dtype)
    if bits >= 8:
        return x
    return low_bits(b, x, dtype) if is_unsigned(dtype) else sign_extended(b, x, bits)


def sign_extended(b: Builder, x: Val, bits: int) -> Val:
    """Return the low bits as a signed integer."""
    if bits >= 8:
        return x
    spare = b.like(8 - bits, x)
    return b.apply(arith.ShRSIOp, b.apply(arith.ShLIOp, x, spare), spare)


def settle(b: Builder, x: Val, dtype: np.dtype, known: Known = Known.NOTHING) -> Val:
    """Convert a result of arithmetic to an element of its type: narrow integers wrap, small floats are rounded."""
    if dtype == BOOL or keeps_more(b, dtype):
        return x
    return round_small(b, x, dtype, known) if is_float(dtype) else wrap(b, x, dtype)


def keeps_more(b: Builder, dtype: np.dtype) -> bool:
    """Whether registers hold more of the type's elements than memory does."""
    return b.module.excess_precision and is_small_float(dtype) and dtype.itemsize > 1


# --------------------------------------------------------------------------------------------------- conversions


def convert(b: Builder, x: Val, source: np.dtype, target: np.dtype) -> Val:
    """Convert elements of `source` to elements of `target`, both in registers."""
    to = b.register_type(target)
    if target == BOOL:
        return b.compare("!=", x, 0)
    if is_float(target):
        if not is_float(source):
            made = b.cast(arith.UIToFPOp if is_unsigned(source) else arith.SIToFPOp, to, x)
            return made if bit_width(source) <= 8 and target.itemsize > 1 else round_small(b, made, target)
        small = b.memory_type(target)
        if x.element == b.memory_type(_F64) and small != to:  # not by way of f32: that would round twice
            return b.cast(arith.ExtFOp, to, b.cast(arith.TruncFOp, small, x))
        return round_small(b, _resize_float(b, x, to), target)
    if is_float(source):
        return _float_to_int(b, x, target)
    width, wanted = (ir.IntegerType(t).width for t in (x.element, to))
    if wanted > width:
        return wrap(b, b.cast(arith.ExtUIOp if is_unsigned(source) else arith.ExtSIOp, to, x), target)
    return wrap(b, x if wanted == width else b.cast(arith.TruncIOp, to, x), target)


def _resize_float(b: Builder, x: Val, to: ir.Type) -> Val:
    if x.element == to:
        return x
    wider = ir.FloatType(to).width > ir.FloatType(x.element).width
    return b.cast(arith.ExtFOp if wider else arith.TruncFOp, to, x)


def round_small(b: Builder, x: Val, dtype: np.dtype, known: Known = Known.NOTHING) -> Val:
    """Round to a small float, but keep it widened; larger floats stay."""
    return b.cast(arith.ExtFOp, x.element, _narrowed(b, x, dtype, known)) if is_small_float(dtype) else x


def _narrowed(b: Builder, x: Val, dtype: np.dtype, known: Known) -> Val:
    """Round to a small float."""
    small = b.vec(x.lanes, b.memory_type(dtype))

    def build() -> MlirValue:
        op = arith.TruncFOp(small, x.v)
        KNOWN.set(op, known)
        made: MlirValue = op.result
        return made

    return b.pure(build, x.lanes, [x], key=(arith.TruncFOp, small, known))


def _float_to_int(b: Builder, x: Val, target: np.dtype) -> Val:
    """Convert towards zero, clamped to the type's range; NaN becomes 0."""
    lowest, highest = int_limits(target)
    low, high = float(lowest), float(highest + 1)
    inside = b.apply(arith.AndIOp, b.compare(">=", x, low), b.compare("<", x, high))
    if lowest == 0:  # what truncates to 0 is inside too
        inside = b.apply(arith.AndIOp, b.compare(">", x, -1.0), b.compare("<", x, high))
    to = b.register_type(target)
    safe = b.select(inside, x, b.like(0, x))
    y = b.cast(arith.FPToUIOp if lowest == 0 else arith.FPToSIOp, to, safe)
    y = b.select(b.compare(">=", x, high), b.like(highest, y), y)
    return b.select(b.compare("<", x, low), b.like(lowest, y), y)


def bitcast(b: Builder, x: Val, source: np.dtype, target: np.dtype) -> Val:
    """Reinterpret elements as others of the same width."""
    bits = as_bits(b, x, source)
    return from_bits(b, bits, target)


def as_bits(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """Return an element as an integer of its width, at least 8."""
    v = to_memory(b, x, dtype)
    if not is_float(dtype):
        return v
    bits = bit_width(dtype)
    v = b.cast(arith.BitcastOp, b.int_type(bits), v)
    return v if bits >= 8 else b.cast(arith.ExtUIOp, b.i8, v)


def from_bits(b: Builder, bits: Val, dtype: np.dtype) -> Val:
    """Return an element from such an integer."""
    if is_float(dtype):
        width = bit_width(dtype)
        bits = bits if width >= 8 else b.cast(arith.TruncIOp, b.int_type(width), bits)
        bits = b.cast(arith.BitcastOp, b.memory_type(dtype), bits)
    return from_memory(b, bits, dtype)
