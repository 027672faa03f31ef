"""What each elementwise op computes, in numpy: `function(*arrays, **attrs)`.

Floats narrower than 32 bits are computed in f32, integers narrower than 8 bits in 8, and rounded once. Where StableHLO
leaves a choice (division by zero, shifts past the width, conversions out of range), it is XLA's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class, int_limits, is_integer, part_dtype

Array = np.ndarray


def wide(x: Array) -> Array:
    """Narrow floats as f32, narrow integers in 8 bits, complex numbers in double precision, all else as it is."""
    if x.dtype == np.complex64:
        return x.astype(np.complex128)
    if dtype_class(x.dtype) == "float":
        return x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return x if bit_width(x.dtype) >= 8 else x.astype(np.int8 if dtype_class(x.dtype) == "int" else np.uint8)


def narrow(x: Array, dtype: np.dtype) -> Array:
    """Rounded once; integers wrap."""
    if x.dtype == dtype:
        return x
    if x.dtype == np.float64 and dtype_class(dtype) == "float" and dtype.itemsize < 4:
        x = _to_odd_f32(x)
    return x.astype(dtype)


def _to_odd_f32(x: Array) -> Array:
    """f64 to f32 such that rounding once more gives what one rounding would."""
    nearest = np.asarray(x.astype(np.float32))
    beyond = (np.abs(nearest) > np.abs(x)) & np.isfinite(x)
    below = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    odd = (np.asarray(below).view(np.int32) | (below != x)).view(np.float32)
    return np.where(np.isfinite(x), odd, nearest)


def rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` computed on widened operands, its result rounded once to the operands' dtype."""

    def wrapped(*arrays: Array, **attrs: int) -> Array:
        with np.errstate(all="ignore"):
            return narrow(np.asarray(function(*map(wide, arrays), **attrs)), arrays[0].dtype)

    return wrapped


def bitwise(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function(*arrays, width)` of unsigned integers, given and taken as bits; `width` of them mean something."""

    def wrapped(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        width = bit_width(dtype)
        mask = (1 << width) - 1
        words = [x.view(np.dtype(f"u{x.dtype.itemsize}")) & mask for x in map(wide, arrays)]
        result = np.asarray(function(*words, width)).astype(words[0].dtype)
        return result.view(wide(arrays[0]).dtype).astype(dtype)

    return wrapped


# ------------------------------------------------------------------------------------------------------------ floats

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def magnitude(x: Array) -> Array:
    return narrow(np.abs(wide(x)), part_dtype(x.dtype))


def complex_(re: Array, im: Array) -> Array:
    # re + 1j*im would turn infinities into NaNs.
    return np.ascontiguousarray(np.stack([re, im], axis=-1)).view(np.result_type(re.dtype, np.complex64))[..., 0]


def cbrt(x: Array) -> Array:
    return np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x)


def atan2(y: Array, x: Array) -> Array:
    return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)) if x.dtype.kind == "c" else np.arctan2(y, x)


def sign(x: Array) -> Array:
    # numpy turns -0.0 into +0.0.
    return np.where(x == 0, x, np.sign(x))


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def log_plus_one(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.log1p(x)
    # numpy's loses the digits of a small real part.
    small = complex_(np.log1p(x.real * (2 + x.real) + x.imag * x.imag) / 2, np.arctan2(x.imag, 1 + x.real))
    return np.where(np.abs(x) < 0.5, small, np.log(1 + x))


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def round_nearest_afz(x: Array) -> Array:
    # Not floor(x + 0.5): that rounds the largest value below 0.5 to 1.
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def is_finite(x: Array) -> Array:
    return np.isfinite(wide(x))


def reduce_precision(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounded to `mantissa_bits`, ties to even; beyond the exponents infinity, below the normal numbers zero."""
    dtype = x.dtype
    x = x if dtype.itemsize > 1 else wide(x)
    info, word = ml_dtypes.finfo(x.dtype), np.dtype(f"i{x.dtype.itemsize}")
    bits = np.asarray(x).view(word)
    drop = info.nmant - mantissa_bits
    with np.errstate(all="ignore"):
        if drop > 0:
            bits = (bits + ((bits >> drop & 1) + ((1 << drop - 1) - 1))) & ~((1 << drop) - 1)
        size = np.abs(np.asarray(bits).view(x.dtype).astype(np.float64))
        if exponent_bits < ml_dtypes.finfo(dtype).nexp:
            bias = (1 << exponent_bits - 1) - 1
            size = np.where(size >= 2.0 ** (bias + 1), np.inf, np.where(size < 2.0 ** (1 - bias), 0, size))
        size = np.where(np.isfinite(x), size, np.abs(x.astype(np.float64)))
        return np.copysign(size, x.astype(np.float64)).astype(dtype)


# ---------------------------------------------------------------------------------------------------------- integers


def popcnt(x: Array, width: int) -> Array:
    return sum(((x >> k & 1) for k in range(width)), np.zeros_like(x))


def count_leading_zeros(x: Array, width: int) -> Array:
    return width - sum(((x >> k != 0) for k in range(width)), np.zeros(x.shape, np.int64))


def _safe(divisor: Array) -> Array:
    """A divisor without what the machine traps on: 0, and -1, by which the smallest integer has no quotient."""
    traps = divisor == 0 if divisor.dtype.kind == "u" else (divisor == 0) | (divisor == -1)
    return np.where(traps, 1, divisor).astype(divisor.dtype)


def divide(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.true_divide(a, b)
    safe = _safe(b)
    quotient = np.floor_divide(a, safe)
    if a.dtype.kind == "i":
        # numpy rounds down, StableHLO toward zero.
        quotient += ((np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
        quotient = np.where(b == -1, np.negative(a), quotient)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def remainder(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, _safe(b)))


def power(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.power(a, b)
    result = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    if a.dtype.kind == "u":
        return result
    # A reciprocal rounds to zero unless the base is a unit.
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, reciprocal, result).astype(a.dtype)


def logical_not(x: Array) -> Array:
    return np.logical_not(x) if x.dtype == BOOL else np.invert(x)


def shift_left(x: Array, amount: Array, width: int) -> Array:
    return np.where(amount < width, np.left_shift(x, amount % width), 0)


def shift_right_logical(x: Array, amount: Array, width: int) -> Array:
    return np.where(amount < width, np.right_shift(x, amount % width), 0)


def shift_right_arithmetic(x: Array, amount: Array, width: int) -> Array:
    spare = 8 * x.dtype.itemsize - width
    signed = np.left_shift(x, spare).view(np.dtype(f"i{x.dtype.itemsize}"))
    places = (spare + np.minimum(amount, width - 1)).astype(signed.dtype)
    return np.right_shift(signed, places).view(x.dtype)


# ---------------------------------------------------------------------------------------------------- all the others


def maximum(a: Array, b: Array) -> Array:
    # IEEE 754 orders -0.0 below +0.0, numpy does not.
    result = np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, result) if a.dtype.kind == "f" else result


def minimum(a: Array, b: Array) -> Array:
    result = np.minimum(a, b)
    return np.where((a == 0) & (b == 0), -(-a - b), result) if a.dtype.kind == "f" else result


def clamp(low: Array, x: Array, high: Array) -> Array:
    return minimum(maximum(x, low), high)


_COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def compare(a: Array, b: Array, *, direction: str) -> Array:
    return _COMPARE[direction](wide(a), wide(b))


def select(pred: Array, on_true: Array, on_false: Array) -> Array:
    return np.where(pred, on_true, on_false)


def convert(x: Array, *, dtype: np.dtype) -> Array:
    """Floats to integers towards zero, clamped to what the type holds, NaN to 0; integers wrap."""
    x = wide(x)
    if x.dtype.kind == "c" and dtype_class(dtype) != "complex":
        x = x.real
    if dtype == BOOL:
        return x != 0
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
    """A last axis of so many bits."""
    words = np.asarray(x, order="C").view(np.dtype(f"u{x.dtype.itemsize}"))
    return words[..., None] >> np.arange(width).astype(words.dtype) & 1


def _from_bits(bits: Array, dtype: np.dtype, width: int) -> Array:
    """The reverse, with a last axis of elements when there are more bits than one holds; missing ones come before."""
    have = bits.shape[-1]
    if have > width:
        bits = bits.reshape(*bits.shape[:-1], have // width, width)
    elif have < width:
        bits = bits.reshape(*bits.shape[:-2], width)
    word = np.dtype(f"u{dtype.itemsize}")
    total = (bits.astype(word) << np.arange(width).astype(word)).sum(-1, dtype=word)
    if dtype_class(dtype) in ("int", "uint") and width < 8:
        return total.astype(dtype)
    return np.asarray(total, order="C").view(dtype)
