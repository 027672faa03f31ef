"""Inlining of a graph into another one: its ops on the caller's values, its sizes in terms of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, make_op, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.construction import Construction


def inlined(r: Construction, graph: Graph, values: Sequence[Value], sizes: Mapping[str, Dim]) -> list[Value]:
    """Inline a graph into the program that is read; its guards become conditions there. Returns the results.

    values: one for each input, of its type. sizes: the value of each symbol. Raises the errors of its ops and guards.
    """
    if graph.definitions:
        r.unsupported("sizes that depend on data are not supported here")
    given = {str(raw_dim(i, axis)): d for i, x in enumerate(values) for axis, d in enumerate(x.shape)}
    sizes = {**given, **sizes}
    # What the graph has called itself (a size that two broadcast to), by the sizes of its arguments.
    sizes.update((name, d.substitute(sizes)) for name, d in graph.bindings.items() if name not in sizes)
    for guard in graph.guards:
        lhs, rhs, *args = (d.substitute(sizes) for d in (guard.lhs, guard.rhs, *guard.args))
        r.require(lhs, guard.relation, rhs, guard.message, tuple(args))
    inside = dict(zip(graph.inputs, values, strict=True))
    for op in graph.ops:
        made = r.emit_all(op.name, [inside[x] for x in op.operands], **_resized(op.attrs, sizes))
        inside.update(zip(op.results, made, strict=True))
    return [inside[x] for x in graph.outputs]


def _resized(attrs: Mapping[str, object], sizes: Mapping[str, Dim]) -> dict[str, object]:
    return {name: _attribute(attr, sizes) for name, attr in attrs.items()}


def _attribute(attr: object, sizes: Mapping[str, Dim]) -> object:
    if type(attr) is Dim:
        return attr.substitute(sizes)
    if type(attr) is tuple:
        return tuple(_attribute(x, sizes) for x in attr)
    return _region(attr, sizes) if type(attr) is Region else attr


def _region(region: Region, sizes: Mapping[str, Dim]) -> Region:
    values = {x: Value(x.dtype, tuple(d.substitute(sizes) for d in x.shape), None, x.index) for x in region.inputs}
    ops: list[Op] = []
    for op in region.ops:
        types = [(x.dtype, tuple(d.substitute(sizes) for d in x.shape)) for x in op.results]
        ops.append(make_op(op.name, [values[x] for x in op.operands], _resized(op.attrs, sizes), types, op.loc))
        values.update(zip(op.results, ops[-1].results, strict=True))
    return Region(tuple(values[x] for x in region.inputs), tuple(ops), tuple(values[x] for x in region.outputs))
