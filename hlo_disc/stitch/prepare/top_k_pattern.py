"""Shortens sorts of which only the first elements are read."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, uses
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim


def cut_sorts(graph: Graph) -> Graph:
    """Rewrite sort, then slices of its first k along the sorted axis -> `sort_first`."""
    sorts = [op for op in graph.ops if op.name == "sort"]
    if not sorts:
        return graph
    users, roots = uses(graph), set(graph.roots)
    lengths = {op: k for op in sorts if (k := _length(op, users, roots)) is not None}

    def cut(builder: GraphBuilder, op: Op, old: Op) -> Sequence[Value] | None:
        if op.name == "slice" and old.operands[0].op in lengths:
            return op.operands
        if old not in lengths:
            return None
        return builder.multi("sort_first", op.operands, op.loc, **op.attrs | {"first": lengths[old]})

    return replaced(graph, cut)


def _length(op: Op, users: dict[Value, list[Op]], roots: set[Value]) -> Dim | None:
    """Return how many elements of each row are read, if all readers are slices from the start of one length."""
    dim, found = op.attrs["dim"], set()
    for value in op.results:
        for user in users[value]:
            if value in roots or user.name != "slice" or set(user.attrs["stride"]) != {1}:
                return None
            start, limit = user.attrs["start"], user.attrs["limit"]
            whole = all(limit[a] == n for a, n in enumerate(value.shape) if a != dim)
            if any(d is not ZERO for d in start) or not whole:
                return None
            found.add(limit[dim])
        if value in roots:
            return None
    return found.pop() if len(found) == 1 else None
