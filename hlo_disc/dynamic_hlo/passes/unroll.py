"""Loops that run a few times whatever the data, written out: a pass over `while`.

Random numbers in JAX are made by a loop of five rounds over whole arrays. Written out they are one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, copied, has_effect
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

_TRIPS = 8
_OPS = 320  # of all iterations together


def unroll(graph: Graph) -> Graph:
    """An equal graph without such loops; the same object when there is none."""
    counts = {op: trips(op, graph.facts) for op in graph.ops if op.name == "while"}

    def written_out(builder: GraphBuilder, op: Op, old: Op) -> Sequence[Value] | None:
        n, carried = counts.get(old), [*op.operands]
        for _ in range(n or 0):
            builder.ops += (copied := _Copy(op.attrs["body"], carried)).ops
            carried[: len(op.results)] = copied.outputs
        return None if n is None else carried[: len(op.results)]

    return replaced(graph, written_out)


class _Copy:
    """The ops of a region with operands in place of its inputs."""

    def __init__(self, region: Region, operands: Sequence[Value]):
        names = dict(zip(region.inputs, operands, strict=True))
        self.ops = [copied(op, names) for op in region.ops]
        self.outputs = [names[x] for x in region.outputs]


def trips(op: Op, facts: ShapeFacts) -> int | None:
    """Return the number of a loop's iterations, if it is small and can be computed; None otherwise."""
    cond, body, count = op.attrs["cond"], op.attrs["body"], op.attrs["carried"]
    if any(map(has_effect, cond.ops)):  # the condition is not written out
        return None
    known = [_constant(x) for x in op.operands]
    for n in range(_TRIPS + 1):
        (again,) = _evaluate(cond, known, facts)
        if again is None:
            return None
        if not again:
            return n
        if (n + 1) * len(body.ops) > _OPS:
            return None
        known[:count] = _evaluate(body, known, facts)
    return None


def _constant(value: Value) -> np.ndarray | None:
    op = value.op
    return op.attrs["value"] if op is not None and op.name == "constant" and value.rank == 0 else None


def _evaluate(region: Region, inputs: Sequence[np.ndarray | None], facts: ShapeFacts) -> list[np.ndarray | None]:
    """The outputs that follow from the known inputs; scalars only."""
    known: dict[Value, np.ndarray | None] = dict(zip(region.inputs, inputs, strict=True))
    for op in region.ops:
        if len(op.results) == 1:
            known[op.result] = _result(op, [known.get(x) for x in op.operands], facts)
    return [known.get(x) for x in region.outputs]


def _result(op: Op, operands: Sequence[np.ndarray | None], facts: ShapeFacts) -> np.ndarray | None:
    if op.name == "dim":
        size = facts.canonical(op.attrs["expr"])
        return np.asarray(size.value, op.result.dtype) if size.is_const else None
    row = OPS[op.name]
    if op.result.shape or row.kind not in ("source", "elementwise") or any(x is None for x in operands):
        return None
    return np.asarray(row.reference(*operands, **op.attrs))
