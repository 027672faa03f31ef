"""Elementwise ops: each has a formula on operands of one type, and PyTorch's rule for what that type is.

The rules are `torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND`; they also say that formulas of 16-bit floats are
computed in float32. To ATen's kernels operands come in the type of all of them, numbers too: 257 + x is 256 + x in
bfloat16. Only products and quotients take a second operand of one element as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, is_small_float
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.dtypes import DTYPES
from hlo_disc.import_.aten.tensors import BOOL, Operand
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

Formula = Callable[..., Value]


def elementwise(formula: Formula, kind: KIND = KIND.DEFAULT, second_as_it_is: bool = False) -> Formula:
    """A handler: operands are converted and spread, the result is converted to PyTorch's type of it.

    second_as_it_is: whether the kernel takes a second operand of one element so.
    """

    def handle(r: AtenReader, *args: Any, **attrs: Any) -> Value:
        computed, _ = elementwise_dtypes(*r.fakes(), type_promotion_kind=kind)
        common, _ = elementwise_dtypes(*r.fakes(), type_promotion_kind=KIND.NO_OPMATH)
        operands = []
        for number, x in enumerate(x for x in args if x is not None):
            if is_small_float(DTYPES[common]) and not (second_as_it_is and number == 1 and is_single(x)):
                x = r.scalar(x, DTYPES[common])
            operands.append(r.broadcast(r.scalar(x, DTYPES[computed]), r.out.shape))
        return r.convert(formula(r, *operands, **attrs), r.out.dtype)

    return handle


def is_single(x: Operand) -> bool:
    """Whether it is one number at every call."""
    return not isinstance(x, Value) or all(size is ONE for size in x.shape)


def op(name: str) -> Formula:
    return lambda r, *operands: r.emit(name, operands)


def _compare(direction: str) -> Formula:
    return elementwise(lambda r, a, b: r.compare(a, direction, b), KIND.ALWAYS_BOOL)


def is_float(x: Value) -> bool:
    return dtype_class(x.dtype) in ("float", "complex")


def _scaled(r: AtenReader, x: Value, alpha: Operand) -> Value:
    return x if alpha == 1 else r.op("multiply", x, alpha)


def _add(r: AtenReader, a: Value, b: Value, alpha: Operand = 1) -> Value:
    return r.op("add", a, _scaled(r, b, alpha))


def _sub(r: AtenReader, a: Value, b: Value, alpha: Operand = 1) -> Value:
    return r.op("subtract", a, _scaled(r, b, alpha))


def floor_divide(r: AtenReader, a: Value, b: Value) -> Value:
    """Towards minus infinity; as Python does it of floats, from the remainder."""
    rest = r.op("remainder", a, b)
    quotient = r.op("divide", r.op("subtract", a, rest) if is_float(a) else a, b)
    if dtype_class(a.dtype) == "uint":
        return quotient
    opposite = r.op("xor", r.compare(rest, "LT", 0), r.compare(b, "LT", 0))
    inexact = r.op("and", r.compare(rest, "NE", 0), opposite)
    quotient = r.select(inexact, r.op("subtract", quotient, 1), quotient)
    if not is_float(a):
        return quotient
    floor = r.emit("floor", (quotient,))
    nearest = r.select(r.compare(r.op("subtract", quotient, floor), "GT", 0.5), r.op("add", floor, 1), floor)
    zero = r.op("multiply", r.op("divide", a, b), 0)
    rounded = r.select(r.compare(quotient, "EQ", 0), zero, nearest)
    return r.select(r.compare(b, "EQ", 0), r.op("divide", a, b), rounded)


def _remainder(r: AtenReader, a: Value, b: Value) -> Value:
    """It has the sign of the divisor."""
    rest = r.op("remainder", a, b)
    if dtype_class(a.dtype) == "uint":
        return rest
    opposite = r.op("xor", r.compare(rest, "LT", 0), r.compare(b, "LT", 0))
    return r.select(r.op("and", r.compare(rest, "NE", 0), opposite), r.op("add", rest, b), rest)


def _div_mode(r: AtenReader, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _DIV(r, a, b)
    return _whole_quotient(floor_divide if rounding_mode == "floor" else _truncated)(r, a, b)


def _whole_quotient(formula: Formula) -> Formula:
    """A division and its rounding. ATen's kernels round 16-bit floats after each step, but for a single divisor."""

    def handle(r: AtenReader, a: Operand, b: Operand) -> Value:
        return elementwise(formula, KIND.DEFAULT if is_single(b) else KIND.NO_OPMATH, second_as_it_is=True)(r, a, b)

    return handle


def _truncated(r: AtenReader, a: Value, b: Value) -> Value:
    quotient = r.op("divide", a, b)
    return _trunc(r, quotient) if is_float(a) else quotient


def _trunc(r: AtenReader, x: Value) -> Value:
    if not is_float(x):
        return x
    down, up = r.emit("floor", (x,)), r.emit("ceil", (x,))
    return r.select(r.compare(x, "LT", 0), up, down)


def _round(r: AtenReader, x: Value, decimals: int = 0) -> Value:
    if not is_float(x):
        return x
    if not decimals:
        return r.emit("round_nearest_even", (x,))
    factor = 10.0 ** abs(decimals)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return r.op(back, r.emit("round_nearest_even", (r.op(there, x, factor),)), factor)


def _whole(name: str) -> Formula:
    """Rounding, of which integers are left alone."""
    return elementwise(lambda r, x: r.emit(name, (x,)) if is_float(x) else x)


def is_nan(r: AtenReader, x: Value) -> Value:
    return r.compare(x, "NE", x)


def _sign(r: AtenReader, x: Value) -> Value:
    if x.dtype == BOOL:
        return x
    return r.select(is_nan(r, x), 0, r.emit("sign", (x,))) if dtype_class(x.dtype) == "float" else r.emit("sign", (x,))


def _abs(r: AtenReader, x: Value) -> Value:
    return x if x.dtype == BOOL or dtype_class(x.dtype) == "uint" else r.emit("abs", (x,))


def _reciprocal(r: AtenReader, x: Value) -> Value:
    return r.op("divide", r.full(1, x.dtype, x.shape), x)


def _pow(r: AtenReader, a: Value, b: Value) -> Value:
    return r.op("power", a, b)


def _pow_scalar(r: AtenReader, x: Value, exponent: Operand) -> Value:
    """Small exponents are products and roots, as they are in eager mode."""
    common = elementwise(_COMMON_POWERS.get(exponent, _pow) if isinstance(exponent, (int, float)) else _pow)
    return common(r, x, exponent)


_COMMON_POWERS: dict[Any, Formula] = {
    0.5: lambda r, x, _: r.emit("sqrt", (x,)) if is_float(x) else _pow(r, x, _),
    1: lambda r, x, _: x,
    2: lambda r, x, _: r.op("multiply", x, x),
    3: lambda r, x, _: r.op("multiply", r.op("multiply", x, x), x),
}


def _gelu(r: AtenReader, x: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        inner = r.op("add", x, r.op("multiply", r.op("multiply", x, r.op("multiply", x, x)), 0.044715))
        gate = r.op("add", r.emit("tanh", (r.op("multiply", inner, math.sqrt(2 / math.pi)),)), 1.0)
    else:
        gate = r.op("add", r.emit("erf", (r.op("multiply", x, math.sqrt(0.5)),)), 1.0)
    return r.op("multiply", r.op("multiply", x, 0.5), gate)


def _silu(r: AtenReader, x: Value) -> Value:
    return r.op("multiply", x, r.emit("logistic", (x,)))


def _relu(r: AtenReader, x: Value) -> Value:
    return r.op("maximum", x, 0)


def _clamp(r: AtenReader, x: Any, low: Any = None, high: Any = None) -> Value:
    """Also of bounds that are tensors; of a NaN it is the NaN."""
    computed = DTYPES[elementwise_dtypes(*r.fakes(), type_promotion_kind=KIND.DEFAULT)[0]]
    made = r.scalar(x, computed)
    if low is not None:
        made = r.op("maximum", made, r.held(low, computed))
    if high is not None:
        made = r.op("minimum", made, r.held(high, computed))
    return r.convert(r.broadcast(made, r.out.shape), r.out.dtype)


def _where(r: AtenReader, condition: Value, a: Any, b: Any) -> Value:
    values = [r.held(x, r.out.dtype) for x in (a, b)]
    chosen = r.select(r.convert(condition, BOOL), *values)
    return r.broadcast(chosen, r.out.shape)


def _logical(name: str) -> Formula:
    def formula(r: AtenReader, *operands: Value) -> Value:
        return r.emit(name, [r.convert(x, BOOL) for x in operands])

    return elementwise(formula, KIND.ALWAYS_BOOL)


def _converted(r: AtenReader, x: Operand, *_: Any, **__: Any) -> Value:
    """Other types, memory formats and devices: only types are something here. A number may stand for a tensor."""
    return r.scalar(x, r.out.dtype)


def _fill(r: AtenReader, x: Value, value: Operand) -> Value:
    return r.full(value, x.dtype, x.shape)


def _shift_right(r: AtenReader, a: Value, b: Value) -> Value:
    kind = "logical" if dtype_class(a.dtype) == "uint" else "arithmetic"
    return r.op(f"shift_right_{kind}", a, b)


def _addcmul(r: AtenReader, x: Value, a: Value, b: Value, value: Operand = 1) -> Value:
    return r.op("add", x, _scaled(r, r.op("multiply", a, b), value))


def _addcdiv(r: AtenReader, x: Value, a: Value, b: Value, value: Operand = 1) -> Value:
    return r.op("add", x, r.op("divide", _scaled(r, a, value), b))


def _float(name: str) -> Formula:
    """A function that makes floats of integers."""
    return elementwise(op(name), KIND.INT_TO_FLOAT)


def _classified(formula: Formula, integers: bool) -> Formula:
    """A question about floats; integers all have the same answer."""

    def question(r: AtenReader, x: Value) -> Value:
        return formula(r, x) if is_float(x) else r.full(integers, BOOL, x.shape)

    return elementwise(question, KIND.ALWAYS_BOOL)


def _parts(r: AtenReader, x: Value) -> list[Value]:
    return [r.emit(part, (x,)) for part in ("real", "imag")] if dtype_class(x.dtype) == "complex" else [x]


def finite(r: AtenReader, x: Value) -> Value:
    tested = [r.emit("is_finite", (part,)) for part in _parts(r, x)]
    return tested[0] if len(tested) == 1 else r.emit("and", tested)


def _infinite(r: AtenReader, x: Value) -> Value:
    tested = [r.compare(r.emit("abs", (part,)), "EQ", np.inf) for part in _parts(r, x)]
    return tested[0] if len(tested) == 1 else r.emit("or", tested)


_DIV = elementwise(op("divide"), KIND.INT_TO_FLOAT, second_as_it_is=True)
_MUL = elementwise(op("multiply"), second_as_it_is=True)

ROWS: dict[str, Formula] = {
    "aten.add.Tensor": elementwise(_add),
    "aten.add.Scalar": elementwise(_add),
    "aten.sub.Tensor": elementwise(_sub),
    "aten.sub.Scalar": elementwise(_sub),
    "aten.rsub.Scalar": elementwise(lambda r, a, b, alpha=1: _sub(r, b, a, alpha)),
    "aten.rsub.Tensor": elementwise(lambda r, a, b, alpha=1: _sub(r, b, a, alpha)),
    "aten.mul.Tensor": _MUL,
    "aten.mul.Scalar": _MUL,
    "aten.div.Tensor": _DIV,
    "aten.div.Scalar": _DIV,
    "aten.true_divide.Tensor": _DIV,
    "aten.div.Tensor_mode": _div_mode,
    "aten.div.Scalar_mode": _div_mode,
    "aten.floor_divide.default": _whole_quotient(floor_divide),
    "aten.remainder.Tensor": elementwise(_remainder),
    "aten.remainder.Scalar": elementwise(_remainder),
    "aten.remainder.Scalar_Tensor": elementwise(_remainder),
    "aten.fmod.Tensor": elementwise(op("remainder")),
    "aten.fmod.Scalar": elementwise(op("remainder")),
    "aten.pow.Tensor_Tensor": elementwise(_pow),
    "aten.pow.Tensor_Scalar": _pow_scalar,
    "aten.pow.Scalar": elementwise(_pow),
    "aten.maximum.default": elementwise(op("maximum")),
    "aten.minimum.default": elementwise(op("minimum")),
    "aten.atan2.default": _float("atan2"),
    "aten.eq.Tensor": _compare("EQ"),
    "aten.eq.Scalar": _compare("EQ"),
    "aten.ne.Tensor": _compare("NE"),
    "aten.ne.Scalar": _compare("NE"),
    "aten.lt.Tensor": _compare("LT"),
    "aten.lt.Scalar": _compare("LT"),
    "aten.le.Tensor": _compare("LE"),
    "aten.le.Scalar": _compare("LE"),
    "aten.gt.Tensor": _compare("GT"),
    "aten.gt.Scalar": _compare("GT"),
    "aten.ge.Tensor": _compare("GE"),
    "aten.ge.Scalar": _compare("GE"),
    "aten.logical_and.default": _logical("and"),
    "aten.logical_or.default": _logical("or"),
    "aten.logical_xor.default": _logical("xor"),
    "aten.logical_not.default": _logical("not"),
    "aten.bitwise_and.Tensor": elementwise(op("and")),
    "aten.bitwise_and.Scalar": elementwise(op("and")),
    "aten.bitwise_or.Tensor": elementwise(op("or")),
    "aten.bitwise_or.Scalar": elementwise(op("or")),
    "aten.bitwise_xor.Tensor": elementwise(op("xor")),
    "aten.bitwise_xor.Scalar": elementwise(op("xor")),
    "aten.bitwise_not.default": elementwise(op("not")),
    "aten.bitwise_left_shift.Tensor": elementwise(op("shift_left")),
    "aten.bitwise_right_shift.Tensor": elementwise(_shift_right),
    "aten.__lshift__.Tensor": elementwise(op("shift_left")),
    "aten.__lshift__.Scalar": elementwise(op("shift_left")),
    "aten.__rshift__.Tensor": elementwise(_shift_right),
    "aten.__rshift__.Scalar": elementwise(_shift_right),
    "aten.neg.default": elementwise(op("negate")),
    "aten.abs.default": elementwise(_abs, KIND.COMPLEX_TO_FLOAT),
    "aten.sign.default": elementwise(_sign),
    "aten.ceil.default": _whole("ceil"),
    "aten.floor.default": _whole("floor"),
    "aten.trunc.default": elementwise(_trunc),
    "aten.round.default": elementwise(_round),
    "aten.round.decimals": elementwise(_round),
    "aten.reciprocal.default": elementwise(_reciprocal, KIND.INT_TO_FLOAT),
    "aten.sqrt.default": _float("sqrt"),
    "aten.rsqrt.default": _float("rsqrt"),
    "aten.exp.default": _float("exponential"),
    "aten.expm1.default": _float("exponential_minus_one"),
    "aten.log.default": _float("log"),
    "aten.log1p.default": _float("log_plus_one"),
    "aten.sin.default": _float("sine"),
    "aten.cos.default": _float("cosine"),
    "aten.tan.default": _float("tan"),
    "aten.tanh.default": _float("tanh"),
    "aten.sigmoid.default": _float("logistic"),
    "aten.erf.default": _float("erf"),
    "aten.erfc.default": _float("erfc"),
    "aten.isnan.default": _classified(is_nan, False),
    "aten.isinf.default": _classified(_infinite, False),
    "aten.isfinite.default": _classified(finite, True),
    "aten.gelu.default": elementwise(_gelu),
    "aten.silu.default": elementwise(_silu),
    "aten.relu.default": elementwise(_relu),
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda r, x, high: _clamp(r, x, None, high),
    "aten.where.self": _where,
    "aten.addcmul.default": elementwise(_addcmul),
    "aten.addcdiv.default": elementwise(_addcdiv),
    "aten._to_copy.default": _converted,
    "prims.convert_element_type.default": _converted,
    "aten.clone.default": _converted,
    "aten.fill.Scalar": _fill,
    "aten.fill.Tensor": _fill,
    "aten.alias.default": _converted,
    "aten.detach.default": _converted,
    "aten.lift_fresh_copy.default": _converted,
    "aten.lift_fresh.default": _converted,
    "aten.real.default": _converted,
}
