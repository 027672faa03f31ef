"""The vocabulary of the rewrite rules: the op that makes a value, its constant value, the relation of two shapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.numbers import holds

LARGEST_FOLDED = 64  # elements of a constant that is computed while compiling


def made_by(value: Value, name: str) -> Op | None:
    """The op that makes `value` when it has that name."""
    return value.op if value.op is not None and value.op.name == name else None


def constant(value: Value) -> np.ndarray | None:
    """The array of a constant."""
    op = value.op
    return op.attrs["value"] if op is not None and op.name == "constant" else None


def all_equal(array: np.ndarray) -> bool:
    """Whether all elements have the same bits (0.0 and -0.0 differ, equal NaNs do not); False for no elements."""
    if array.size < 2:
        return array.size == 1
    bits = np.ascontiguousarray(array).reshape(-1).view(f"V{array.dtype.itemsize}")
    return bool(bits[0] == bits[-1] and (bits == bits[0]).all())


def splat(value: Value) -> np.ndarray | None:
    """The scalar that every element of `value` is, when it is a constant of one element, or a broadcast of one."""
    op = value.op
    if op is not None and op.name == "broadcast":
        op = op.operands[0].op
    if op is None or op.name != "constant" or op.attrs["value"].size != 1:
        return None
    scalar: np.ndarray = op.attrs["value"].reshape(())
    return scalar


def broadcast_scalar(value: Value) -> Value | None:
    """The scalar that `value` is a broadcast of."""
    op = value.op
    return op.operands[0] if op is not None and op.name == "broadcast" and not op.operands[0].shape else None


def scalar_dim(value: Value, may_wrap: bool = False) -> Dim | None:
    """The size that an integer scalar is known to be: a constant, or a `dim` op of a type that holds the size.

    may_wrap: also where the type may hold only the lowest bits of it.
    """
    if (op := made_by(value, "dim")) and bit_width(value.dtype) >= 32:
        size = op.attrs["expr"]
        return size if may_wrap or holds(None, size, value.dtype) else None
    array = constant(value)
    if array is None or array.shape or dtype_class(array.dtype) not in ("int", "uint"):
        return None
    return Dim.const(int(array))


class Counting(NamedTuple):
    """A carried value of a `while`, by number, that grows from `start` by `step` in each turn, as long as it is below
    `limit`.
    """

    counter: int
    start: Value
    limit: Value
    step: Value


def counting(loop: Op) -> Counting | None:
    """The way in which a `while` counts its turns, when its condition asks for nothing else."""
    cond, body, count = loop.attrs["cond"], loop.attrs["body"], loop.attrs["carried"]
    test = made_by(cond.outputs[0], "compare")
    if test is None or test.attrs["direction"] != "LT" or test.operands[0] not in cond.inputs[:count]:
        return None
    number = cond.inputs.index(test.operands[0])
    added = made_by(body.outputs[number], "add")
    if added is None or body.inputs[number] not in added.operands:
        return None
    limit, step = test.operands[1], added.operands[added.operands[0] is body.inputs[number]]
    fixed = dict(zip(cond.inputs[count:] + body.inputs[count:], loop.operands[count:] * 2, strict=True))
    return Counting(number, loop.operands[number], fixed.get(limit, limit), fixed.get(step, step))


def is_one(facts: ShapeFacts, size: Dim) -> bool:
    return size is ONE or facts.equal(size, ONE) is Truth.YES


def is_zero(facts: ShapeFacts, size: Dim) -> bool:
    return size is ZERO or facts.equal(size, ZERO) is Truth.YES


def are_equal(facts: ShapeFacts, a: Dim, b: Dim) -> bool:
    return a is b or facts.equal(a, b) is Truth.YES


def kept_axes(facts: ShapeFacts, narrow: Shape, wide: Shape) -> tuple[int, ...] | None:
    """The axis of `wide` for each axis of `narrow` when `wide` is `narrow` with axes of size 1 inserted."""
    axes: list[int] = []
    for axis, size in enumerate(wide):
        if len(axes) < len(narrow) and are_equal(facts, narrow[len(axes)], size):
            axes.append(axis)
        elif not is_one(facts, size):
            return None
    return tuple(axes) if len(axes) == len(narrow) else None
