"""Checks the invariants of graphs between stages: SSA order, the types that the op table infers, bound symbols.

A graph that fails is a bug in the stage before, so every failure is a CompileError that names the op.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Graph, Op, Region, Value, dims_in, regions
from hlo_disc.dynamic_hlo.ops.inference import Types, broken, describe
from hlo_disc.dynamic_hlo.ops.table import infer
from hlo_disc.dynamic_hlo.sizes.shapes import same_shape
from hlo_disc.errors import CompileError, ShapeError


def verify(graph: Graph) -> None:
    """Raise CompileError when the graph breaks an invariant; time is linear in its size."""
    raw = {f"%{number}.{axis}" for number, value in enumerate(graph.inputs) for axis in range(value.rank)}
    _verify_signature(graph, raw)
    symbols = {*graph.bindings, *graph.definitions}
    known: set[int] = set()  # dims recur in nearly every op, and equal ones are one object: each is looked at once
    defined = _verify_order(graph, graph)
    for op in graph.ops:
        for dim in dims_in(op):
            if id(dim) not in known:
                if not dim.symbols <= symbols:
                    broken(op, f"size {dim} has symbols that nothing binds: {_listed(dim.symbols - symbols)}")
                known.add(id(dim))
        if "symbol" in op.attrs:  # an op may define one for what comes after it
            symbols.add(op.attrs["symbol"])
    for number, value in enumerate(graph.outputs):
        if value not in defined:
            raise CompileError(f"output {number} of {graph.name} ({value!r}) is not defined in the graph")
    for symbol, value in graph.definitions.items():
        if value not in defined or value.dtype != np.int64 or value.shape:
            raise CompileError(f"{graph.name} defines {symbol} as {value!r}, which is no i64 scalar of the graph")


def _verify_order(graph: Graph, scope: Graph | Region) -> set[Value]:
    """Check the values of a scope: its ops read only values that it defines earlier, and have the inferred types."""
    defined: set[Value] = set(scope.inputs)
    for op in scope.ops:
        for number, value in enumerate(op.operands):
            if value not in defined:
                where = f", the result of {describe(value.op)}" if value.op else ""
                broken(op, f"operand {number} ({value!r}{where}) is not defined before its use")
        _verify_types(graph, op)
        for region in regions(op):
            inside = _verify_order(graph, region)
            for number, value in enumerate(region.outputs):
                if value not in inside:
                    broken(op, f"output {number} ({value!r}) of a region is not defined in it")
        defined.update(op.results)
    return defined


def _verify_signature(graph: Graph, raw: set[str]) -> None:
    if len(graph.input_names) != len(graph.inputs):
        raise CompileError(f"{graph.name} has {len(graph.inputs)} inputs and {len(graph.input_names)} names for them")
    for symbol, dim in graph.bindings.items():
        if not dim.symbols <= raw:
            raise CompileError(f"{graph.name} binds {symbol} to {dim}: {_listed(dim.symbols - raw)} is no input's size")
    symbols = set(graph.bindings)
    known = raw | symbols | set(graph.definitions)
    for number, (name, value) in enumerate(zip(graph.input_names, graph.inputs, strict=True)):
        if value.op is not None or value.index != number:
            raise CompileError(f"input {number} of {graph.name} ({name}) is a value of another place: {value!r}")
        for dim in value.shape:
            if not dim.symbols <= symbols:
                raise CompileError(f"input {name} has size {dim}: nothing binds {_listed(dim.symbols - symbols)}")
    for number, guard in enumerate((*graph.guards, *graph.asked)):
        place = f"guard {number} of {graph.name} ({guard.lhs} {guard.relation} {guard.rhs})"
        if guard.relation not in RELATIONS:
            raise CompileError(f"{place}: the relation must be one of {' '.join(RELATIONS)}")
        for dim in (guard.lhs, guard.rhs, *guard.args):
            if not dim.symbols <= known:
                raise CompileError(f"{place}: nothing binds {_listed(dim.symbols - known)}")
        if not _fits(guard.message, len(guard.args)):
            raise CompileError(f"{place}: the message {guard.message!r} does not fit {len(guard.args)} arguments")


def _fits(message: str, count: int) -> bool:
    """Whether `message.format` works with `count` arguments."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(message) if field is not None]
    except ValueError:
        return False
    return all(field.isdigit() and int(field) < count for field in fields)


def _verify_types(graph: Graph, op: Op) -> None:
    try:
        types = infer(op, graph.facts)
    except ShapeError as error:
        raise CompileError(str(error)) from error
    stored = [(value.dtype, value.shape) for value in op.results]
    if types != stored and not _agree(graph, types, stored):
        expected = ", ".join(repr(Value(dtype, shape)) for dtype, shape in types)
        broken(op, f"results {', '.join(map(repr, op.results))}, inferred {expected}")
    for number, value in enumerate(op.results):
        if value.op is not op or value.index != number:
            broken(op, f"result {number} ({value!r}) names another op as its source")


def _agree(graph: Graph, inferred: Types, stored: Types) -> bool:
    """Whether two types are equal though written differently: an op may be older than a fact about its sizes."""
    return len(inferred) == len(stored) and all(
        x == y and same_shape(graph.facts, a, b) for (x, a), (y, b) in zip(inferred, stored, strict=True)
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
