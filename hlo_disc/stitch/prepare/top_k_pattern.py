"""Sorts of which only the first elements are read: their results become as short as that."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, make_op, uses
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim


def cut_sorts(graph: Graph) -> Graph:
    """sort, then slices of its first k along the sorted axis -> a sort whose results have k elements there."""
    sorts = [op for op in graph.ops if op.name == "sort"]
    if not sorts:
        return graph
    users, roots = uses(graph), set(graph.roots)
    lengths = {op: k for op in sorts if (k := _length(op, users, roots)) is not None}
    new: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in graph.ops:
        if op.name == "slice" and op.operands[0].op in lengths:
            new[op.result] = new[op.operands[0]]
            continue
        operands = [new.get(x, x) for x in op.operands]
        types = [(r.dtype, r.shape) for r in op.results]
        if op in lengths:
            dim = op.attrs["dim"]
            types = [(t, (*shape[:dim], lengths[op], *shape[dim + 1 :])) for t, shape in types]
        elif all(x is y for x, y in zip(operands, op.operands, strict=True)):
            ops.append(op)
            continue
        ops.append(make_op(op.name, operands, op.attrs, types, op.loc))
        new.update(zip(op.results, ops[-1].results, strict=True))
    return graph.with_roots(new, ops=tuple(ops))


def _length(op: Op, users: dict[Value, list[Op]], roots: set[Value]) -> Dim | None:
    """How many elements of each row are read, when all that reads them are slices from the start of one length."""
    dim, found = op.attrs["dim"], set()
    for value in op.results:
        for user in users[value]:
            if value in roots or user.name != "slice" or set(user.attrs["stride"]) != {1}:
                return None
            start, limit = user.attrs["start"], user.attrs["limit"]
            whole = all(limit[a] == n for a, n in enumerate(value.shape) if a != dim)
            if any(d != ZERO for d in start) or not whole:
                return None
            found.add(limit[dim])
        if value in roots:
            return None
    return found.pop() if len(found) == 1 else None
