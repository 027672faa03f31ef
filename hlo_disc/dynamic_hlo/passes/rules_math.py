"""Rewrite rules for ops that compute: identities that are exact in the op's dtype, constants, sizes. One row a rule.

A float identity must hold for every bit pattern but NaN payloads: `x + 0.0` is not x for x = -0.0, `x + -0.0` is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, dims_in
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.reference import apply
from hlo_disc.dynamic_hlo.ops.table import OPS, REDUCERS
from hlo_disc.dynamic_hlo.passes.patterns import (
    LARGEST_FOLDED,
    Match,
    any_op,
    broadcast_scalar,
    constant,
    first_operand,
    is_one,
    kept_axes,
    made_by,
    operand_made_by,
    scalar_dim,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rewrite import Rule
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError

_ELEMENTWISE = tuple(name for name, row in OPS.items() if row.kind == "elementwise")
# Not loops, which may run for long: control.py takes apart what is known of them.
_FOLDABLE = tuple(
    name
    for name, row in OPS.items()
    if row.dialect and row.kind not in ("source", "call", "control") and name != "broadcast"
)

# ----------------------------------------------------------------------------------------------------------- convert


def _same_dtype(op: Op) -> Match:
    return () if op.operands[0].dtype == op.attrs["dtype"] else None


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
        return a.nmant <= b.nmant and a.maxexp <= b.maxexp and a.minexp - a.nmant >= b.minexp - b.nmant
    low, high = _integer_range(source)
    if kinds[1] == "float":
        target_info = ml_dtypes.finfo(target)
        return high.bit_length() <= target_info.nmant + 1 and high.bit_length() <= target_info.maxexp
    target_low, target_high = _integer_range(target)
    return target_low <= low and high <= target_high


def _integer_range(dtype: np.dtype) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def _convert_through_wider(op: Op) -> Match:
    inner = made_by(op.operands[0], "convert")
    if inner is None:
        return None
    source, middle, target = inner.operands[0].dtype, inner.result.dtype, op.attrs["dtype"]
    if not widens(source, middle):
        return None
    # An integer that does not fit its target wraps; a float that does not is clamped.
    through_float = dtype_class(source) in ("int", "uint") and dtype_class(middle) == "float"
    if through_float and dtype_class(target) in ("int", "uint") and not widens(source, target):
        return None
    return (inner,)


def _convert_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    return builder.op("convert", inner.operands, op.loc, dtype=op.attrs["dtype"])


# -------------------------------------------------------------------------------------------------- neutral operands


def _number(value: float) -> Callable[[np.ndarray], bool]:
    return lambda scalar: bool(scalar == value)


def _bits_of(value: float) -> Callable[[np.ndarray], bool]:
    return lambda scalar: bool(scalar == value) and math.copysign(1, float(scalar)) == math.copysign(1, value)


def _lowest(scalar: np.ndarray) -> bool:
    return _is_extreme(scalar, -math.inf, 0, False)


def _highest(scalar: np.ndarray) -> bool:
    return _is_extreme(scalar, math.inf, 1, True)


def _is_extreme(scalar: np.ndarray, infinity: float, end: int, boolean: bool) -> bool:
    if (kind := dtype_class(scalar.dtype)) in ("int", "uint"):
        return int(scalar) == _integer_range(scalar.dtype)[end]
    return bool(scalar == (boolean if kind == "bool" else infinity))


def _all_ones(scalar: np.ndarray) -> bool:
    return bool(scalar == np.invert(np.zeros_like(scalar)))


_ALL = ("bool", "int", "uint", "float")
_INTEGERS = ("int", "uint")
_BITS = ("bool", "int", "uint")

# (op, dtypes, which operand is neutral, is it?)
_NEUTRAL = (
    ("add", _BITS, (0, 1), _number(0)),
    ("add", ("float",), (0, 1), _bits_of(-0.0)),
    ("subtract", _INTEGERS, (1,), _number(0)),
    ("subtract", ("float",), (1,), _bits_of(0.0)),
    ("multiply", _ALL, (0, 1), _number(1)),
    ("divide", ("int", "uint", "float"), (1,), _number(1)),
    ("power", ("int", "uint", "float"), (1,), _number(1)),
    ("maximum", _ALL, (0, 1), _lowest),
    ("minimum", _ALL, (0, 1), _highest),
    ("and", _BITS, (0, 1), _all_ones),
    ("or", _BITS, (0, 1), _number(0)),
    ("xor", _BITS, (0, 1), _number(0)),
    ("shift_left", _INTEGERS, (1,), _number(0)),
    ("shift_right_logical", _INTEGERS, (1,), _number(0)),
    ("shift_right_arithmetic", _INTEGERS, (1,), _number(0)),
)


def _neutral_operand(op: Op) -> Match:
    for name, kinds, sides, is_neutral in _NEUTRAL:
        if name == op.name and dtype_class(op.result.dtype) in kinds:
            for side in sides:
                scalar = splat(op.operands[side])
                if scalar is not None and is_neutral(scalar):
                    return (op.operands[1 - side],)
    return None


def _the_part(builder: GraphBuilder, op: Op, value: Value) -> Value:
    return value


def _inner_operand(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    return inner.operands[0]


# ---------------------------------------------------------------------------------------------------- exact strength


def _exact_reciprocal(op: Op) -> Match:
    divisor = splat(op.operands[1])
    if divisor is None or dtype_class(divisor.dtype) != "float":
        return None
    value = float(divisor)
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    smallest = float(ml_dtypes.finfo(divisor.dtype).tiny)
    if not (smallest <= abs(value) <= 1 / smallest and smallest <= abs(1 / value) <= 1 / smallest):
        return None
    return (np.array(1 / value).astype(divisor.dtype),)


def _multiply_by(builder: GraphBuilder, op: Op, factor: np.ndarray) -> Value:
    scalar = builder.op("constant", (), op.loc, value=factor)
    spread = builder.op("broadcast", (scalar,), op.loc, shape=op.result.shape, dims=())
    return builder.op("multiply", (op.operands[0], spread), op.loc)


def _squared(op: Op) -> Match:
    exponent = splat(op.operands[1])
    return () if exponent is not None and exponent == 2 else None


def _square(builder: GraphBuilder, op: Op) -> Value:
    return builder.op("multiply", (op.operands[0], op.operands[0]), op.loc)


# ------------------------------------------------------------------------------------------------------------ select


def _known_predicate(op: Op) -> Match:
    predicate = splat(op.operands[0])
    return None if predicate is None else (op.operands[1 if predicate else 2],)


def _equal_branches(op: Op) -> Match:
    return (op.operands[1],) if op.operands[1] is op.operands[2] else None


# ------------------------------------------------------------------------------------------------------------ reduce

# What a reduction may start with and leave a single element as it is; the sign of a zero sum is not specified.
_START = {
    "add": _number(0), "mul": _number(1), "max": _lowest, "min": _highest, "and": _all_ones, "or": _number(0),
    "xor": _number(0),
}  # fmt: skip
assert _START.keys() == REDUCERS.keys(), _START.keys() ^ REDUCERS.keys()


def _reduces_only_units(facts: ShapeFacts, op: Op) -> bool:
    return all(is_one(facts, op.operands[0].shape[axis]) for axis in op.attrs["dims"])


def _reduce_of_units(builder: GraphBuilder, op: Op) -> Value:
    x, init = op.operands
    x = builder.op("reshape", (x,), op.loc, shape=op.result.shape)
    start = splat(init)
    if start is not None and _START[op.attrs["kind"]](start):
        return x
    spread = builder.op("broadcast", (init,), op.loc, shape=op.result.shape, dims=())
    return builder.op(REDUCERS[op.attrs["kind"]], (spread, x), op.loc)


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


def _folded(op: Op) -> Match:
    if op.result.dtype.kind == "c":  # kernels know parts of complex numbers only
        return None
    arrays = [array for x in op.operands if (array := known_array(x)) is not None]
    if len(arrays) < len(op.operands):
        return None
    if not all(d.is_const for d in dims_in(op)) or not is_small(op.result.shape):
        return None
    try:
        return (apply(op, arrays),)
    except ShapeError:  # the program fails when it runs, if it gets there
        return None


def _constant(builder: GraphBuilder, op: Op, array: np.ndarray) -> Value:
    return builder.op("constant", (), op.loc, value=np.asarray(array, order="C"))


def _constant_dim(op: Op) -> Match:
    expr = op.attrs["expr"]
    return (np.array(expr.value).astype(op.attrs["dtype"]),) if expr.is_const else None


def _converted_dim(op: Op) -> Match:
    source, dtype = op.operands[0], op.attrs["dtype"]
    size = scalar_dim(source, may_wrap=dtype.itemsize <= source.dtype.itemsize)
    return None if size is None or size.is_const or dtype_class(dtype) not in _INTEGERS else (size,)


def _dim_of_dtype(builder: GraphBuilder, op: Op, size: Dim) -> Value:
    return builder.op("dim", (), op.loc, expr=size, dtype=op.attrs["dtype"])


_SIZE_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": Dim.max,
    "minimum": Dim.min,
}


def _two_sizes(op: Op) -> Match:
    # Sums and products of the lowest bits have the lowest bits of the sum and of the product.
    a, b = (scalar_dim(value, may_wrap=op.name in ("add", "subtract", "multiply")) for value in op.operands)
    return None if a is None or b is None or dtype_class(op.operands[0].dtype) != "int" else (a, b)


def _size(builder: GraphBuilder, op: Op, a: Dim, b: Dim) -> Value:
    expr = builder.facts.canonical(_SIZE_ARITHMETIC[op.name](a, b))
    return builder.op("dim", (), op.loc, expr=expr, dtype=op.result.dtype)


def _compared(facts: ShapeFacts, direction: str, a: Dim, b: Dim) -> Truth:
    if direction in ("EQ", "NE"):
        answer, negate = facts.equal(a, b), direction == "NE"
    else:
        answer, negate = (
            facts.less(a, b) if direction in ("LT", "GE") else facts.at_most(a, b),
            direction in ("GE", "GT"),
        )
    return {Truth.YES: Truth.NO, Truth.NO: Truth.YES}.get(answer, answer) if negate else answer


def _comparison_is_known(facts: ShapeFacts, op: Op, a: Dim, b: Dim) -> bool:
    return _compared(facts, op.attrs["direction"], a, b) is not Truth.UNKNOWN


def _comparison(builder: GraphBuilder, op: Op, a: Dim, b: Dim) -> Value:
    answer = _compared(builder.facts, op.attrs["direction"], a, b) is Truth.YES
    return builder.op("constant", (), op.loc, value=np.array(answer))


# ------------------------------------------------------------------------------------------- elementwise on fewer dims


def _broadcast_scalars(op: Op) -> Match:
    scalars = [broadcast_scalar(value) for value in op.operands]
    return None if None in scalars or op.operands[0].rank != op.result.rank else (scalars,)


def _compute_scalar(builder: GraphBuilder, op: Op, scalars: list[Value]) -> Value:
    scalar = builder.op(op.name, scalars, op.loc, **op.attrs)
    return builder.op("broadcast", (scalar,), op.loc, shape=op.result.shape, dims=())


def _reshaped_operands(op: Op) -> Match:
    """Operands that are all single numbers or reshapes from one shape to another, at least one of these."""
    reshapes = {made_by(value, "reshape") for value in op.operands if splat(value) is broadcast_scalar(value) is None}
    if not reshapes or None in reshapes:
        return None
    narrow, *others = (reshape.operands[0].shape for reshape in reshapes if reshape)
    return (narrow,) if all(shape == narrow for shape in others) else None


def _reshape_adds_units(facts: ShapeFacts, op: Op, narrow: tuple[Dim, ...]) -> bool:
    return len(narrow) < op.result.rank == op.operands[0].rank and kept_axes(facts, narrow, op.result.shape) is not None


def _compute_narrow(builder: GraphBuilder, op: Op, narrow: tuple[Dim, ...]) -> Value:
    operands = []
    for value in op.operands:
        scalar = broadcast_scalar(value)
        if made_by(value, "reshape"):
            operands.append(value.op.operands[0])  # type: ignore[union-attr]
        elif scalar is None:
            operands.append(builder.op("reshape", (value,), op.loc, shape=narrow))
        else:
            operands.append(builder.op("broadcast", (scalar,), op.loc, shape=narrow, dims=()))
    result = builder.op(op.name, operands, op.loc, **op.attrs)
    return builder.op("reshape", (result,), op.loc, shape=op.result.shape)


def _parts_of_one(op: Op) -> Match:
    parts = [made_by(value, name) for value, name in zip(op.operands, ("real", "imag"), strict=True)]
    if None in parts or parts[0].operands != parts[1].operands:  # type: ignore[union-attr]
        return None
    return parts[0].operands  # type: ignore[union-attr]


def _own_part(op: Op) -> Match:
    inner = made_by(op.operands[0], "complex")
    return None if inner is None else (inner.operands[0 if op.name == "real" else 1],)


MATH_RULES = (
    # complex(real(z), imag(z)) -> z
    Rule("complex of parts", ("complex",), _parts_of_one, _the_part),
    # real(complex(x, y)) -> x
    Rule("part of complex", ("real", "imag"), _own_part, _the_part),
    # convert(x : f32), f32 -> x
    Rule("convert to the same dtype", ("convert", "bitcast_convert"), _same_dtype, first_operand),
    # convert(convert(x : f16), f32), bf16 -> convert(x), bf16
    Rule("convert of widening convert", ("convert",), _convert_through_wider, _convert_inner),
    # multiply(x, 1) -> x
    Rule("neutral operand", tuple(dict.fromkeys(row[0] for row in _NEUTRAL)), _neutral_operand, _the_part),
    # negate(negate(x)) -> x
    Rule("negate of negate", ("negate",), operand_made_by("negate"), _inner_operand),
    # not(not(x)) -> x
    Rule("not of not", ("not",), operand_made_by("not"), _inner_operand),
    # divide(x, 4.0) -> multiply(x, 0.25)
    Rule("divide by a power of two", ("divide",), _exact_reciprocal, _multiply_by),
    # power(x, 2) -> multiply(x, x)
    Rule("square", ("power",), _squared, _square),
    # select(true, x, y) -> x
    Rule("select by a constant", ("select",), _known_predicate, _the_part),
    # select(p, x, x) -> x
    Rule("select of equals", ("select",), _equal_branches, _the_part),
    # reduce(x : (b, 1), init), dims = (1) -> reshape(x) : (b)
    Rule("reduce of unit dims", ("reduce",), any_op, _reduce_of_units, _reduces_only_units),
    # add(constant, constant) -> constant
    Rule("constant folding", _FOLDABLE, _folded, _constant),
    # dim 3 -> constant 3
    Rule("constant size", ("dim",), _constant_dim, _constant),
    # convert(dim s : i32), i64 -> dim s : i64
    Rule("convert of size", ("convert",), _converted_dim, _dim_of_dtype),
    # add(dim b, dim s) -> dim b + s
    Rule("size arithmetic", tuple(_SIZE_ARITHMETIC), _two_sizes, _size),
    # compare(dim s, 0), GE -> true
    Rule("size comparison", ("compare",), _two_sizes, _comparison, _comparison_is_known),
    # exponential(broadcast(scalar)) -> broadcast(exponential(scalar))
    Rule("elementwise of broadcast scalars", _ELEMENTWISE, _broadcast_scalars, _compute_scalar),
    # add(reshape(x : (b)) : (b, 1), broadcast(scalar)) -> reshape(add(x, broadcast(scalar)) : (b)) : (b, 1)
    Rule("elementwise on unit dims", _ELEMENTWISE, _reshaped_operands, _compute_narrow, _reshape_adds_units),
)
