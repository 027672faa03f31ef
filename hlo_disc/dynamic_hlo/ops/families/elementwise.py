"""Elementwise ops on numbers: their operand types, and their numpy functions.

Floats narrower than 32 bits are computed in f32, integers narrower than 8 bits in 8, and rounded once. Where StableHLO
leaves a choice (division by zero, shifts past the width), the result is XLA's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, COMPLEX_PARTS, bit_width, dtype_class, is_integer, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.arrays import Array, narrow, wide
from hlo_disc.dynamic_hlo.ops.inference import Rule, Types, agree_shapes, broken, need_dtype
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts


def rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute `function` on widened operands, and round its result once to the operands' dtype."""

    def wrapped(*arrays: Array, **attrs: int) -> Array:
        with np.errstate(all="ignore"):
            return narrow(np.asarray(function(*map(wide, arrays), **attrs)), arrays[0].dtype)

    return wrapped


def bitwise(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute `function(*arrays, width)` on the bits of integers, as unsigned; `width` of them are significant."""

    def wrapped(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        width = bit_width(dtype)
        mask = (1 << width) - 1
        words = [x.view(np.dtype(f"u{x.dtype.itemsize}")) & mask for x in map(wide, arrays)]
        result = np.asarray(function(*words, width)).astype(words[0].dtype)
        return result.view(wide(arrays[0]).dtype).astype(dtype)

    return wrapped


def infer_elementwise(*classes: str) -> Rule:
    """Operands of one dtype out of `classes` and of one shape; the result has both."""

    def rule(op: Op, facts: ShapeFacts) -> Types:
        dtype = op.operands[0].dtype
        if dtype_class(dtype) not in classes:
            broken(op, f"dtype {dtype} is none of {', '.join(classes)}")
        for number, value in enumerate(op.operands[1:], 1):
            need_dtype(op, value, dtype, f"operand {number}")
        return [(dtype, agree_shapes(op, facts, op.operands))]

    return rule


def infer_predicate(*classes: str) -> Rule:
    """Infer a result of booleans; otherwise like `infer_elementwise`."""
    inner = infer_elementwise(*classes)
    return lambda op, facts: [(BOOL, inner(op, facts)[0][1])]


def infer_compare(op: Op, facts: ShapeFacts) -> Types:
    """Infer `compare`: complex numbers have no order."""
    classes = ("bool", "int", "uint", "float", "complex")
    return infer_predicate(*classes if op.attrs["direction"] in ("EQ", "NE") else classes[:-1])(op, facts)


def compare(a: Array, b: Array, *, direction: str) -> Array:
    return np.asarray(COMPARE[direction](wide(a), wide(b)))


def infer_real_part(op: Op, facts: ShapeFacts) -> Types:
    """Infer `real` and `imag`."""
    (x,) = op.operands
    if x.dtype not in COMPLEX_PARTS:
        broken(op, f"dtype {x.dtype} is not complex")
    return [(part_dtype(x.dtype), x.shape)]


def infer_complex(op: Op, facts: ShapeFacts) -> Types:
    re, im = op.operands
    whole = {part: dtype for dtype, part in COMPLEX_PARTS.items()}.get(re.dtype)
    if whole is None:
        broken(op, f"there are no complex numbers of {re.dtype}")
    need_dtype(op, im, re.dtype, "operand 1")
    return [(whole, agree_shapes(op, facts, op.operands))]


def complex_(re: Array, im: Array) -> Array:
    # re + 1j*im would turn infinities into NaNs.
    return np.ascontiguousarray(np.stack([re, im], axis=-1)).view(np.result_type(re.dtype, np.complex64))[..., 0]


def infer_magnitude(op: Op, facts: ShapeFacts) -> Types:
    """Infer `abs`, which is real for complex numbers."""
    (dtype, shape) = infer_elementwise("int", "float", "complex")(op, facts)[0]
    return [(part_dtype(dtype), shape)]


def magnitude(x: Array) -> Array:
    return narrow(np.abs(wide(x)), part_dtype(x.dtype))


def infer_select(op: Op, facts: ShapeFacts) -> Types:
    pred, on_true, on_false = op.operands
    need_dtype(op, pred, BOOL, "the predicate")
    need_dtype(op, on_false, on_true.dtype, "operand 2")
    return [(on_true.dtype, agree_shapes(op, facts, (on_true, on_false, pred)))]


def select(pred: Array, on_true: Array, on_false: Array) -> Array:
    return np.where(pred, on_true, on_false)


erf = np.vectorize(math.erf, otypes=[np.float64])


erfc = np.vectorize(math.erfc, otypes=[np.float64])


def cbrt(x: Array) -> Array:
    return np.asarray(np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x))


def atan2(y: Array, x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.asarray(np.arctan2(y, x))
    return np.asarray(-1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)))


def sign(x: Array) -> Array:
    # numpy turns -0.0 into +0.0.
    return np.where(x == 0, x, np.sign(x))


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def log_plus_one(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.asarray(np.log1p(x))
    # numpy's loses the digits of a small real part.
    small = complex_(np.log1p(x.real * (2 + x.real) + x.imag * x.imag) / 2, np.arctan2(x.imag, 1 + x.real))
    return np.where(np.abs(x) < 0.5, small, np.log(1 + x))


def rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


def round_nearest_afz(x: Array) -> Array:
    # Not floor(x + 0.5): that rounds the largest value below 0.5 to 1.
    whole = np.trunc(x)
    return np.asarray(whole + np.copysign(np.abs(x - whole) >= 0.5, x))


def is_finite(x: Array) -> Array:
    return np.asarray(np.isfinite(wide(x)))


def popcnt(x: Array, width: int) -> Array:
    return sum(((x >> k & 1) for k in range(width)), np.zeros_like(x))


def count_leading_zeros(x: Array, width: int) -> Array:
    return width - sum(((x >> k != 0) for k in range(width)), np.zeros(x.shape, np.int64))


def _safe(divisor: Array) -> Array:
    """Replace the divisors that trap: 0, and -1, by which the smallest integer has no quotient."""
    traps = divisor == 0 if divisor.dtype.kind == "u" else (divisor == 0) | (divisor == -1)
    return np.where(traps, 1, divisor).astype(divisor.dtype)


def divide(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.asarray(np.true_divide(a, b))
    safe = _safe(b)
    quotient = np.floor_divide(a, safe)
    if a.dtype.kind == "i":
        # numpy rounds down, StableHLO toward zero.
        quotient += ((np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
        quotient = np.where(b == -1, np.negative(a), quotient)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def remainder(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.asarray(np.fmod(a, b))
    return np.where(b == 0, a, np.fmod(a, _safe(b)))


def power(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.asarray(np.power(a, b))
    result = np.asarray(np.power(a, np.where(b < 0, 0, b).astype(b.dtype)))
    if a.dtype.kind == "u":
        return result
    # A reciprocal rounds to zero unless the base is a unit.
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, reciprocal, result).astype(a.dtype)


def logical_not(x: Array) -> Array:
    return np.asarray(np.logical_not(x) if x.dtype == BOOL else np.invert(x))


def shift_left(x: Array, amount: Array, width: int) -> Array:
    return np.where(amount < width, np.left_shift(x, amount % width), 0)


def shift_right_logical(x: Array, amount: Array, width: int) -> Array:
    return np.where(amount < width, np.right_shift(x, amount % width), 0)


def shift_right_arithmetic(x: Array, amount: Array, width: int) -> Array:
    spare = 8 * x.dtype.itemsize - width
    signed = np.asarray(np.left_shift(x, spare)).view(np.dtype(f"i{x.dtype.itemsize}"))
    places = (spare + np.minimum(amount, width - 1)).astype(signed.dtype)
    return np.asarray(np.right_shift(signed, places)).view(x.dtype)


def maximum(a: Array, b: Array) -> Array:
    # IEEE 754 orders -0.0 below +0.0, numpy does not.
    result = np.asarray(np.maximum(a, b))
    return np.where((a == 0) & (b == 0), a + b, result) if a.dtype.kind == "f" else result


def minimum(a: Array, b: Array) -> Array:
    result = np.asarray(np.minimum(a, b))
    return np.where((a == 0) & (b == 0), -(-a - b), result) if a.dtype.kind == "f" else result


def clamp(low: Array, x: Array, high: Array) -> Array:
    return minimum(maximum(x, low), high)


COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip

_FLOAT = infer_elementwise("float")
_ANALYTIC = infer_elementwise("float", "complex")
_INT = infer_elementwise("int", "uint")
_SIGNS = infer_elementwise("int", "float", "complex")
_NUMBER = infer_elementwise("int", "uint", "float", "complex")
_REAL = infer_elementwise("int", "uint", "float")
_LOGICAL = infer_elementwise("bool", "int", "uint")
# On booleans, add and maximum are "or", multiply and minimum are "and".
_ANY = infer_elementwise("bool", "int", "uint", "float", "complex")
_ORDERED = infer_elementwise("bool", "int", "uint", "float")


def _elementwise(name: str, operands: int, infer: Rule, function: Callable[..., Array]) -> OpDef:
    return OpDef(name, "elementwise", operands, infer, rounded(function))


def _function(
    name: str, operands: int, infer: Rule, function: Callable[..., Array], dialect: str = OpDef.dialect
) -> OpDef:
    """Make the row of a transcendental function, or of another expensive one."""
    return OpDef(name, "elementwise", operands, infer, rounded(function), dialect=dialect, expensive=True)


def _bitwise(name: str, operands: int, function: Callable[..., Array]) -> OpDef:
    return OpDef(name, "elementwise", operands, _INT, bitwise(function))


ROWS = (
    OpDef("abs", "elementwise", 1, infer_magnitude, magnitude),
    _elementwise("negate", 1, _NUMBER, np.negative),
    _elementwise("sign", 1, _SIGNS, sign),
    _function("exponential", 1, _ANALYTIC, np.exp),
    _function("exponential_minus_one", 1, _ANALYTIC, np.expm1),
    _function("log", 1, _ANALYTIC, np.log),
    _function("log_plus_one", 1, _ANALYTIC, log_plus_one),
    _function("logistic", 1, _ANALYTIC, logistic),
    _function("tanh", 1, _ANALYTIC, np.tanh),
    _elementwise("sqrt", 1, _ANALYTIC, np.sqrt),
    _elementwise("rsqrt", 1, _ANALYTIC, rsqrt),
    _function("cbrt", 1, _ANALYTIC, cbrt),
    _function("sine", 1, _ANALYTIC, np.sin),
    _function("cosine", 1, _ANALYTIC, np.cos),
    _function("tan", 1, _ANALYTIC, np.tan),
    _elementwise("floor", 1, _FLOAT, np.floor),
    _elementwise("ceil", 1, _FLOAT, np.ceil),
    _elementwise("round_nearest_afz", 1, _FLOAT, round_nearest_afz),
    _elementwise("round_nearest_even", 1, _FLOAT, np.rint),
    _elementwise("not", 1, _LOGICAL, logical_not),
    OpDef("is_finite", "elementwise", 1, infer_predicate("float"), is_finite),
    _function("erf", 1, _FLOAT, erf, dialect="chlo"),
    _function("erfc", 1, _FLOAT, erfc, dialect="chlo"),
    OpDef("real", "elementwise", 1, infer_real_part, np.real),
    OpDef("imag", "elementwise", 1, infer_real_part, np.imag),
    OpDef("complex", "elementwise", 2, infer_complex, complex_),
    _bitwise("popcnt", 1, popcnt),
    _bitwise("count_leading_zeros", 1, count_leading_zeros),
    _elementwise("add", 2, _ANY, np.add),
    _elementwise("subtract", 2, _NUMBER, np.subtract),
    _elementwise("multiply", 2, _ANY, np.multiply),
    _elementwise("divide", 2, _NUMBER, divide),
    _elementwise("remainder", 2, _REAL, remainder),
    _elementwise("maximum", 2, _ANY, maximum),
    _elementwise("minimum", 2, _ANY, minimum),
    _function("power", 2, _NUMBER, power),
    _function("atan2", 2, _ANALYTIC, atan2),
    OpDef("next_after", "elementwise", 2, _FLOAT, np.nextafter, dialect="chlo"),
    _elementwise("and", 2, _LOGICAL, np.bitwise_and),
    _elementwise("or", 2, _LOGICAL, np.bitwise_or),
    _elementwise("xor", 2, _LOGICAL, np.bitwise_xor),
    _bitwise("shift_left", 2, shift_left),
    _bitwise("shift_right_logical", 2, shift_right_logical),
    _bitwise("shift_right_arithmetic", 2, shift_right_arithmetic),
    OpDef("compare", "elementwise", 2, infer_compare, compare, ("direction",)),
    OpDef("select", "elementwise", 3, infer_select, select),
    _elementwise("clamp", 3, _ORDERED, clamp),
)
