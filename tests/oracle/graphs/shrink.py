"""Reduces a failing graph to a small one that fails the same way: outputs go, then ops turn into inputs, one by one."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from comparison.differential import SIZES, Mismatch, check
from op_rows.gen import bound_graph

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, substitute


def failure(graph: Graph, numbers: Sequence[int] = range(len(SIZES)), with_xla: bool = False) -> Exception | None:
    """Return the error that checking a graph raises, if there is one."""
    try:
        check(graph, numbers, with_xla)
    except Exception as error:
        return error
    return None


def shrink(graph: Graph, error: Exception, until: float, with_xla: bool = False) -> tuple[Graph, Exception]:
    """The smallest graph found until then (of time.monotonic) that raises the same kind of error, and that error."""
    numbers = (error.number,) if isinstance(error, Mismatch) else tuple(range(len(SIZES)))

    def attempt(outputs: Sequence[Value], stops: Collection[Value] = ()) -> bool:
        nonlocal graph, error
        smaller = part(graph, outputs, stops)
        found = failure(smaller, numbers, with_xla)
        if type(found) is not type(error):
            return False
        graph, error = smaller, found
        return True

    step = max(len(graph.outputs) // 2, 1)
    while step and len(graph.outputs) > 1 and time.monotonic() < until:
        groups = [graph.outputs[i : i + step] for i in range(0, len(graph.outputs), step)]
        if not any(attempt([v for v in graph.outputs if v not in group]) for group in groups):
            step //= 2
    # An op less, and what only it reads: the first ones of the graph take the most away.
    done: set[int] = set()
    while time.monotonic() < until:
        at = next((i for i in reversed(range(len(graph.ops))) if len(graph.ops) - i not in done), None)
        if at is None:
            break
        done.add(len(graph.ops) - at)
        op = graph.ops[at]
        # Numbers stay: some ops mean something for certain ones only.
        if op.operands and not any(v in graph.outputs for v in op.results):
            attempt(graph.outputs, op.results)
    return graph, error


def part(graph: Graph, outputs: Sequence[Value], stops: Collection[Value]) -> Graph:
    """Return the part of a graph that `outputs` need. The values in `stops` are inputs."""
    needed: set[Value] = set(outputs)
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if any(v in needed and v not in stops for v in op.results):
            kept.append(op)
            needed.update(op.operands)
    values: dict[Value, Value] = {}
    inputs: list[Value] = []
    made = {v for op in kept for v in op.results if v not in stops}
    for value in [*graph.inputs, *(v for op in graph.ops for v in op.results)]:
        if value in needed and value not in made:
            values[value] = Value(value.dtype, value.shape, None, len(inputs))
            inputs.append(values[value])
    ops = [substitute(op, values) for op in reversed(kept)]
    return bound_graph(inputs, ops, [values.get(v, v) for v in outputs], graph.facts)
