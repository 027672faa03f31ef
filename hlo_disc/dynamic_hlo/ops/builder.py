"""The builder of graphs. The op table infers the types of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Shape, Value, substitute, with_results
from hlo_disc.dynamic_hlo.ops.table import infer
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.shapes import canonical_shape
from hlo_disc.errors import ShapeError


class GraphBuilder:
    """Collects ops in order. `op` infers the results by the op table."""

    def __init__(self, facts: ShapeFacts):
        self.facts = facts
        self.ops: list[Op] = []

    def op(self, name: str, operands: Sequence[Value] = (), loc: str = "", **attrs: Unpack[Attributes]) -> Value:
        """Append an op and return its only result. Raises ShapeError when the operands cannot agree."""
        return self.multi(name, operands, loc, **attrs)[0]

    def multi(
        self, name: str, operands: Sequence[Value] = (), loc: str = "", **attrs: Unpack[Attributes]
    ) -> tuple[Value, ...]:
        """Append an op and return all its results. Inferred sizes get the form that equal sizes already have."""
        op = Op(name, tuple(operands), attrs, loc)
        types = [(np.dtype(dtype), canonical_shape(self.facts, shape)) for dtype, shape in infer(op, self.facts)]
        for dtype, shape in types:
            _check_bytes(dtype, shape)
        self.ops.append(with_results(op, types))
        return op.results


def _check_bytes(dtype: np.dtype, shape: Shape) -> None:
    """Raise ShapeError if a value has more bytes than 64 bits count, with all symbols at 1."""
    count = dtype.itemsize
    for d in shape:
        count *= abs(d.terms[0][1]) if len(d.terms) == 1 else sum(abs(coefficient) for _, coefficient in d.terms)
    if count >= 1 << 63:
        raise ShapeError(f"a result of {dtype}[{', '.join(map(str, shape))}] has more bytes than 64 bits can count")


def replaced(graph: Graph, replacement: Callable[[GraphBuilder, Op, Op], Sequence[Value] | None]) -> Graph:
    """Return the graph with other values in place of the results of ops; the same object if no op is replaced.

    replacement: called with a builder, the op on replaced operands, and the original op of the graph. It returns a
    value for each result, or None to keep the op.
    """
    builder, found = GraphBuilder(graph.facts), False
    values: dict[Value, Value] = {}
    for old in graph.ops:
        op = substitute(old, values)
        results = replacement(builder, op, old)
        if results is None:
            builder.ops.append(op)
        else:
            found = True
            values.update(zip(old.results, results, strict=True))
    return graph.with_roots(values, ops=tuple(builder.ops)) if found else graph


def make_region(
    facts: ShapeFacts,
    types: Sequence[tuple[np.dtype, Shape]],
    build: Callable[[GraphBuilder, tuple[Value, ...]], Sequence[Value]],
) -> Region:
    """A region from `build(builder, inputs) -> outputs`, which captures nothing."""
    builder = GraphBuilder(facts)
    inputs = tuple(Value(np.dtype(t), shape, None, i) for i, (t, shape) in enumerate(types))
    outputs = tuple(build(builder, inputs))
    return Region(inputs, tuple(builder.ops), outputs)
