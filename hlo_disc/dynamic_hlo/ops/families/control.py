"""Control flow: `while` and `case`, whose regions are functions of their operands.

`while` (*carried, *invariant) {cond, body, carried}: `cond` says from all operands whether to go on, `body` makes new
carried values. `case` (index, *operands) {branches}: an index that names no branch means the last one. `check` () {lhs,
relation, rhs, message, args}: what must hold of the sizes when the region is executed that it is in, a guard in its
place.
In numpy a region is a function `(*arrays) -> list of arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL
from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Op, Region, Value
from hlo_disc.dynamic_hlo.ops.arrays import Function
from hlo_disc.dynamic_hlo.ops.inference import Types, broken
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError


def infer_while(op: Op, facts: ShapeFacts) -> Types:
    cond, body, carried = op.attrs["cond"], op.attrs["body"], op.operands[: op.attrs["carried"]]
    if len(carried) != op.attrs["carried"]:
        broken(op, f"{op.attrs['carried']} carried values of {len(op.operands)} operands")
    _need_inputs(op, facts, cond, op.operands, "the condition")
    _need_inputs(op, facts, body, op.operands, "the body")
    if [(v.dtype, v.rank) for v in cond.outputs] != [(BOOL, 0)]:
        broken(op, f"the condition returns {_types(cond.outputs)}, not one truth value")
    _need_same(op, facts, body.outputs, carried, "the body returns")
    return [(v.dtype, v.shape) for v in carried]


def while_(*arrays: np.ndarray, cond: Function, body: Function, carried: int) -> tuple[np.ndarray, ...]:
    state, invariant = list(arrays[:carried]), arrays[carried:]
    while cond(*state, *invariant)[0]:
        state = body(*state, *invariant)
    return tuple(state)


def infer_case(op: Op, facts: ShapeFacts) -> Types:
    index, *operands = op.operands
    branches = op.attrs["branches"]
    if not branches:
        broken(op, "there is no branch")
    if index.shape or index.dtype.kind != "i":
        broken(op, f"the index must be an integer scalar, not {index!r}")
    for number, branch in enumerate(branches):
        _need_inputs(op, facts, branch, operands, f"branch {number}")
        _need_same(op, facts, branch.outputs, branches[0].outputs, f"branch {number} returns")
    return [(v.dtype, v.shape) for v in branches[0].outputs]


def case(index: np.ndarray, *arrays: np.ndarray, branches: Sequence[Function]) -> tuple[np.ndarray, ...]:
    number = int(index)
    branch = branches[number] if 0 <= number < len(branches) else branches[-1]
    return tuple(branch(*arrays))


def infer_check(op: Op, facts: ShapeFacts) -> Types:
    if op.attrs["relation"] not in RELATIONS:
        broken(op, f"the relation must be one of {' '.join(RELATIONS)}")
    return []


def _need_inputs(op: Op, facts: ShapeFacts, region: Region, operands: Sequence[Value], what: str) -> None:
    _need_same(op, facts, region.inputs, operands, f"{what} takes")


def _need_same(op: Op, facts: ShapeFacts, found: Sequence[Value], expected: Sequence[Value], what: str) -> None:
    if [(v.dtype, v.rank) for v in found] != [(v.dtype, v.rank) for v in expected]:
        broken(op, f"{what} {_types(found)}, expected {_types(expected)}")
    for x, y in zip(found, expected, strict=True):
        if x.shape != y.shape:
            for axis, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)):
                if facts.equal(a, b) is Truth.NO:
                    raise ShapeError(
                        f"{op.name} at {op.loc or 'unknown line'}: {what} {x!r}, expected {y!r}: dim {axis}"
                    )


def _types(values: Sequence[Value]) -> str:
    return f"({', '.join(map(repr, values))})"


def check(lhs: int, relation: str, rhs: int, message: str, args: Sequence[int]) -> tuple[()]:
    if not RELATIONS[relation](lhs, rhs):
        raise ShapeError(message.format(*args))
    return ()


ROWS = (
    OpDef("while", "control", None, infer_while, while_, ("cond", "body", "carried")),
    OpDef("case", "control", None, infer_case, case, ("branches",)),
    OpDef("check", "host", 0, infer_check, check, ("lhs", "relation", "rhs", "message", "args")),
)
