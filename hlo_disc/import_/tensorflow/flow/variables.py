"""Ops that assign to variables: a variable's value is an operand, and its new value a result after the op's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I64, U64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, joined
from hlo_disc.import_.handlers.random import advanced
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.indexing.indexing import strided_update
from hlo_disc.import_.tensorflow.indexing.scatters import scatter_into, scattered
from hlo_disc.import_.tensorflow.sampling import random

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

# A generator counts 256 words for each number that is drawn, whatever it is drawn from.
_WORDS = 256


def _assign(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Assign: a variable keeps its shape, unless that is not known."""
    made, sizes = r.data(operands[1]), op.operands[0].type.sizes
    if sizes is not None:
        if len(sizes) != made.rank:
            r.unsupported(f"a value of rank {made.rank} for a variable of rank {len(sizes)}")
        for axis, (d, n) in enumerate(zip(made.shape, sizes, strict=True)):
            if n is not None:
                r.equal(d, Dim.const(n), f"dimension {axis} of a value and of the variable it is assigned to")
    return made


def _by(name: str) -> Handler:
    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        held, other = array(r, operands[0]), array(r, operands[1])
        for axis, (d, n) in enumerate(zip(other.shape, held.shape, strict=True)):
            r.equal(d, n, f"dimension {axis} of a value and of the variable")
        return held.emit(name, other).value

    return handler


def _is_initialized(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return true: a variable is read when the program is called, so it has a value."""
    return Symbolic(np.dtype(np.bool_), (), (True,))


def _scatter(kind: str) -> Handler:
    """Scatter rows at the numbers of rows, or one row at all of them."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        held, at, updates = (array(r, x) for x in operands)
        if not updates.rank:
            updates = updates.broadcast((*at.shape, *held.shape[1:]))
        at = at.reshape((*at.shape, ONE))
        return scattered(r, held, at, updates, kind).value

    return handler


def _skipped(r: Reader, state: Array, count: Array) -> Array:
    """Return the state of a generator after `count` numbers: a counter of 128 bits, and a key."""
    low, high, *key = (state.slice(0, i, i + 1) for i in range(r.constants(state.shape, "a generator's state")[0]))
    before = low.emit("bitcast_convert", dtype=U64)
    after, high = advanced(before, high, count.cast(U64).reshape((ONE,)) * _WORDS)
    return joined([after.emit("bitcast_convert", dtype=I64), high, *key], 0)


def _read_and_skip(r: Reader, op: Node, operands: list[Operand]) -> Result:
    state = array(r, operands[0])
    return [state.value, _skipped(r, state, array(r, operands[2])).value]


def _drawn(name: str) -> Handler:
    """Draw from a generator's state: the numbers of the stateless op, and the state after them."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        state, algorithm, shape, *rest = operands
        held = array(r, state)
        key, counter = held.slice(0, 2, 3), held.slice(0, 0, 2)
        words = [x.emit("bitcast_convert", dtype=U64).value for x in (key, counter)]
        made = random.HANDLERS[name](r, op, [shape, *words, algorithm, *rest])
        count = filled(r, dim_product(r.sizes(shape)), I64)
        return [made, _skipped(r, held, count).value]  # type: ignore[list-item]

    return handler


HANDLERS: dict[str, Handler] = {
    "AssignAddVariableOp": _by("add"),
    "AssignSubVariableOp": _by("subtract"),
    "AssignVariableOp": _assign,
    **{f"ResourceScatter{kind.title()}": _scatter(kind) for kind in ("add", "div", "max", "min", "mul", "sub")},
    **{f"ResourceScatterNd{kind.title()}": scatter_into(kind) for kind in ("add", "max", "min", "sub")},
    "ResourceScatterNdUpdate": scatter_into("set"),
    "ResourceScatterUpdate": _scatter("set"),
    "ResourceStridedSliceAssign": strided_update,
    "RngReadAndSkip": _read_and_skip,
    "RngSkip": lambda r, op, operands: _skipped(r, array(r, operands[0]), array(r, operands[2])).value,
    "StatefulStandardNormalV2": _drawn("StatelessRandomNormalV2"),
    "StatefulTruncatedNormal": _drawn("StatelessTruncatedNormalV2"),
    "StatefulUniform": _drawn("StatelessRandomUniformV2"),
    "StatefulUniformFullInt": _drawn("StatelessRandomUniformFullIntV2"),
    "StatefulUniformInt": _drawn("StatelessRandomUniformIntV2"),
    "VarIsInitializedOp": _is_initialized,
}
