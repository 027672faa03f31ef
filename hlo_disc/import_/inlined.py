"""Inlining of a graph into another one: its ops on the caller's values, its sizes in terms of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value, raw_dim
from hlo_disc.dynamic_hlo.ir.resized import resized_attributes
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
        made = r.emit_all(
            op.name, [inside[x] for x in op.operands], **resized_attributes(op.attrs, lambda d: d.substitute(sizes))
        )
        inside.update(zip(op.results, made, strict=True))
    return [inside[x] for x in graph.outputs]
