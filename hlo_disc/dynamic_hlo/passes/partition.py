"""Splits a program with its derivative into two: one for the results, and one for the derivatives, which runs later.

The derivatives follow from *seeds*, custom calls in place of the values that are known only then. The other values that
they need of the first program are kept, or computed again if that takes less memory. This is the minimum cut between
the two, as in recomputation for automatic differentiation (min-cut partitioning). Only cheap ops are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.dependence import live_ops
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Value, copied, raw_dim
from hlo_disc.dynamic_hlo.ops.cost import typical_bytes
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.errors import UnsupportedOpError

# The target of custom calls that are seeds, before their number.
SEED = "hlo_disc.seed."

_CHEAP = frozenset(("source", "view", "alias", "elementwise"))


class Parts(NamedTuple):
    """forward: inputs -> results, then what is kept. backward: inputs, what is needed, seeds -> derivatives.

    needed: which outputs of `forward` the second takes. seeds: the numbers of those that it takes. Only `forward` has
    the conditions that pick a program.
    """

    forward: Graph
    backward: Graph
    needed: tuple[int, ...]
    seeds: tuple[int, ...]


def partition(graph: Graph, count: int) -> Parts:
    """The first `count` outputs as one program, the others, which follow from seeds, as another.

    Raises UnsupportedOpError where sizes depend on data.
    """
    if graph.definitions:
        raise UnsupportedOpError(
            "derivatives where sizes depend on data are not supported: give them a size, and a mask"
        )
    results, derivatives = graph.outputs[:count], graph.outputs[count:]
    late = _late(graph.ops)
    early = [op for op in graph.ops if op not in late]
    needs = live_ops([op for op in graph.ops if op in late], derivatives)
    seeds = [op for op in needs if is_seed(op)]
    read = dict.fromkeys([*(x for op in needs if op not in seeds for x in op.operands), *derivatives])
    boundary = [x for x in read if x.op is not None and x.op not in late]
    saved = _cut(boundary, results)
    outputs = (*results, *(x for x in saved if x not in results))
    forward = replace(graph, outputs=outputs, ops=tuple(live_ops(early, outputs)))
    again = _until(boundary, saved)
    wanted = {*again, *needs} - set(seeds)
    ops = [op for op in graph.ops if op in wanted]
    late_graph = replace(graph, outputs=derivatives, ops=tuple(ops), asked=())
    numbers = tuple(int(_target(op)[len(SEED) :]) for op in seeds)
    kept = {f"kept {i}": x for i, x in enumerate(saved)}
    cotangents = {f"cotangent {number}": op.result for number, op in zip(numbers, seeds, strict=True)}
    backward = _with_inputs(late_graph, {**kept, **cotangents})
    return Parts(forward, backward, tuple(map(outputs.index, saved)), numbers)


def is_seed(op: Op) -> bool:
    return _target(op).startswith(SEED)


def _target(op: Op) -> str:
    return str(op.attrs["target"]) if op.name == "custom_call" else ""


def _late(ops: Iterable[Op]) -> set[Op]:
    """Return the ops that depend on a seed, seeds included."""
    late: set[Op] = set()
    for op in ops:
        if is_seed(op) or any(x.op in late for x in op.operands):
            late.add(op)
    return late


def _cut(boundary: Sequence[Value], results: Sequence[Value]) -> list[Value]:
    """The values of least traffic from which, and from inputs, all of the boundary is cheap to compute.

    Results are in memory anyway, and need only be read.

    A maximum flow from what must be kept to the boundary, through as much of each value as it has bytes.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    number: dict[Value, int] = {}
    read: dict[Value, Sequence[Value]] = {}  # by what is cheap to compute
    todo = list(boundary)
    while todo:
        value = todo.pop()
        if value.op is not None and value not in number:
            number[value] = len(number)
            if kind(value.op) in _CHEAP:
                read[value] = value.op.operands
                todo += value.op.operands
    if not number:
        return []
    source, sink = 2 * len(number), 2 * len(number) + 1
    traffic = np.array([typical_bytes(value) * (1 if value in results else 2) for value in number])
    limit = np.iinfo(np.int32).max  # scipy counts in 32 bits
    units = 1 + (traffic * ((limit / 2 - len(number)) / max(traffic.sum(), 1.0))).astype(np.int32)
    edges: dict[tuple[int, int], int] = {}
    for value, k in number.items():
        edges[2 * k, 2 * k + 1] = int(units[k])
        if value in read:
            edges.update({(2 * number[x] + 1, 2 * k): limit for x in read[value] if x in number})
        else:
            edges[source, 2 * k] = limit
    edges.update({(2 * number[value] + 1, sink): limit for value in boundary})
    rows, columns = np.array(list(edges), np.int32).T
    network = csr_array((np.array(list(edges.values()), np.int32), (rows, columns)), shape=(sink + 1, sink + 1))
    left = network - maximum_flow(network, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    return [value for value, k in number.items() if 2 * k in reached and 2 * k + 1 not in reached]


def _until(values: Iterable[Value], known: Iterable[Value]) -> set[Op]:
    """The ops that make values from known ones and from inputs."""
    stop, found = set(known), set[Op]()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value.op is not None and value not in stop and value.op not in found:
            found.add(value.op)
            todo += value.op.operands
    return found


def _with_inputs(graph: Graph, values: Mapping[str, Value]) -> Graph:
    """The graph with these values as inputs more, by their names, and guards that they have their sizes."""
    count = len(graph.inputs)
    inputs = [Value(x.dtype, x.shape, None, count + i) for i, x in enumerate(values.values())]
    known = dict(zip(values.values(), inputs, strict=True))
    ops = tuple([copied(op, known) for op in graph.ops])
    guards = [
        Guard(
            raw_dim(count + i, axis),
            "==",
            d,
            f"{name} dimension {axis} is {{0}}, must be {d}",
            (raw_dim(count + i, axis),),
        )
        for i, (name, x) in enumerate(values.items())
        for axis, d in enumerate(x.shape)
    ]
    return replace(
        graph.with_roots(known, ops=ops),
        inputs=(*graph.inputs, *inputs),
        input_names=(*graph.input_names, *values),
        guards=(*graph.guards, *guards),
    )
