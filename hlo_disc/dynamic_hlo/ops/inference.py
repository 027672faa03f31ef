"""The shared functions of inference rules. A rule maps an op and the shape facts to the op's result types.

A rule asks ShapeFacts whether sizes can agree. NO is a ShapeError that names both sides; UNKNOWN is accepted, because
the importer turns what it cannot prove into guards. Ranks, attributes and dtypes that do not fit are CompileErrors; of
an op that is being imported they are the program's fault, and become UnsupportedOpErrors that name the user's op.
Source of the constraints: the StableHLO specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import CompileError, ShapeError

Types = list[tuple[np.dtype, Shape]]
Rule = Callable[[Op, ShapeFacts], Types]


# ---------------------------------------------------------------------------------------------------------- errors


def describe(op: Op) -> str:
    """Return the op with its operand types and the user's source line, for messages."""
    where = f" at {op.loc}" if op.loc else ""
    return f"{op.name}({', '.join(map(repr, op.operands))}){where}"


def broken(op: Op, text: str) -> NoReturn:
    """Make the error of an op that no frontend may build."""
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
    """Return the common size of `a` and `b`: the constant one, if one is constant."""
    if a is b:
        return a
    if facts.equal(a, b) is Truth.NO:
        disagree(op, f"{what} can never agree: {a} and {b}")
    return b if b.is_const and not a.is_const else a


def agree_shapes(op: Op, facts: ShapeFacts, values: Sequence[Value]) -> Shape:
    """Return the common shape of values that must have equal shapes."""
    shape = values[0].shape
    for number, value in enumerate(values[1:], 1):
        if value.shape == shape:
            continue
        if value.rank != len(shape):
            broken(op, f"operand {number} has rank {value.rank}, operand 0 has rank {len(shape)}")
        pairs = enumerate(zip(shape, value.shape, strict=True))
        shape = tuple(agree(op, facts, a, b, f"dim {axis} of operands 0 and {number}") for axis, (a, b) in pairs)
    return shape
