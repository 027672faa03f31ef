"""Elementwise ops: each has a formula on operands of one type, and PyTorch's rule for that type.

The rules are `torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND`. They also say that formulas of 16-bit floats are
computed in float32. ATen's kernels get all operands in their common type, numbers too: 257 + x is 256 + x in bfloat16.
Only products and quotients use a second operand of one element unchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, is_small_float
from hlo_disc.dynamic_hlo.ops.expr import BOOL, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.import_.aten.dtypes import DTYPES
from hlo_disc.import_.aten.tensors import Operand, is_just
from hlo_disc.import_.formulas.arithmetic import floor_quotient, floor_remainder
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

Formula = Callable[..., Array]


def elementwise(formula: Formula, kind: KIND = KIND.DEFAULT, second_as_it_is: bool = False) -> Formula:
    """Make a handler: operands are converted and broadcast, the result is converted to PyTorch's type.

    second_as_it_is: the kernel does not convert a second operand of one element.
    """

    def handle(r: AtenReader, *args: Operand | None, **attrs: object) -> Array:
        computed, _ = elementwise_dtypes(*r.fakes(), type_promotion_kind=kind)
        common, _ = elementwise_dtypes(*r.fakes(), type_promotion_kind=KIND.NO_OPMATH)
        operands = []
        for number, x in enumerate(x for x in args if x is not None):
            if is_small_float(DTYPES[common]) and not (second_as_it_is and number == 1 and is_single(x)):
                x = r.scalar(x, DTYPES[common])
            operands.append(r.scalar(x, DTYPES[computed]).broadcast(r.out.shape))
        return formula(r, *operands, **attrs).cast(r.out.dtype)

    return handle


def is_single(x: Operand) -> bool:
    """Whether it is a single number at every call."""
    return not isinstance(x, Array) or all(size is ONE for size in x.shape)


def op(name: str) -> Formula:
    return lambda r, x, *others: x.emit(name, *others)


_pow = op("power")


def _compare(direction: str) -> Formula:
    return elementwise(lambda r, a, b: a.op("compare", b, direction=direction), KIND.ALWAYS_BOOL)


def is_float(x: Array) -> bool:
    return dtype_class(x.dtype) in ("float", "complex")


def scaled(x: Array, alpha: Operand) -> Array:
    return x if is_just(alpha, 1) else x * alpha


def _add(r: AtenReader, a: Array, b: Array, alpha: Operand = 1) -> Array:
    return a + scaled(b, alpha)


def _sub(r: AtenReader, a: Array, b: Array, alpha: Operand = 1) -> Array:
    return a - scaled(b, alpha)


def floor_divide(r: AtenReader, a: Array, b: Array) -> Array:
    """Divide towards minus infinity; floats by the remainder, as in Python."""
    if not is_float(a):
        return floor_quotient(a, b)
    rest = a.op("remainder", b)
    quotient = (a - rest) / b
    quotient = where((rest != 0) & ((rest < 0) ^ (b < 0)), quotient - 1, quotient)
    floor = quotient.op("floor")
    nearest = where(quotient - floor > 0.5, floor + 1, floor)
    rounded = where(quotient == 0, a / b * 0, nearest)
    return where(b == 0, a / b, rounded)


def _div_mode(r: AtenReader, a: Operand, b: Operand, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return _DIV(r, a, b)
    return _whole_quotient(floor_divide if rounding_mode == "floor" else _truncated)(r, a, b)


def _whole_quotient(formula: Formula) -> Formula:
    """Divide and round. ATen's kernels round 16-bit floats after each step, except for a single divisor."""

    def handle(r: AtenReader, a: Operand, b: Operand) -> Array:
        return elementwise(formula, KIND.DEFAULT if is_single(b) else KIND.NO_OPMATH, second_as_it_is=True)(r, a, b)

    return handle


def _truncated(r: AtenReader, a: Array, b: Array) -> Array:
    quotient = a / b
    return _trunc(r, quotient) if is_float(a) else quotient


def _trunc(r: AtenReader, x: Array) -> Array:
    if not is_float(x):
        return x
    down, up = x.op("floor"), x.op("ceil")
    return where(x < 0, up, down)


def _round(r: AtenReader, x: Array, decimals: int = 0) -> Array:
    if not is_float(x):
        return x
    if not decimals:
        return x.op("round_nearest_even")
    factor = 10.0 ** abs(decimals)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return x.op(there, factor).op("round_nearest_even").op(back, factor)


def _whole(name: str) -> Formula:
    """Make a rounding function that leaves integers alone."""
    return elementwise(lambda r, x: x.emit(name) if is_float(x) else x)


def is_nan(r: AtenReader, x: Array) -> Array:
    return x != x


def _sign(r: AtenReader, x: Array) -> Array:
    if x.dtype == BOOL:
        return x
    return where(is_nan(r, x), 0, x.op("sign")) if dtype_class(x.dtype) == "float" else x.op("sign")


def _pow_scalar(r: AtenReader, x: Array, exponent: Operand) -> Array:
    """Raise to a constant power; small exponents are products and roots, as in eager mode."""
    common = elementwise(_COMMON_POWERS.get(exponent, _pow) if isinstance(exponent, (int, float)) else _pow)
    return common(r, x, exponent)


_COMMON_POWERS: dict[Any, Formula] = {
    0.5: lambda r, x, _: x.sqrt() if is_float(x) else _pow(r, x, _),
    1: lambda r, x, _: x,
    2: lambda r, x, _: x * x,
    3: lambda r, x, _: x * x * x,
}


def _gelu(r: AtenReader, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        inner = x + x * (x * x) * 0.044715
        gate = (inner * math.sqrt(2 / math.pi)).op("tanh") + 1.0
    else:
        gate = (x * math.sqrt(0.5)).op("erf") + 1.0
    return x * 0.5 * gate


def _clamp(r: AtenReader, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Array:
    """Clamp, also between tensors; a NaN stays NaN."""
    computed = DTYPES[elementwise_dtypes(*r.fakes(), type_promotion_kind=KIND.DEFAULT)[0]]
    made = r.scalar(x, computed)
    if low is not None:
        made = made.maximum(r.held(low, computed))
    if high is not None:
        made = made.minimum(r.held(high, computed))
    return made.broadcast(r.out.shape).cast(r.out.dtype)


def _where(r: AtenReader, condition: Array, a: Operand, b: Operand) -> Array:
    values = [r.held(x, r.out.dtype) for x in (a, b)]
    chosen = where(condition.cast(BOOL), *values)
    return chosen.broadcast(r.out.shape)


def _logical(name: str) -> Formula:
    def formula(r: AtenReader, *operands: Array) -> Array:
        first, *others = (x.cast(BOOL) for x in operands)
        return first.emit(name, *others)

    return elementwise(formula, KIND.ALWAYS_BOOL)


def _converted(r: AtenReader, x: Operand, *_: object, **__: object) -> Array:
    """Convert types; memory formats and devices have no effect. A number may stand for a tensor."""
    return r.scalar(x, r.out.dtype)


def _float(name: str) -> Formula:
    """Make the row of a function whose result is a float, also for integers."""
    return elementwise(op(name), KIND.INT_TO_FLOAT)


def _classified(formula: Formula, integers: bool) -> Formula:
    """Make the row of a question about floats; all integers have the same answer."""

    def question(r: AtenReader, x: Array) -> Array:
        return formula(r, x) if is_float(x) else r.full(integers, BOOL, x.shape)

    return elementwise(question, KIND.ALWAYS_BOOL)


def _parts(r: AtenReader, x: Array) -> list[Array]:
    return [x.emit(part) for part in ("real", "imag")] if dtype_class(x.dtype) == "complex" else [x]


def finite(r: AtenReader, x: Array) -> Array:
    tested = [part.op("is_finite") for part in _parts(r, x)]
    return functools.reduce(Array.__and__, tested)


def _infinite(r: AtenReader, x: Array) -> Array:
    tested = [abs(part) == np.inf for part in _parts(r, x)]
    return functools.reduce(Array.__or__, tested)


_DIV = elementwise(op("divide"), KIND.INT_TO_FLOAT, second_as_it_is=True)

# Functions that make floats of integers, and what they are of DHLO's.
_FLOATS = {
    "atan2": "atan2", "cos": "cosine", "erf": "erf", "erfc": "erfc", "exp": "exponential",
    "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "rsqrt": "rsqrt", "sigmoid": "logistic",
    "sin": "sine", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
_CONVERSIONS = (
    "aten._to_copy.default", "prims.convert_element_type.default", "aten.clone.default", "aten.alias.default",
    "aten.detach.default", "aten.lift.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default",
    "aten.real.default",
)  # fmt: skip
# Ops whose second operand is a tensor or a number.
_BINARY: dict[str, Formula] = {
    "add": elementwise(_add),
    "sub": elementwise(_sub),
    "rsub": elementwise(lambda r, a, b, alpha=1: _sub(r, b, a, alpha)),
    "mul": elementwise(op("multiply"), second_as_it_is=True),
    "div": _DIV,
    "remainder": elementwise(lambda _, a, b: floor_remainder(a, b)),
    "fmod": elementwise(op("remainder")),
    "__lshift__": elementwise(op("shift_left")),
    "__rshift__": elementwise(lambda _, a, b: a >> b),
    **{name: _compare(name.upper()) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"bitwise_{name}": elementwise(op(name)) for name in ("and", "or", "xor")},
    "fill": lambda r, x, value: r.full(value, x.dtype, x.shape),
}

ROWS: dict[str, Formula] = {
    **{f"aten.{name}.{form}": row for name, row in _BINARY.items() for form in ("Tensor", "Scalar")},
    "aten.true_divide.Tensor": _DIV,
    "aten.div.Tensor_mode": _div_mode,
    "aten.div.Scalar_mode": _div_mode,
    "aten.floor_divide.default": _whole_quotient(floor_divide),
    "aten.remainder.Scalar_Tensor": _BINARY["remainder"],
    "aten.pow.Tensor_Tensor": elementwise(_pow),
    "aten.pow.Tensor_Scalar": _pow_scalar,
    "aten.pow.Scalar": elementwise(_pow),
    "aten.maximum.default": elementwise(op("maximum")),
    "aten.minimum.default": elementwise(op("minimum")),
    **{f"aten.logical_{name}.default": _logical(name) for name in ("and", "or", "xor", "not")},
    "aten.bitwise_not.default": elementwise(op("not")),
    "aten.bitwise_left_shift.Tensor": elementwise(op("shift_left")),
    "aten.bitwise_right_shift.Tensor": elementwise(lambda _, a, b: a >> b),
    "aten.neg.default": elementwise(op("negate")),
    "aten.abs.default": elementwise(lambda _, x: abs(x), KIND.COMPLEX_TO_FLOAT),
    "aten.sign.default": elementwise(_sign),
    "aten.ceil.default": _whole("ceil"),
    "aten.floor.default": _whole("floor"),
    "aten.trunc.default": elementwise(_trunc),
    "aten.round.default": elementwise(_round),
    "aten.round.decimals": elementwise(_round),
    "aten.reciprocal.default": elementwise(lambda r, x: r.full(1, x.dtype, x.shape) / x, KIND.INT_TO_FLOAT),
    **{f"aten.{name}.default": _float(own) for name, own in _FLOATS.items()},
    "aten.isnan.default": _classified(is_nan, False),
    "aten.isinf.default": _classified(_infinite, False),
    "aten.isfinite.default": _classified(finite, True),
    "aten.gelu.default": elementwise(_gelu),
    "aten.silu.default": elementwise(lambda r, x: x * x.op("logistic")),
    "aten.relu.default": elementwise(lambda r, x: x.maximum(0)),
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda r, x, high: _clamp(r, x, None, high),
    "aten.where.self": _where,
    "aten.addcmul.default": elementwise(lambda r, x, a, b, value=1: x + scaled(a * b, value)),
    "aten.addcdiv.default": elementwise(lambda r, x, a, b, value=1: x + scaled(a, value) / b),
    **dict.fromkeys(_CONVERSIONS, _converted),
}
