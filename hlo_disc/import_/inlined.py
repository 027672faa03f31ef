"""A graph inside of another one: its ops on the values that it is called with, its sizes in terms of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value, raw_dim
from hlo_disc.dynamic_hlo.ir.resized import resized_attributes
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.construction import Construction


def inlined(r: Construction, graph: Graph, values: Sequence[Value], sizes: Mapping[str, Dim]) -> list[Value]:
    """The results of a graph as part of the program that is read, for which its guards become conditions.

    values: one an input, of its type. sizes: what each symbol of the graph is. Raises what its ops and guards do.
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
