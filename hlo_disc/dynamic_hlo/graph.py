"""DHLO: a small SSA graph. A value has a dtype and a shape of `Dim`s; static and dynamic StableHLO ops are one op here.

Values and ops are immutable and compared by identity; a `Graph` lists its ops in topological order. Passes are pure
functions `Graph -> Graph`: they build a new graph with `GraphBuilder` and leave the old one alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts

Shape = tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor. `op` is None for an input; `index` is the result number of `op`, or the input number."""

    dtype: np.dtype
    shape: Shape
    op: Op | None = None
    index: int = 0

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. `loc` is the user's source line as text, "" when unknown."""

    name: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]
    loc: str = ""
    results: tuple[Value, ...] = field(default=(), init=False)

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value


@dataclass(frozen=True)
class Guard:
    """A condition that a call must meet: `lhs relation rhs`, relation one of == != >= > <= <.

    The dims range over the graph's symbols and over `raw_dim` symbols. `message` may hold {0}, {1} …: the values of
    `args` at the call.
    """

    lhs: Dim
    relation: str
    rhs: Dim
    message: str
    args: tuple[Dim, ...] = ()


def raw_dim(argument: int, axis: int) -> Dim:
    """The size that a call passed for `axis` of `argument`, as a symbol; bindings and guards are made of these."""
    return Dim.symbol(f"%{argument}.{axis}")


@dataclass(frozen=True, eq=False)
class Graph:
    """A program.

    input_names: one a input, for messages ("args[0]['w']", "x").
    bindings: how each symbol follows from the call's sizes, a Dim over `raw_dim` symbols.
    guards: checked in order before anything runs.
    """

    name: str
    inputs: tuple[Value, ...]
    input_names: tuple[str, ...]
    outputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    facts: ShapeFacts
    bindings: Mapping[str, Dim]
    guards: tuple[Guard, ...] = ()


def make_op(
    name: str, operands: Sequence[Value], attrs: Mapping[str, Any], types: Sequence[tuple[np.dtype, Shape]], loc: str
) -> Op:
    """An op whose result types are known already."""
    op = Op(name, tuple(operands), attrs, loc)
    object.__setattr__(op, "results", tuple(Value(t, shape, op, i) for i, (t, shape) in enumerate(types)))
    return op


class GraphBuilder:
    """Collects ops in order. `op` infers the results by the op table."""

    def __init__(self, facts: ShapeFacts):
        self.facts = facts
        self.ops: list[Op] = []

    def op(self, name: str, operands: Sequence[Value] = (), loc: str = "", **attrs: Any) -> Value:
        """Append an op and return its only result. Raises ShapeError when the operands cannot agree."""
        return self.multi(name, operands, loc, **attrs)[0]

    def multi(self, name: str, operands: Sequence[Value] = (), loc: str = "", **attrs: Any) -> tuple[Value, ...]:
        """Append an op and return all its results."""
        from hlo_disc.dynamic_hlo.ops import infer

        types = infer(Op(name, tuple(operands), attrs, loc), self.facts)
        op = make_op(name, operands, attrs, [(np.dtype(t), s) for t, s in types], loc)
        self.ops.append(op)
        return op.results


def uses(graph: Graph) -> dict[Value, list[Op]]:
    """The ops that read each value, in order; an op that reads a value twice is listed twice."""
    users: dict[Value, list[Op]] = {value: [] for value in graph.inputs}
    for op in graph.ops:
        for value in op.results:
            users[value] = []
    for op in graph.ops:
        for value in op.operands:
            users[value].append(op)
    return users
