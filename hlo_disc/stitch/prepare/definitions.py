"""Sizes known only at run time: definitions of a graph become `define` ops, guards on their symbols `check` ops.

An op with such a symbol runs after its definition. Before a check, only ops that the check itself needs may run
(`fusion/ordering.py`). `stages` says how long each op has to wait.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Value, dims_in
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.errors import CompileError


def with_definitions(graph: Graph) -> Graph:
    """Return the graph with definitions as ops `define` (scalar) {symbol, effect}, and dependent guards as checks."""
    if not graph.definitions:
        return graph
    names: dict[Value, list[str]] = {}
    for name, value in graph.definitions.items():
        names.setdefault(value, []).append(name)
    waiting = [g for g in graph.guards if not _mentioned(g).isdisjoint(graph.definitions)]
    guards = tuple(g for g in graph.guards if g not in waiting)
    known: set[str] = set(graph.bindings)
    builder = GraphBuilder(graph.facts)

    def define(value: Value) -> None:
        for name in names.get(value, ()):
            builder.multi("define", [value], value.op.loc if value.op else "", symbol=name, effect=True)
            known.add(name)
        for guard in [g for g in waiting if _mentioned(g) <= known]:
            waiting.remove(guard)
            checked = {name: value for name, value in vars(guard).items() if name != "overflow"}  # sizes of arrays fit
            builder.multi("check", **checked)

    for value in graph.inputs:
        define(value)
    for op in graph.ops:
        builder.ops.append(op)
        for value in op.results:
            define(value)
    if waiting:
        raise CompileError(f"nothing says when the guard {waiting[0]} can be checked")
    outputs = tuple(_copied(builder, x, graph.definitions) for x in graph.outputs)
    return replace(graph, outputs=outputs, ops=tuple(builder.ops), guards=guards, definitions={})


def _copied(builder: GraphBuilder, x: Value, definitions: Container[str]) -> Value:
    """Return an output, copied if it would share memory with a value whose shape is known at another time."""
    of = x
    while of.op is not None and of.op.name in ("reshape", "bitcast_convert"):
        of = of.op.operands[0]
    later = {name for d in x.shape for name in d.symbols if name in definitions} - {
        name for d in of.shape for name in d.symbols
    }
    return builder.op("broadcast", [x], shape=x.shape, dims=tuple(range(x.rank))) if later else x


def _mentioned(guard: Guard) -> frozenset[str]:
    return frozenset().union(*(d.symbols for d in (guard.lhs, guard.rhs, *guard.args)))


def stages(ops: Sequence[Op]) -> dict[Op, int]:
    """Return how many definitions each op has to wait for, one after the other; empty if there are none."""
    if "define" not in [op.name for op in ops]:
        return {}
    found: dict[Op, int] = {}
    defined: dict[str, int] = {}
    for op in ops:
        stage = max((found.get(x.op, 0) for x in op.operands if x.op is not None), default=0)
        for d in dims_in(op) if defined else ():
            stage = max([stage, *(defined[name] for name in d.symbols if name in defined)])
        found[op] = stage
        if op.name == "define":
            defined[op.attrs["symbol"]] = stage + 1
    return found
