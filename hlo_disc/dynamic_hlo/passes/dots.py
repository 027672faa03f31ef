"""Transposes around `dot_general` become its axis numbers: rules for its operands, and a pass for its result.

A dot reads any layout, so a transposed operand costs nothing when the numbers say it. The result always has the batch
axes, then the lhs's, then the rhs's; where the program turns that round (einsum does), the operands change places.
"""

from __future__ import annotations

from typing import Any

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, uses
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.passes.patterns import Match, made_by
from hlo_disc.dynamic_hlo.passes.rewrite import Rule


def _transposed_operand(op: Op) -> Match:
    """The first operand that is a transpose whose free axes keep their order, with its number."""
    for number, side in enumerate(("lhs", "rhs")):
        inner = made_by(op.operands[number], "transpose")
        if inner is None:
            continue
        used = op.attrs[f"{side}_batch"] + op.attrs[f"{side}_contract"]
        free = [axis for i, axis in enumerate(inner.attrs["perm"]) if i not in used]
        if free == sorted(free):
            return number, side, inner
    return None


def _read_untransposed(builder: GraphBuilder, op: Op, number: int, side: str, inner: Op) -> Value:
    perm = inner.attrs["perm"]
    names = (f"{side}_batch", f"{side}_contract")
    moved = {name: tuple(perm[axis] for axis in op.attrs[name]) for name in names}
    operands = [inner.operands[0] if i == number else value for i, value in enumerate(op.operands)]
    return builder.op("dot_general", operands, op.loc, **{**op.attrs, **moved})


DOT_RULES = (
    # dot_general(transpose(x), y) -> dot_general(x, y)
    Rule("dot_general of transpose", ("dot_general",), _transposed_operand, _read_untransposed),
)


def orient_dots(graph: Graph) -> Graph:
    """Exchange the operands of dots whose only user is a transpose that puts the rhs's axes before the lhs's."""
    users = uses(graph)
    builder = GraphBuilder(graph.facts)
    values: dict[Value, Value] = {}
    perms: dict[Op, tuple[int, ...]] = {}
    for op in graph.ops:
        operands = tuple(values.get(value, value) for value in op.operands)
        attrs: dict[str, Any] = dict(op.attrs)
        if op in perms:
            attrs["perm"] = perms[op]
        elif op.name == "dot_general" and len(users[op.result]) == 1 and op.result not in graph.outputs:
            (user,) = users[op.result]
            perm = _perm_after_exchange(op, user) if user.name == "transpose" else None
            if perm is not None:
                perms[user] = perm
                operands = operands[::-1]
                attrs = {_OTHER_SIDE.get(name, name): value for name, value in attrs.items()}
        if attrs == op.attrs and operands == op.operands:
            builder.ops.append(op)
        else:
            values.update(zip(op.results, builder.multi(op.name, operands, op.loc, **attrs), strict=True))
    if not perms:
        return graph
    return graph.with_roots(values, ops=tuple(builder.ops))


_OTHER_SIDE = {
    "lhs_batch": "rhs_batch",
    "rhs_batch": "lhs_batch",
    "lhs_contract": "rhs_contract",
    "rhs_contract": "lhs_contract",
}


def _perm_after_exchange(dot: Op, transpose: Op) -> tuple[int, ...] | None:
    batch = len(dot.attrs["lhs_batch"])
    lhs = dot.operands[0].rank - batch - len(dot.attrs["lhs_contract"])
    rhs = dot.result.rank - batch - lhs
    perm = transpose.attrs["perm"]
    last_of_rhs = max((i for i, axis in enumerate(perm) if axis >= batch + lhs), default=-1)
    first_of_lhs = min((i for i, axis in enumerate(perm) if batch <= axis < batch + lhs), default=-1)
    if not lhs or not rhs or last_of_rhs > first_of_lhs:
        return None
    return tuple(axis if axis < batch else axis + rhs if axis < batch + lhs else axis - lhs for axis in perm)
