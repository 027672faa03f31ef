"""How each elementwise op and each reduction computes on registers: one row an op, over scalars and vectors alike.

Halves arrive widened to f32 and bool as i1 (`Builder.register_type`). Semantics are StableHLO's: integer division by
zero is -1, shifts past the width give 0 or the sign, conversions saturate, maximum and minimum propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.graph import Op
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.mlir import arith, ir, math
from hlo_disc.stitch.build import Builder, Val

Rule = Callable[[Builder, Op, list[Val]], Val]


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def is_unsigned(dtype: np.dtype) -> bool:
    return dtype.kind in "ub"


def _one(op: Any) -> Rule:
    return lambda b, o, x: b.apply(op, *x)


def _by_type(floating: Any, signed: Any, unsigned: Any = None, boolean: Any = None) -> Rule:
    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        dtype = o.operands[-1].dtype
        if is_float(dtype):
            chosen = floating
        elif dtype == np.bool_ and boolean is not None:
            chosen = boolean
        else:
            chosen = (unsigned or signed) if is_unsigned(dtype) else signed
        if chosen is None:
            raise UnsupportedOpError(f"{o.name} of {dtype} elements is not supported ({o.loc or 'unknown line'})")
        return b.apply(chosen, *x)

    return rule


def _negate(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.apply(arith.NegFOp, *x) if b.is_float(x[0]) else b.binary("-", 0, x[0])


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


def _not(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.apply(arith.XOrIOp, x[0], b.like(1 if o.operands[0].dtype == np.bool_ else -1, x[0]))


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
    """The divisor with 1 in place of what traps: 0, and -1 under the most negative number."""
    traps = b.compare("==", d, 0)
    dtype = o.operands[0].dtype
    if not is_unsigned(dtype):
        overflow = b.apply(arith.AndIOp, b.compare("==", d, -1), b.compare("==", n, int(np.iinfo(dtype).min)))
        traps = b.apply(arith.OrIOp, traps, overflow)
    return b.select(traps, b.like(1, d), d)


def _shift(op: Any) -> Rule:
    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        v, n = x
        bits = 8 * o.operands[0].dtype.itemsize
        inside = b.compare("<", n, bits, unsigned=True)
        shifted = b.apply(op, v, b.select(inside, n, b.like(bits - 1, n)))
        return shifted if op is arith.ShRSIOp else b.select(inside, shifted, b.like(0, v))

    return rule


_SIGNS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}


def _compare(b: Builder, o: Op, x: list[Val]) -> Val:
    left, right = x
    return b.compare(_SIGNS[o.attrs["direction"]], left, right, unsigned=is_unsigned(o.operands[0].dtype))


def _logistic(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.binary("/", 1.0, b.binary("+", b.apply(math.ExpOp, b.apply(arith.NegFOp, x[0])), 1.0))


def _rsqrt(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.binary("/", 1.0, b.apply(math.SqrtOp, x[0]))


def _is_finite(b: Builder, o: Op, x: list[Val]) -> Val:
    return b.compare("<", b.apply(math.AbsFOp, x[0]), float("inf"))


def _clamp(b: Builder, o: Op, x: list[Val]) -> Val:
    low, v, high = x
    return _MINIMUM(b, o, [_MAXIMUM(b, o, [v, low]), high])


def _convert(b: Builder, o: Op, x: list[Val]) -> Val:
    return convert(b, x[0], o.operands[0].dtype, np.dtype(o.attrs["dtype"]))


def convert(b: Builder, x: Val, source: np.dtype, target: np.dtype) -> Val:
    """Elements of `source` as elements of `target`, both in registers."""
    to = b.register_type(target)
    if target == np.bool_:
        return b.compare("!=", x, 0)
    if is_float(target):
        if not is_float(source):
            return _halve(b, b.cast(arith.UIToFPOp if is_unsigned(source) else arith.SIToFPOp, to, x), target)
        return _halve(b, _resize_float(b, x, to), target)
    if is_float(source):
        return _float_to_int(b, x, target)
    width, wanted = (ir.IntegerType(t).width for t in (x.element, to))
    if width == wanted:
        return x
    if wanted < width:
        return b.cast(arith.TruncIOp, to, x)
    return b.cast(arith.ExtUIOp if is_unsigned(source) else arith.ExtSIOp, to, x)


def _resize_float(b: Builder, x: Val, to: ir.Type) -> Val:
    if x.element == to:
        return x
    wider = ir.FloatType(to).width > ir.FloatType(x.element).width
    return b.cast(arith.ExtFOp if wider else arith.TruncFOp, to, x)


def _halve(b: Builder, x: Val, target: np.dtype) -> Val:
    """Round to a half type, but keep it widened."""
    half = b.memory_type(target)
    return x if half == x.element else b.cast(arith.ExtFOp, x.element, b.cast(arith.TruncFOp, half, x))


def _float_to_int(b: Builder, x: Val, target: np.dtype) -> Val:
    info = np.iinfo(target)
    low, high = float(info.min), float(int(info.max) + 1)
    inside = b.apply(arith.AndIOp, b.compare(">=", x, low), b.compare("<", x, high))
    if info.min == 0:  # what truncates to 0 is inside too
        inside = b.apply(arith.AndIOp, b.compare(">", x, -1.0), b.compare("<", x, high))
    to = b.register_type(target)
    safe = b.select(inside, x, b.like(0, x))
    y = b.cast(arith.FPToUIOp if info.min == 0 else arith.FPToSIOp, to, safe)
    y = b.select(b.compare(">=", x, high), b.like(int(info.max), y), y)
    return b.select(b.compare("<", x, low), b.like(int(info.min), y), y)


def _bitcast(b: Builder, o: Op, x: list[Val]) -> Val:
    source, target = o.operands[0].dtype, np.dtype(o.attrs["dtype"])
    v = to_memory(b, x[0], source)
    to = b.memory_type(target)
    v = v if v.element == to else b.cast(arith.BitcastOp, to, v)
    return from_memory(b, v, target)


def from_memory(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """What was loaded, as registers hold it."""
    if dtype == np.bool_:
        return b.compare("!=", x, 0)
    to = b.register_type(dtype)
    return x if x.element == to else b.cast(arith.ExtFOp, to, x)


def to_memory(b: Builder, x: Val, dtype: np.dtype) -> Val:
    """A register value as it is stored."""
    if dtype == np.bool_:
        return b.cast(arith.ExtUIOp, b.i8, x)
    to = b.memory_type(dtype)
    return x if x.element == to else b.cast(arith.TruncFOp, to, x)


_MAXIMUM = _by_type(arith.MaximumFOp, arith.MaxSIOp, arith.MaxUIOp)
_MINIMUM = _by_type(arith.MinimumFOp, arith.MinSIOp, arith.MinUIOp)
_ADD = _by_type(None, arith.AddIOp, boolean=arith.OrIOp)
_MULTIPLY = _by_type(None, arith.MulIOp, boolean=arith.AndIOp)


def _arithmetic(sign: str, otherwise: Rule) -> Rule:
    """Float arithmetic may contract to FMA."""
    return lambda b, o, x: b.binary(sign, *x) if b.is_float(x[0]) else otherwise(b, o, x)


ELEMENTWISE: dict[str, Rule] = {
    "abs": _abs,
    "negate": _negate,
    "sign": _sign,
    "exponential": _one(math.ExpOp),
    "exponential_minus_one": _one(math.ExpM1Op),
    "log": _one(math.LogOp),
    "log_plus_one": _one(math.Log1pOp),
    "logistic": _logistic,
    "tanh": _one(math.TanhOp),
    "sqrt": _one(math.SqrtOp),
    "rsqrt": _rsqrt,
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
    "not": _not,
    "is_finite": _is_finite,
    "popcnt": _one(math.CtPopOp),
    "count_leading_zeros": _one(math.CountLeadingZerosOp),
    "convert": _convert,
    "bitcast_convert": _bitcast,
    "add": _arithmetic("+", _ADD),
    "subtract": lambda b, o, x: b.binary("-", *x),
    "multiply": _arithmetic("*", _MULTIPLY),
    "divide": _divide,
    "remainder": _remainder,
    "maximum": _MAXIMUM,
    "minimum": _MINIMUM,
    "power": _by_type(math.PowFOp, None),
    "atan2": _one(math.Atan2Op),
    "and": _one(arith.AndIOp),
    "or": _one(arith.OrIOp),
    "xor": _one(arith.XOrIOp),
    "shift_left": _shift(arith.ShLIOp),
    "shift_right_logical": _shift(arith.ShRUIOp),
    "shift_right_arithmetic": _shift(arith.ShRSIOp),
    "compare": _compare,
    "select": lambda b, o, x: b.select(*x),
    "clamp": _clamp,
}


@dataclass(frozen=True)
class Monoid:
    """A reduction: its identity for a dtype, how two values combine, and the vector.kind that folds lanes."""

    identity: Callable[[np.dtype], Any]
    combine: Rule
    floating: str
    signed: str
    unsigned: str

    def lanes(self, dtype: np.dtype) -> str:
        return self.floating if is_float(dtype) else self.unsigned if is_unsigned(dtype) else self.signed


def _lowest(dtype: np.dtype) -> Any:
    return float("-inf") if is_float(dtype) else 0 if dtype == np.bool_ else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype) -> Any:
    return float("inf") if is_float(dtype) else 1 if dtype == np.bool_ else int(np.iinfo(dtype).max)


def _all_ones(dtype: np.dtype) -> int:
    return 1 if dtype == np.bool_ else -1


def _extremum(floating: Any, otherwise: Rule) -> Rule:
    """Among equal elements a reduction may return either zero: telling them apart costs three more instructions."""

    def rule(b: Builder, o: Op, x: list[Val]) -> Val:
        return b.apply(floating, *x, fastmath=b.no_signed_zeros) if b.is_float(x[0]) else otherwise(b, o, x)

    return rule


MONOIDS: dict[str, Monoid] = {
    "add": Monoid(lambda _: 0, ELEMENTWISE["add"], "add", "add", "add"),
    "mul": Monoid(lambda _: 1, ELEMENTWISE["multiply"], "mul", "mul", "mul"),
    "max": Monoid(_lowest, _extremum(arith.MaximumFOp, _MAXIMUM), "maximumf", "maxsi", "maxui"),
    "min": Monoid(_highest, _extremum(arith.MinimumFOp, _MINIMUM), "minimumf", "minsi", "minui"),
    "and": Monoid(_all_ones, ELEMENTWISE["and"], "", "and", "and"),
    "or": Monoid(lambda _: 0, ELEMENTWISE["or"], "", "or", "or"),
}
