"""Shape and dtype inference: one rule per op, from an op and the shape facts to its result types.

A rule asks ShapeFacts whether sizes can agree. NO is a ShapeError that names both sides; UNKNOWN is accepted, because
the importer turns what it cannot prove into guards. Ranks, attributes and dtypes that do not fit are CompileErrors; of
an op that is being imported they are the program's fault, and become UnsupportedOpErrors that name the user's op.
Source of the constraints: the StableHLO specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, COMPLEX_PARTS, bit_width, dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import CompileError, ShapeError

Types = list[tuple[np.dtype, Shape]]
Rule = Callable[[Op, ShapeFacts], Types]

ONE = Dim.const(1)
ZERO = Dim.const(0)


# ---------------------------------------------------------------------------------------------------------- errors


def describe(op: Op) -> str:
    """The op with its operand types and the user's source line, for messages."""
    where = f" at {op.loc}" if op.loc else ""
    return f"{op.name}({', '.join(map(repr, op.operands))}){where}"


def broken(op: Op, text: str) -> NoReturn:
    """An op that no frontend may build."""
    raise CompileError(f"{describe(op)}: {text}")


def disagree(op: Op, text: str) -> NoReturn:
    raise ShapeError(f"{describe(op)}: {text}")


# ------------------------------------------------------------------------------------------------------ agreement


def need_axes(op: Op, axes: Sequence[int], rank: int, what: str) -> None:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < rank for axis in axes):
        broken(op, f"{what} {tuple(axes)} must be distinct axes of rank {rank}")


def need_scalar(op: Op, value: Value, what: str) -> None:
    if value.shape:
        broken(op, f"{what} must be a scalar, not {value!r}")


def need_dtype(op: Op, value: Value, dtype: np.dtype, what: str) -> None:
    if value.dtype != dtype:
        broken(op, f"{what} has dtype {value.dtype}, expected {dtype}")


def need_integer(op: Op, value: Value, what: str) -> None:
    if dtype_class(value.dtype) not in ("int", "uint"):
        broken(op, f"{what} must be integers, not {value.dtype}")


def agree(op: Op, facts: ShapeFacts, a: Dim, b: Dim, what: str) -> Dim:
    """The common size of `a` and `b`: the constant one where there is one."""
    if a is b:
        return a
    if facts.equal(a, b) is Truth.NO:
        disagree(op, f"{what} can never agree: {a} and {b}")
    return b if b.is_const and not a.is_const else a


def agree_shapes(op: Op, facts: ShapeFacts, values: Sequence[Value]) -> Shape:
    """The common shape of values that must have equal shapes."""
    shape = values[0].shape
    for number, value in enumerate(values[1:], 1):
        if value.shape == shape:
            continue
        if value.rank != len(shape):
            broken(op, f"operand {number} has rank {value.rank}, operand 0 has rank {len(shape)}")
        pairs = enumerate(zip(shape, value.shape, strict=True))
        shape = tuple(agree(op, facts, a, b, f"dim {axis} of operands 0 and {number}") for axis, (a, b) in pairs)
    return shape


# ---------------------------------------------------------------------------------------------------- source ops


def constant(op: Op, facts: ShapeFacts) -> Types:
    value = op.attrs["value"]
    return [(value.dtype, tuple(map(Dim.const, value.shape)))]


def iota(op: Op, facts: ShapeFacts) -> Types:
    shape, dim = op.attrs["shape"], op.attrs["dim"]
    need_axes(op, (dim,), len(shape), "dim")
    return [(op.attrs["dtype"], shape)]


def dim(op: Op, facts: ShapeFacts) -> Types:
    if dtype_class(op.attrs["dtype"]) not in ("int", "uint"):
        broken(op, f"a size has an integer dtype, not {op.attrs['dtype']}")
    return [(op.attrs["dtype"], ())]


# ------------------------------------------------------------------------------------------------ elementwise ops


def elementwise(*classes: str) -> Rule:
    """Operands of one dtype out of `classes` and of one shape; the result has both."""

    def rule(op: Op, facts: ShapeFacts) -> Types:
        dtype = op.operands[0].dtype
        if dtype_class(dtype) not in classes:
            broken(op, f"dtype {dtype} is none of {', '.join(classes)}")
        for number, value in enumerate(op.operands[1:], 1):
            need_dtype(op, value, dtype, f"operand {number}")
        return [(dtype, agree_shapes(op, facts, op.operands))]

    return rule


def predicate(*classes: str) -> Rule:
    """Like `elementwise`, with a result of booleans."""
    inner = elementwise(*classes)
    return lambda op, facts: [(BOOL, inner(op, facts)[0][1])]


def compare(op: Op, facts: ShapeFacts) -> Types:
    """Complex numbers have no order."""
    classes = ("bool", "int", "uint", "float", "complex")
    return predicate(*classes if op.attrs["direction"] in ("EQ", "NE") else classes[:-1])(op, facts)


def convert(op: Op, facts: ShapeFacts) -> Types:
    return [(op.attrs["dtype"], op.operands[0].shape)]


def bitcast_convert(op: Op, facts: ShapeFacts) -> Types:
    """The same bits. Narrower elements get a last axis of so many as one holds, wider ones take the last axis away.

    A complex number counts as two real ones here, which StableHLO does not know.
    """
    (x,), dtype = op.operands, op.attrs["dtype"]
    source, target = bit_width(x.dtype), bit_width(dtype)
    if (x.dtype == BOOL) != (dtype == BOOL) or max(source, target) % min(source, target):
        broken(op, f"{x.dtype} and {dtype} differ in width")
    if source > target:
        return [(dtype, (*x.shape, Dim.const(source // target)))]
    if source < target:
        if not x.shape:
            broken(op, f"a scalar {x.dtype} is too short for {dtype}")
        agree(op, facts, x.shape[-1], Dim.const(target // source), f"the last axis and the parts of one {dtype}")
        return [(dtype, x.shape[:-1])]
    return [(dtype, x.shape)]


def reduce_precision(op: Op, facts: ShapeFacts) -> Types:
    if op.attrs["exponent_bits"] < 1 or op.attrs["mantissa_bits"] < 0:
        broken(op, "a number needs at least 1 bit of exponent and 0 of mantissa")
    return elementwise("float")(op, facts)


def real_part(op: Op, facts: ShapeFacts) -> Types:
    """`real` and `imag`."""
    (x,) = op.operands
    if x.dtype not in COMPLEX_PARTS:
        broken(op, f"dtype {x.dtype} is not complex")
    return [(part_dtype(x.dtype), x.shape)]


def complex_(op: Op, facts: ShapeFacts) -> Types:
    re, im = op.operands
    whole = {part: dtype for dtype, part in COMPLEX_PARTS.items()}.get(re.dtype)
    if whole is None:
        broken(op, f"there are no complex numbers of {re.dtype}")
    need_dtype(op, im, re.dtype, "operand 1")
    return [(whole, agree_shapes(op, facts, op.operands))]


def magnitude(op: Op, facts: ShapeFacts) -> Types:
    """`abs`: real for complex numbers."""
    (dtype, shape) = elementwise("int", "float", "complex")(op, facts)[0]
    return [(part_dtype(dtype), shape)]


def select(op: Op, facts: ShapeFacts) -> Types:
    pred, on_true, on_false = op.operands
    need_dtype(op, pred, BOOL, "the predicate")
    need_dtype(op, on_false, on_true.dtype, "operand 2")
    return [(on_true.dtype, agree_shapes(op, facts, (on_true, on_false, pred)))]


# ------------------------------------------------------------------------------------------------------- view ops


def broadcast(op: Op, facts: ShapeFacts) -> Types:
    (x,), shape, dims = op.operands, op.attrs["shape"], op.attrs["dims"]
    need_axes(op, dims, len(shape), "dims")
    if len(dims) != x.rank:
        broken(op, f"dims {dims} must name one result axis for each operand axis")
    for axis, (size, target) in enumerate(zip(x.shape, dims, strict=True)):
        if size is ONE or size is shape[target]:
            continue
        if facts.equal(size, shape[target]) is Truth.NO and facts.equal(size, ONE) is Truth.NO:
            disagree(op, f"operand dim {axis} of size {size} is neither 1 nor result dim {target} of {shape[target]}")
    return [(x.dtype, shape)]


def reshape(op: Op, facts: ShapeFacts) -> Types:
    (x,), shape = op.operands, op.attrs["shape"]
    if facts.same_size(x.shape, shape) is Truth.NO:
        disagree(op, f"the result shape ({', '.join(map(str, shape))}) can never have as many elements")
    return [(x.dtype, shape)]


def transpose(op: Op, facts: ShapeFacts) -> Types:
    (x,), perm = op.operands, op.attrs["perm"]
    need_axes(op, perm, x.rank, "perm")
    if len(perm) != x.rank:
        broken(op, f"perm {perm} must name all axes of rank {x.rank}")
    return [(x.dtype, tuple(x.shape[axis] for axis in perm))]


def slice_(op: Op, facts: ShapeFacts) -> Types:
    (x,), starts, limits, strides = op.operands, op.attrs["start"], op.attrs["limit"], op.attrs["stride"]
    if not len(starts) == len(limits) == len(strides) == x.rank:
        broken(op, f"start, limit and stride must have {x.rank} entries")
    shape = []
    for axis, (start, limit, stride, size) in enumerate(zip(starts, limits, strides, x.shape, strict=True)):
        if stride < 1:
            broken(op, f"stride {stride} of dim {axis} is not positive")
        if start is ZERO and limit is size and stride == 1:
            shape.append(size)
            continue
        for low, high in ((ZERO, start), (start, limit), (limit, size)):
            if facts.at_most(low, high) is Truth.NO:
                disagree(op, f"dim {axis} of size {size} has no elements {start} to {limit}")
        shape.append(limit - start if stride == 1 else (limit - start + (stride - 1)) // stride)
    return [(x.dtype, tuple(shape))]


def reverse(op: Op, facts: ShapeFacts) -> Types:
    need_axes(op, op.attrs["dims"], op.operands[0].rank, "dims")
    return [(op.operands[0].dtype, op.operands[0].shape)]


# --------------------------------------------------------------------------------------------------- assemble ops


def concatenate(op: Op, facts: ShapeFacts) -> Types:
    if not op.operands:
        broken(op, "nothing to concatenate")
    first, axis = op.operands[0], op.attrs["dim"]
    need_axes(op, (axis,), first.rank, "dim")
    shape, total = list(first.shape), first.shape[axis]
    for number, value in enumerate(op.operands[1:], 1):
        need_dtype(op, value, first.dtype, f"operand {number}")
        if value.rank != first.rank:
            broken(op, f"operand {number} has rank {value.rank}, operand 0 has rank {first.rank}")
        total = total + value.shape[axis]
        for other in set(range(first.rank)) - {axis}:
            what = f"dim {other} of operands 0 and {number}"
            shape[other] = agree(op, facts, shape[other], value.shape[other], what)
    shape[axis] = total
    return [(first.dtype, tuple(shape))]


def pad(op: Op, facts: ShapeFacts) -> Types:
    (x, value), lows, highs, interiors = op.operands, op.attrs["low"], op.attrs["high"], op.attrs["interior"]
    need_scalar(op, value, "the padding value")
    need_dtype(op, value, x.dtype, "the padding value")
    if not len(lows) == len(highs) == len(interiors) == x.rank:
        broken(op, f"low, high and interior must have {x.rank} entries")
    shape = []
    for axis, (low, high, interior, size) in enumerate(zip(lows, highs, interiors, x.shape, strict=True)):
        if interior < 0:
            broken(op, f"interior padding {interior} of dim {axis} is negative")
        spread = Dim.max(size - 1, ZERO) * interior if interior else ZERO
        padded = low + size + spread + high
        if facts.at_most(ZERO, padded) is Truth.NO:
            disagree(op, f"dim {axis} of size {size} would become {padded}")
        shape.append(padded)
    return [(x.dtype, tuple(shape))]


# --------------------------------------------------------------------------------------------- reductions and dots


def reduce(op: Op, facts: ShapeFacts) -> Types:
    (x, init), dims = op.operands, op.attrs["dims"]
    need_scalar(op, init, "the initial value")
    need_dtype(op, init, x.dtype, "the initial value")
    need_axes(op, dims, x.rank, "dims")
    logical, real = op.attrs["kind"] in ("and", "or", "xor"), dtype_class(x.dtype) != "complex"
    if logical and dtype_class(x.dtype) in ("float", "complex") or not (real or op.attrs["kind"] in ("add", "mul")):
        broken(op, f"{op.attrs['kind']} of dtype {x.dtype}")
    return [(x.dtype, tuple(size for axis, size in enumerate(x.shape) if axis not in dims))]


def dot_general(op: Op, facts: ShapeFacts) -> Types:
    (a, b), attrs = op.operands, op.attrs
    batch = tuple(zip(attrs["lhs_batch"], attrs["rhs_batch"], strict=False))
    contract = tuple(zip(attrs["lhs_contract"], attrs["rhs_contract"], strict=False))
    for what in ("batch", "contract"):
        if len(attrs[f"lhs_{what}"]) != len(attrs[f"rhs_{what}"]):
            broken(op, f"lhs_{what} {attrs[f'lhs_{what}']} and rhs_{what} {attrs[f'rhs_{what}']} differ in length")
    need_axes(op, attrs["lhs_batch"] + attrs["lhs_contract"], a.rank, "lhs_batch and lhs_contract")
    need_axes(op, attrs["rhs_batch"] + attrs["rhs_contract"], b.rank, "rhs_batch and rhs_contract")
    shape = [agree(op, facts, a.shape[i], b.shape[j], f"batch dims {i} and {j}") for i, j in batch]
    for i, j in contract:
        agree(op, facts, a.shape[i], b.shape[j], f"contracting dims {i} and {j}")
    shape += [size for axis, size in enumerate(a.shape) if axis not in attrs["lhs_batch"] + attrs["lhs_contract"]]
    shape += [size for axis, size in enumerate(b.shape) if axis not in attrs["rhs_batch"] + attrs["rhs_contract"]]
    return [(attrs["dtype"], tuple(shape))]
