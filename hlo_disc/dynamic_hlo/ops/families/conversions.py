"""Elementwise ops that convert elements to another type, or round them as another type would.

Values out of range give XLA's results.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class, int_limits, is_integer
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.arrays import Array, narrow, wide
from hlo_disc.dynamic_hlo.ops.families.elementwise import infer_elementwise
from hlo_disc.dynamic_hlo.ops.inference import Types, agree, broken
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts


def infer_convert(op: Op, facts: ShapeFacts) -> Types:
    return [(op.attrs["dtype"], op.operands[0].shape)]


def convert(x: Array, *, dtype: np.dtype) -> Array:
    """Convert floats to integers towards zero, clamped to the type's range, NaN to 0; integers wrap."""
    x = wide(x)
    if x.dtype.kind == "c" and dtype_class(dtype) != "complex":
        x = x.real
    if dtype == BOOL:
        return np.asarray(x != 0)
    with np.errstate(all="ignore"):
        if not (is_integer(dtype) and dtype_class(x.dtype) == "float"):
            return narrow(x, dtype)
        low, high = int_limits(dtype)
        # The largest integer is no float; the power of two above it is.
        above, below = x >= float(high // 2 + 1) * 2, x < float(low)
        holds = np.dtype(np.int64 if low else np.uint64)
        inside = np.where(above | below | np.isnan(x), 0, x).astype(holds)
    # numpy would make floats of a Python integer and uint64.
    return np.where(above, np.array(high, holds), np.where(below, np.array(low, holds), inside)).astype(dtype)


def infer_bitcast_convert(op: Op, facts: ShapeFacts) -> Types:
    """Infer the type of the operand's bits as other elements: narrower ones add a last axis, wider ones remove it.

    The size of that axis is the number of narrow elements in a wide one. A bool is one bit. A complex number
    counts as two real ones here, which StableHLO does not know.
    """
    (x,), dtype = op.operands, op.attrs["dtype"]
    source, target = bit_width(x.dtype), bit_width(dtype)
    if max(source, target) % min(source, target):
        broken(op, f"{x.dtype} and {dtype} differ in width")
    if source > target:
        return [(dtype, (*x.shape, Dim.const(source // target)))]
    if source < target:
        if not x.shape:
            broken(op, f"a scalar {x.dtype} is too short for {dtype}")
        agree(op, facts, x.shape[-1], Dim.const(target // source), f"the last axis and the parts of one {dtype}")
        return [(dtype, x.shape[:-1])]
    return [(dtype, x.shape)]


def bitcast_convert(x: Array, *, dtype: np.dtype) -> Array:
    source, target = bit_width(x.dtype), bit_width(dtype)
    if source < 8 or target < 8:
        return _from_bits(_to_bits(x, source), dtype, target)
    if x.dtype.itemsize == dtype.itemsize:
        return x.view(dtype)
    if x.dtype.itemsize > dtype.itemsize:
        return np.asarray(x, order="C")[..., None].view(dtype)
    return np.asarray(x, order="C").view(dtype)[..., 0]


def _to_bits(x: Array, width: int) -> Array:
    """Split elements into bits: a new last axis."""
    words = np.asarray(x, order="C").view(np.dtype(f"u{x.dtype.itemsize}"))
    return np.asarray(words[..., None] >> np.arange(width).astype(words.dtype) & 1)


def _from_bits(bits: Array, dtype: np.dtype, width: int) -> Array:
    """Join the bits of the last axis to elements. If there are more bits than one element has, an axis of elements is
    left; missing bits are added in front."""
    have = bits.shape[-1]
    if have > width:
        bits = bits.reshape(*bits.shape[:-1], have // width, width)
    elif have < width:
        bits = bits.reshape(*bits.shape[:-2], width)
    word = np.dtype(f"u{dtype.itemsize}")
    total = np.sum(bits.astype(word) << np.arange(width).astype(word), -1, dtype=word)
    if dtype_class(dtype) in ("int", "uint") and width < 8:
        return np.asarray(total).astype(dtype)
    return np.asarray(total, order="C").view(dtype)


def infer_reduce_precision(op: Op, facts: ShapeFacts) -> Types:
    if op.attrs["exponent_bits"] < 1 or op.attrs["mantissa_bits"] < 0:
        broken(op, "a number needs at least 1 bit of exponent and 0 of mantissa")
    return infer_elementwise("float")(op, facts)


def reduce_precision(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to `mantissa_bits`, ties to even; above the exponent range to infinity, below the normal numbers to zero.

    NaN stays NaN, even if no bits are left to tell it from infinity.
    """
    dtype, own = x.dtype, ml_dtypes.finfo(x.dtype)
    x = x if dtype.itemsize > 1 else wide(x)
    info, word = ml_dtypes.finfo(x.dtype), np.dtype(f"i{x.dtype.itemsize}")
    bits = np.asarray(x).view(word)
    drop = info.nmant - mantissa_bits
    with np.errstate(all="ignore"):
        if drop > 0:
            bits = (bits + ((bits >> drop & 1) + ((1 << drop - 1) - 1))) & ~((1 << drop) - 1)
        size = np.abs(np.asarray(bits).view(x.dtype).astype(np.float64))
        if mantissa_bits < own.nmant:  # the smallest numbers of the own type have fewer bits
            least, exact = float(own.tiny), np.abs(x.astype(np.float64))
            step = least / (1 << mantissa_bits)
            size = np.where(exact < least, np.round(exact / step) * step, size)
        if exponent_bits < own.nexp:
            bias = (1 << exponent_bits - 1) - 1
            size = np.where(size >= 2.0 ** (bias + 1), np.inf, np.where(size < 2.0 ** (1 - bias), 0, size))
        size = np.where(np.isfinite(x), size, np.abs(x.astype(np.float64)))
        return np.copysign(size, x.astype(np.float64)).astype(dtype)


_PRECISION = ("exponent_bits", "mantissa_bits")

ROWS = (
    OpDef("reduce_precision", "elementwise", 1, infer_reduce_precision, reduce_precision, _PRECISION),
    OpDef("convert", "elementwise", 1, infer_convert, convert, ("dtype",)),
    OpDef("bitcast_convert", "elementwise", 1, infer_bitcast_convert, bitcast_convert, ("dtype",)),
)
