"""The code of each elementwise op and each reduction on registers: one row per op, for scalars and vectors alike.

`elements.py` says how registers hold elements. Semantics are StableHLO's: integer division by zero is -1, shifts past
the width give 0 or the sign, conversions saturate, maximum and minimum propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, int_limits, is_float, is_unsigned
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS, OPS, REDUCERS
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.kernel_ops import Known
from hlo_disc.mlir import arith, ir, math
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values import complex_values as pairs
from hlo_disc.stitch.codegen.values.elements import (
    as_bits,
    bitcast,
    convert,
    from_bits,
    low_bits,
    settle,
    sign_extended,
)
from hlo_disc.stitch.codegen.values.val import Val

Make = Callable[..., ir.OpView]
Rule = Callable[[Builder, Op, list[Val]], Val]


def _one(op: Make) -> Rule:
    return lambda b, o, x: b.apply(op, *x)


def _by_type(
    floating: Make | None, signed: Make | None, unsigned: Make | None = None, boolean: Make | None = None
) -> Rule:
    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        dtype = o.operands[-1].dtype
        if is_float(dtype):
            chosen = floating
        elif dtype == BOOL and boolean is not None:
            chosen = boolean
        else:
            chosen = (unsigned or signed) if is_unsigned(dtype) else signed
        if chosen is None:
            raise UnsupportedOpError(f"{o.name} of {dtype} elements is not supported ({o.loc or 'unknown line'})")
        return b.apply(chosen, *x)

    return rule


def _abs(b: Builder, o: Op, x: list[Val]) -> Val:
    if b.is_float(x[0]):
        return b.apply(math.AbsFOp, *x)
    return x[0] if is_unsigned(o.operands[0].dtype) else b.apply(math.AbsIOp, *x)


def _sign(b: Builder, o: Op, x: list[Val]) -> Val:
    (v,) = x
    one, zero = b.like(1, v), b.like(0, v)
    if is_unsigned(o.operands[0].dtype):
        return b.select(b.compare("==", v, zero), zero, one)
    return b.select(b.compare(">", v, zero), one, b.select(b.compare("<", v, zero), b.like(-1, v), v))


def _divide(b: Builder, o: Op, x: list[Val]) -> Val:
    n, d = x
    if b.is_float(n):
        return b.binary("/", n, d)
    unsigned = is_unsigned(o.operands[0].dtype)
    quotient = b.apply(arith.DivUIOp if unsigned else arith.DivSIOp, n, _safe_divisor(b, o, n, d), speculate=False)
    return b.select(b.compare("==", d, 0), b.like(-1, quotient), quotient)


def _remainder(b: Builder, o: Op, x: list[Val]) -> Val:
    n, d = x
    if b.is_float(n):
        return b.apply(arith.RemFOp, n, d)
    unsigned = is_unsigned(o.operands[0].dtype)
    rest = b.apply(arith.RemUIOp if unsigned else arith.RemSIOp, n, _safe_divisor(b, o, n, d), speculate=False)
    return b.select(b.compare("==", d, 0), n, rest)


def _safe_divisor(b: Builder, o: Op, n: Val, d: Val) -> Val:
    """Replace the divisors that trap by 1: 0, and -1 under the most negative number."""
    traps = b.compare("==", d, 0)
    dtype = o.operands[0].dtype
    if not is_unsigned(dtype):
        overflow = b.apply(arith.AndIOp, b.compare("==", d, -1), b.compare("==", n, int_limits(dtype)[0]))
        traps = b.apply(arith.OrIOp, traps, overflow)
    return b.select(traps, b.like(1, d), d)


def _shift(op: Make) -> Rule:
    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        v, n = x
        dtype = o.operands[0].dtype
        bits = bit_width(dtype)
        inside = b.compare("<", low_bits(b, n, dtype), bits, unsigned=True)
        if op is arith.ShRUIOp:
            v = low_bits(b, v, dtype)
        elif op is arith.ShRSIOp:
            v = sign_extended(b, v, bits)
        shifted = b.apply(op, v, b.select(inside, n, b.like(bits - 1, n)))
        return shifted if op is arith.ShRSIOp else b.select(inside, shifted, b.like(0, v))

    return rule


def _count_leading_zeros(b: Builder, o: Op, x: list[Val]) -> Val:
    dtype = o.operands[0].dtype
    zeros = b.apply(math.CountLeadingZerosOp, low_bits(b, x[0], dtype))
    spare = 8 * dtype.itemsize - bit_width(dtype)
    return b.binary("-", zeros, spare) if spare else zeros


def _integer_power(b: Builder, o: Op, base: Val, exponent: Val) -> Val:
    """Raise to a power by squaring. A reciprocal rounds to zero unless the base is 1 or -1."""
    dtype = o.operands[0].dtype
    lanes = max(base.lanes, exponent.lanes)
    base, exponent = b.splat(base, lanes), b.splat(exponent, lanes)
    one, zero = b.like(1, base), b.like(0, base)
    with b.loop(0, bit_width(dtype), 1, [one, base, low_bits(b, exponent, dtype)]) as loop:
        product, square, rest = loop.args
        odd = b.compare("!=", b.apply(arith.AndIOp, rest, one), zero)
        product = b.select(odd, b.binary("*", product, square), product)
        loop.yield_(product, b.binary("*", square, square), b.apply(arith.ShRUIOp, rest, one))
    power = loop.results[0]
    if is_unsigned(dtype):
        return power
    odd = b.compare("!=", b.apply(arith.AndIOp, exponent, one), zero)
    unit = b.select(b.compare("==", base, -1), b.select(odd, b.like(-1, base), one), zero)
    return b.select(b.compare("<", exponent, zero), b.select(b.compare("==", base, one), one, unit), power)


def _compare(b: Builder, o: Op, x: list[Val]) -> Val:
    left, right = x
    return b.compare(DIRECTIONS[o.attrs["direction"]], left, right, unsigned=is_unsigned(o.operands[0].dtype))


def _logistic(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.binary("/", 1.0, b.binary("+", b.apply(math.ExpOp, b.apply(arith.NegFOp, x[0])), 1.0))


def _clamp(b: Builder, o: Op, x: list[Val]) -> Val:
    low, v, high = x
    return _MINIMUM(b, o, [_MAXIMUM(b, o, [v, low]), high])


def _bitcast(b: Builder, o: Op, x: list[Val]) -> Val:
    return bitcast(b, x[0], o.operands[0].dtype, o.attrs["dtype"])


def _next_after(b: Builder, o: Op, x: list[Val]) -> Val:
    """Return the neighbour of the first towards the second: magnitudes are ordered as the integers of their bits."""
    start, end = x
    dtype = o.operands[0].dtype
    size = as_bits(b, b.apply(math.AbsFOp, start), dtype)
    negative = b.compare("<", start, 0.0)
    grows = b.apply(arith.XOrIOp, b.compare("<", start, end), negative)
    moved = from_bits(b, b.binary("+", size, b.select(grows, b.like(1, size), b.like(-1, size))), dtype)
    moved = b.select(negative, b.apply(arith.NegFOp, moved), moved)
    least = b.apply(math.CopySignOp, from_bits(b, b.like(1, size), dtype), end)
    moved = b.select(b.compare("==", start, 0.0), least, moved)
    moved = b.select(b.compare("==", start, end), end, moved)
    return b.select(b.compare("uno", start, end), b.binary("+", start, end), moved)


def _atan2(b: Builder, o: Op, x: list[Val]) -> Val:
    """Compute the angle. Two zeros are handled here, because MLIR folds the angle of constant ones to NaN."""
    height, width = x
    left = b.compare("<", b.apply(math.CopySignOp, b.like(1.0, width), width), 0.0)
    straight = b.apply(math.CopySignOp, b.select(left, b.like(np.pi, width), b.like(0.0, width)), height)
    zeros = b.both(b.compare("==", height, 0.0), b.compare("==", width, 0.0))
    return b.select(zeros, straight, b.apply(math.Atan2Op, height, width))


def _reduce_precision(b: Builder, o: Op, x: list[Val]) -> Val:
    """Round the integers of floats' bits; mini floats as the f32 in which they are computed."""
    dtype = o.operands[0].dtype
    held = dtype if dtype.itemsize > 1 else np.dtype(np.float32)
    info, own = ml_dtypes.finfo(held), ml_dtypes.finfo(dtype)
    exponent_bits, drop = o.attrs["exponent_bits"], info.nmant - o.attrs["mantissa_bits"]
    bits = as_bits(b, x[0], held)
    sign = b.apply(arith.AndIOp, bits, b.like(-1 << bit_width(held) - 1, bits))
    size = b.apply(arith.XOrIOp, bits, sign)
    infinity = b.like(((1 << info.nexp) - 1) << info.nmant, bits)
    special = b.compare(">=", size, infinity)
    if drop > 0:
        odd = b.apply(arith.AndIOp, b.apply(arith.ShRUIOp, size, b.like(drop, size)), b.like(1, size))
        size = b.binary("+", size, b.binary("+", odd, (1 << drop - 1) - 1))
        size = b.apply(arith.AndIOp, size, b.like(-1 << drop, size))
    if held != dtype and o.attrs["mantissa_bits"] < own.nmant:
        # The smallest mini floats have fewer bits: added to a number whose last place is the step between them.
        step = float(own.tiny) / (1 << o.attrs["mantissa_bits"])
        exact = b.apply(math.AbsFOp, x[0])
        least = b.binary("-", b.binary("+", exact, step * (1 << info.nmant)), step * (1 << info.nmant))
        size = b.select(b.compare("<", exact, float(own.tiny)), as_bits(b, least, held), size)
    if exponent_bits < own.nexp:
        bias, reduced = (1 << info.nexp - 1) - 1, (1 << exponent_bits - 1) - 1
        size = b.select(b.compare(">=", size, (bias + reduced + 1) << info.nmant), infinity, size)
        size = b.select(b.compare("<", size, (bias + 1 - reduced) << info.nmant), b.like(0, size), size)
    rounded = b.select(special, bits, b.apply(arith.OrIOp, size, sign))
    return from_bits(b, rounded, held)


_MAXIMUM = _by_type(arith.MaximumFOp, arith.MaxSIOp, arith.MaxUIOp)
_MINIMUM = _by_type(arith.MinimumFOp, arith.MinSIOp, arith.MinUIOp)
_ADD = _by_type(None, arith.AddIOp, boolean=arith.OrIOp)
_MULTIPLY = _by_type(None, arith.MulIOp, boolean=arith.AndIOp)


def _arithmetic(sign: str, otherwise: Rule) -> Rule:
    return lambda b, o, x: b.binary(sign, *x) if b.is_float(x[0]) else otherwise(b, o, x)


_ROWS: dict[str, Rule] = {
    "complex": lambda b, o, x: pairs.join(b, *x),
    "real": lambda b, o, x: pairs.part(b, x[0], 0),
    "imag": lambda b, o, x: pairs.part(b, x[0], 1),
    "abs": _abs,
    "negate": lambda b, o, x: b.apply(arith.NegFOp, *x) if b.is_float(x[0]) else b.binary("-", 0, x[0]),
    "sign": _sign,
    "exponential": _one(math.ExpOp),
    "exponential_minus_one": _one(math.ExpM1Op),
    "log": _one(math.LogOp),
    "log_plus_one": _one(math.Log1pOp),
    "logistic": _logistic,
    "tanh": _one(math.TanhOp),
    "sqrt": _one(math.SqrtOp),
    "rsqrt": lambda b, o, x: b.binary("/", 1.0, b.apply(math.SqrtOp, x[0])),
    "cbrt": _one(math.CbrtOp),
    "sine": _one(math.SinOp),
    "cosine": _one(math.CosOp),
    "tan": _one(math.TanOp),
    "erf": _one(math.ErfOp),
    "erfc": _one(math.ErfcOp),
    "floor": _one(math.FloorOp),
    "ceil": _one(math.CeilOp),
    "round_nearest_afz": _one(math.RoundOp),
    "round_nearest_even": _one(math.RoundEvenOp),
    "not": lambda b, o, x: b.apply(arith.XOrIOp, x[0], b.like(1 if o.operands[0].dtype == BOOL else -1, x[0])),
    "is_finite": lambda b, o, x: b.compare("<", b.apply(math.AbsFOp, x[0]), float("inf")),
    "popcnt": lambda b, o, x: b.apply(math.CtPopOp, low_bits(b, x[0], o.operands[0].dtype)),
    "count_leading_zeros": _count_leading_zeros,
    "next_after": _next_after,
    "reduce_precision": _reduce_precision,
    "convert": lambda b, o, x: convert(b, x[0], o.operands[0].dtype, o.attrs["dtype"]),
    "bitcast_convert": _bitcast,
    "reinterpret": _bitcast,
    "add": _arithmetic("+", _ADD),
    "subtract": lambda b, o, x: b.binary("-", *x),
    "multiply": _arithmetic("*", _MULTIPLY),
    "fma": lambda b, o, x: b.fma(*x),
    "divide": _divide,
    "remainder": _remainder,
    "maximum": _MAXIMUM,
    "minimum": _MINIMUM,
    "power": lambda b, o, x: b.apply(math.PowFOp, *x) if b.is_float(x[0]) else _integer_power(b, o, *x),
    "atan2": _atan2,
    "and": _one(arith.AndIOp),
    "or": _one(arith.OrIOp),
    "xor": _one(arith.XOrIOp),
    "shift_left": _shift(arith.ShLIOp),
    "shift_right_logical": _shift(arith.ShRUIOp),
    "shift_right_arithmetic": _shift(arith.ShRSIOp),
    "compare": _compare,
    "select": lambda b, o, x: b.select(x[0], x[1], x[2]),
    "clamp": _clamp,
}
# Rows whose result is an element of its type as it is, be the type narrower than the register or not.
_EXACT = frozenset(
    "is_finite convert bitcast_convert reinterpret maximum minimum clamp and or xor compare select".split()
)
# Rows of which that holds of floats of two bytes. (Smaller ones may lack a sign, or what is rounded to.)
_EXACT_IN_TWO_BYTES = frozenset(
    "abs negate sign floor ceil round_nearest_afz round_nearest_even remainder next_after reduce_precision".split()
)


def _settled(name: str, rule: Rule) -> Rule:
    """Wrap a row so that its result is an element of its type."""

    def settled(b: Builder, o: Op, x: list[Val]) -> Val:
        made, dtype = rule(b, o, x), o.operands[-1].dtype
        exact = name in _EXACT_IN_TWO_BYTES and is_float(dtype) and dtype.itemsize == 2
        return made if exact else settle(b, made, dtype, Known.CLEAN)

    return rule if name in _EXACT else settled


ELEMENTWISE: dict[str, Rule] = {name: _settled(name, rule) for name, rule in _ROWS.items()}
_OPS = {name for name, row in OPS.items() if row.kind == "elementwise"}
assert ELEMENTWISE.keys() == _OPS, ELEMENTWISE.keys() ^ _OPS


@frozen
class Monoid:
    """A reduction: how two values combine, and the vector.kind that folds lanes.

    Values are combined in registers without rounding, so the final result has to be settled.
    """

    combine: Rule
    floating: str
    signed: str
    unsigned: str

    def lanes(self, dtype: np.dtype) -> str:
        return self.floating if is_float(dtype) else self.unsigned if is_unsigned(dtype) else self.signed


def _extremum(floating: Make, otherwise: Rule) -> Rule:
    """Combine to the extremum. Of two zeros it may return either, since telling them apart costs three more
    instructions."""

    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        return b.apply(floating, *x, fastmath=b.no_signed_zeros) if b.is_float(x[0]) else otherwise(b, o, x)

    return rule


MONOIDS: dict[str, Monoid] = {
    "add": Monoid(_ROWS["add"], "add", "add", "add"),
    "mul": Monoid(_ROWS["multiply"], "mul", "mul", "mul"),
    "max": Monoid(_extremum(arith.MaximumFOp, _MAXIMUM), "maximumf", "maxsi", "maxui"),
    "min": Monoid(_extremum(arith.MinimumFOp, _MINIMUM), "minimumf", "minsi", "minui"),
    "and": Monoid(ELEMENTWISE["and"], "", "and", "and"),
    "or": Monoid(ELEMENTWISE["or"], "", "or", "or"),
    "xor": Monoid(ELEMENTWISE["xor"], "", "xor", "xor"),
}
assert MONOIDS.keys() == REDUCERS.keys(), MONOIDS.keys() ^ REDUCERS.keys()
