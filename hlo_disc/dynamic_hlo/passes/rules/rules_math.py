"""Rewrite rules for arithmetic: identities that are exact in the op's dtype, constants, sizes.

A float identity must hold for every bit pattern except NaN payloads. `x + 0.0` differs from x for x = -0.0; `x + -0.0`
is always x.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, int_limits
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, dims_in
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.ops.reference import apply
from hlo_disc.dynamic_hlo.ops.table import OPS, REDUCERS
from hlo_disc.dynamic_hlo.passes.rules.patterns import (
    LARGEST_FOLDED,
    broadcast_scalar,
    constant,
    is_one,
    kept_axes,
    made_by,
    scalar_dim,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, filled, make, rule
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError

MATH_RULES: list[Rule] = []

_ELEMENTWISE = tuple(name for name, row in OPS.items() if row.kind == "elementwise")
# Not loops, which may run for long: control.py takes apart what is known of them.
_FOLDABLE = tuple(
    name
    for name, row in OPS.items()
    if row.dialect and row.kind not in ("source", "call", "control", "host") and name != "broadcast"
)

# ------------------------------------------------------------------------------------------------- parts and dtypes


@rule(MATH_RULES, "complex")
def complex_of_parts(facts: ShapeFacts, op: Op) -> Instead | None:
    """complex(real(z), imag(z)) → z"""
    re, im = (made_by(value, name) for value, name in zip(op.operands, ("real", "imag"), strict=True))
    return re.operands[0] if re is not None and im is not None and re.operands == im.operands else None


@rule(MATH_RULES, "real", "imag", of="complex")
def part_of_complex(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """real(complex(x, y)) → x"""
    return inner.operands[0 if op.name == "real" else 1]


@rule(MATH_RULES, "convert", "bitcast_convert")
def convert_to_the_same_dtype(facts: ShapeFacts, op: Op) -> Instead | None:
    """convert(x : f32), f32 → x"""
    return op.operands[0] if op.operands[0].dtype == op.attrs["dtype"] else None


def widens(source: np.dtype, target: np.dtype) -> bool:
    """Whether every value of `source` is one of `target`."""
    kinds = dtype_class(source), dtype_class(target)
    if source == target:
        return kinds[1] != "complex"
    if kinds[1] == "float" and target.itemsize == 1:  # these lack zero, negative numbers, infinities or NaN
        return False
    if kinds[0] == "bool":
        return kinds[1] != "complex"
    if "bool" in kinds or "complex" in kinds:
        return False
    if kinds[0] == "float":
        if kinds[1] != "float":
            return False
        a, b = ml_dtypes.finfo(source), ml_dtypes.finfo(target)
        return bool(a.nmant <= b.nmant and a.maxexp <= b.maxexp and a.minexp - a.nmant >= b.minexp - b.nmant)
    low, high = int_limits(source)
    if kinds[1] == "float":
        info = ml_dtypes.finfo(target)
        return high.bit_length() <= min(int(info.nmant) + 1, int(info.maxexp))
    target_low, target_high = int_limits(target)
    return target_low <= low and high <= target_high


@rule(MATH_RULES, "convert", of="convert")
def convert_of_widening_convert(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """convert(convert(x : f16), f32), bf16 → convert(x), bf16"""
    source, middle, target = inner.operands[0].dtype, inner.result.dtype, op.attrs["dtype"]
    if not widens(source, middle):
        return None
    # An integer that does not fit its target wraps; a float that does not is clamped.
    through_float = dtype_class(source) in _INTEGERS and dtype_class(middle) == "float"
    if through_float and dtype_class(target) in _INTEGERS and not widens(source, target):
        return None
    return make("convert", *inner.operands, dtype=target)


# -------------------------------------------------------------------------------------------------- neutral operands


def _number(value: float) -> Callable[[np.ndarray], bool]:
    return lambda scalar: bool(scalar == value)


def _bits_of(value: float) -> Callable[[np.ndarray], bool]:
    return lambda scalar: bool(scalar == value) and math.copysign(1, float(scalar)) == math.copysign(1, value)


def _identity(kind: str) -> Callable[[np.ndarray], bool]:
    return lambda scalar: bool(scalar == identity(kind, scalar.dtype))


_ALL = ("bool", "int", "uint", "float")
_INTEGERS = ("int", "uint")
_BITS = ("bool", "int", "uint")

# Of each op (dtypes, which operand may be neutral, is it?).
_NEUTRAL: dict[str, tuple[tuple[tuple[str, ...], tuple[int, ...], Callable[[np.ndarray], bool]], ...]] = {
    "add": ((_BITS, (0, 1), _identity("add")), (("float",), (0, 1), _bits_of(-0.0))),
    "subtract": ((_INTEGERS, (1,), _number(0)), (("float",), (1,), _bits_of(0.0))),
    "multiply": ((_ALL, (0, 1), _identity("mul")),),
    "divide": ((("int", "uint", "float"), (1,), _number(1)),),
    "power": ((("int", "uint", "float"), (1,), _number(1)),),
    "maximum": ((_ALL, (0, 1), _identity("max")),),
    "minimum": ((_ALL, (0, 1), _identity("min")),),
    "and": ((_BITS, (0, 1), _identity("and")),),
    "or": ((_BITS, (0, 1), _identity("or")),),
    "xor": ((_BITS, (0, 1), _identity("xor")),),
    "shift_left": ((_INTEGERS, (1,), _number(0)),),
    "shift_right_logical": ((_INTEGERS, (1,), _number(0)),),
    "shift_right_arithmetic": ((_INTEGERS, (1,), _number(0)),),
}


@rule(MATH_RULES, *_NEUTRAL)
def neutral_operand(facts: ShapeFacts, op: Op) -> Instead | None:
    """multiply(x, 1) → x"""
    kind = dtype_class(op.result.dtype)
    for kinds, sides, is_neutral in _NEUTRAL[op.name]:
        for side in sides if kind in kinds else ():
            scalar = splat(op.operands[side])
            if scalar is not None and is_neutral(scalar):
                return op.operands[1 - side]
    return None


@rule(MATH_RULES, "negate", "not")
def twice_negated(facts: ShapeFacts, op: Op) -> Instead | None:
    """negate(negate(x)) → x"""
    inner = made_by(op.operands[0], op.name)
    return None if inner is None else inner.operands[0]


# ---------------------------------------------------------------------------------------------------- exact strength


@rule(MATH_RULES, "divide")
def divide_by_a_power_of_two(facts: ShapeFacts, op: Op) -> Instead | None:
    """divide(x, 4.0) → multiply(x, 0.25)"""
    divisor = splat(op.operands[1])
    if divisor is None or dtype_class(divisor.dtype) != "float":
        return None
    value = float(divisor)
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    smallest = float(ml_dtypes.finfo(divisor.dtype).tiny)
    if not (smallest <= abs(value) <= 1 / smallest and smallest <= abs(1 / value) <= 1 / smallest):
        return None
    factor = make("constant", value=np.array(1 / value).astype(divisor.dtype))
    return make("multiply", op.operands[0], filled(factor, op.result.shape))


@rule(MATH_RULES, "power")
def square(facts: ShapeFacts, op: Op) -> Instead | None:
    """power(x, 2) → multiply(x, x)"""
    x, exponent = op.operands[0], splat(op.operands[1])
    return make("multiply", x, x) if exponent is not None and exponent == 2 else None


# ------------------------------------------------------------------------------------------------------------ select


@rule(MATH_RULES, "select")
def select_by_a_constant(facts: ShapeFacts, op: Op) -> Instead | None:
    """select(true, x, y) → x"""
    predicate = splat(op.operands[0])
    return None if predicate is None else op.operands[1 if predicate else 2]


@rule(MATH_RULES, "select")
def select_of_equals(facts: ShapeFacts, op: Op) -> Instead | None:
    """select(p, x, x) → x"""
    return op.operands[1] if op.operands[1] is op.operands[2] else None


# ------------------------------------------------------------------------------------------------------------ reduce


@rule(MATH_RULES, "reduce")
def reduce_of_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """reduce(x : (b, 1), init), dims = (1) → reshape(x) : (b)"""
    (x, init), kind, shape = op.operands, op.attrs["kind"], op.result.shape
    if not all(is_one(facts, x.shape[axis]) for axis in op.attrs["dims"]):
        return None
    element, start = make("reshape", x, shape=shape), splat(init)
    neutral = start is not None and start == identity(kind, start.dtype)  # the sign of a zero sum is not specified
    return element if neutral else make(REDUCERS[kind], filled(init, shape), element)


# ----------------------------------------------------------------------------------------------- constants and sizes


def is_small(shape: Shape) -> bool:
    return all(d.is_const for d in shape) and math.prod(d.value for d in shape) <= LARGEST_FOLDED


def known_array(value: Value) -> np.ndarray | None:
    """The elements of a small constant, or of a small broadcast of one number."""
    scalar = broadcast_scalar(value)
    array = constant(value if scalar is None else scalar)
    if array is None or not is_small(value.shape):
        return None
    return array if scalar is None else np.broadcast_to(array, [d.value for d in value.shape])


@rule(MATH_RULES, *_FOLDABLE)
def constant_folding(facts: ShapeFacts, op: Op) -> Instead | None:
    """add(constant, constant) → constant"""
    if op.result.dtype.kind == "c":  # kernels know parts of complex numbers only
        return None
    arrays = [array for x in op.operands if (array := known_array(x)) is not None]
    if len(arrays) < len(op.operands):
        return None
    if not all(d.is_const for d in dims_in(op)) or not is_small(op.result.shape):
        return None
    try:
        return make("constant", value=np.asarray(apply(op, arrays), order="C"))
    except ShapeError:  # the program fails when it runs, if it gets there
        return None


@rule(MATH_RULES, "dim")
def constant_size(facts: ShapeFacts, op: Op) -> Instead | None:
    """dim 3 → constant 3"""
    expr = op.attrs["expr"]
    return make("constant", value=np.array(expr.value).astype(op.attrs["dtype"])) if expr.is_const else None


@rule(MATH_RULES, "convert")
def convert_of_size(facts: ShapeFacts, op: Op) -> Instead | None:
    """convert(dim s : i32), i64 → dim s : i64"""
    source, dtype = op.operands[0], op.attrs["dtype"]
    size = scalar_dim(source, may_wrap=dtype.itemsize <= source.dtype.itemsize)
    if size is None or size.is_const or dtype_class(dtype) not in _INTEGERS:
        return None
    return make("dim", expr=size, dtype=dtype)


_SIZE_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": Dim.max,
    "minimum": Dim.min,
}


def _two_sizes(op: Op) -> tuple[Dim, Dim] | None:
    # Sums and products of the lowest bits have the lowest bits of the sum and of the product.
    a, b = (scalar_dim(value, may_wrap=op.name in ("add", "subtract", "multiply")) for value in op.operands)
    return None if a is None or b is None or dtype_class(op.operands[0].dtype) != "int" else (a, b)


@rule(MATH_RULES, *_SIZE_ARITHMETIC)
def size_arithmetic(facts: ShapeFacts, op: Op) -> Instead | None:
    """add(dim b, dim s) → dim b + s"""
    sizes = _two_sizes(op)
    return sizes and make("dim", expr=facts.canonical(_SIZE_ARITHMETIC[op.name](*sizes)), dtype=op.result.dtype)


@rule(MATH_RULES, "compare")
def size_comparison(facts: ShapeFacts, op: Op) -> Instead | None:
    """compare(dim s, 0), GE → true"""
    sizes, direction = _two_sizes(op), op.attrs["direction"]
    if sizes is None:
        return None
    ask = {"EQ": facts.equal, "NE": facts.equal, "LT": facts.less, "GE": facts.less}.get(direction, facts.at_most)
    answer = ask(*sizes)
    negated = direction in ("NE", "GE", "GT")
    return None if answer is Truth.UNKNOWN else make("constant", value=np.array((answer is Truth.YES) != negated))


# ------------------------------------------------------------------------------------------- elementwise on fewer dims


@rule(MATH_RULES, *_ELEMENTWISE)
def elementwise_of_broadcast_scalars(facts: ShapeFacts, op: Op) -> Instead | None:
    """exponential(broadcast(scalar)) → broadcast(exponential(scalar))"""
    scalars = []
    for value in op.operands:
        if (scalar := broadcast_scalar(value)) is None:
            return None
        scalars.append(scalar)
    if op.operands[0].rank != op.result.rank:
        return None
    return filled(make(op.name, *scalars, **op.attrs), op.result.shape)


@rule(MATH_RULES, *_ELEMENTWISE)
def elementwise_on_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """add(reshape(x : (b)) : (b, 1), broadcast(scalar)) → reshape(add(x, broadcast(scalar)) : (b)) : (b, 1)"""
    narrow = _shape_before_reshapes(op)
    if narrow is None or not len(narrow) < op.result.rank == op.operands[0].rank:
        return None
    if kept_axes(facts, narrow, op.result.shape) is None:
        return None
    operands: list[Instead] = []
    for value in op.operands:
        if inner := made_by(value, "reshape"):
            operands += inner.operands
        elif (scalar := broadcast_scalar(value)) is not None:
            operands.append(filled(scalar, narrow))
        else:
            operands.append(make("reshape", value, shape=narrow))
    return make("reshape", make(op.name, *operands, **op.attrs), shape=op.result.shape)


def _shape_before_reshapes(op: Op) -> Shape | None:
    """The shape that all operands are reshaped from but for single numbers; one at least is."""
    shapes = []
    for value in op.operands:
        if inner := made_by(value, "reshape"):
            shapes.append(inner.operands[0].shape)
        elif splat(value) is None and broadcast_scalar(value) is None:
            return None
    return shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else None
