"""Transposes and reshapes around `dot_general` become its axis numbers: rules for its operands, passes for its result.

A dot reads any layout, so a transposed operand costs nothing if the numbers express it. The result always has the batch
axes, then the lhs's, then the rhs's. If the program has the opposite order (einsum does), the operands are exchanged.
PyTorch multiplies batches of several axes as matrices of one batch axis, between reshapes. With separate axes, a dot
and the ops after it have the same indices, which an attention needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Shape, Value, uses
from hlo_disc.dynamic_hlo.ops.axes import SIDES, dot_sides
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.passes.rules.patterns import made_by
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, make, rule
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.shapes import same_shape

DOT_RULES: list[Rule] = []


@rule(DOT_RULES, "dot_general", name="dot_general of transpose")
def dot_general_of_transpose(facts: ShapeFacts, op: Op) -> Instead | None:
    """dot_general(transpose(x), y) → dot_general(x, y)"""
    for number, side in enumerate(SIDES):
        inner = made_by(op.operands[number], "transpose")
        if inner is None:
            continue
        perm = inner.attrs["perm"]
        free = [perm[axis] for axis in dot_sides(op)[number].free]
        if free == sorted(free):
            attrs = op.attrs.copy()
            for name in side:
                attrs[name] = tuple(perm[axis] for axis in op.attrs[name])
            operands = [inner.operands[0] if i == number else value for i, value in enumerate(op.operands)]
            return make("dot_general", *operands, **attrs)
    return None


def orient_dots(graph: Graph) -> Graph:
    """Exchange the operands of dots whose only user is a transpose that puts the rhs's axes before the lhs's."""
    users = uses(graph)
    perms: dict[Op, tuple[int, ...]] = {}

    def turned(builder: GraphBuilder, op: Op, old: Op) -> Sequence[Value] | None:
        if old in perms:
            return builder.multi("transpose", op.operands, op.loc, perm=perms[old])
        if op.name != "dot_general" or len(users[old.result]) != 1 or old.result in graph.outputs:
            return None
        (user,) = users[old.result]
        perm = _perm_after_exchange(op, user) if user.name == "transpose" else None
        if perm is None:
            return None
        perms[user] = perm
        a = op.attrs
        lhs: Attributes = {"lhs_batch": a["rhs_batch"], "lhs_contract": a["rhs_contract"]}
        rhs: Attributes = {"rhs_batch": a["lhs_batch"], "rhs_contract": a["lhs_contract"]}
        return builder.multi(op.name, op.operands[::-1], op.loc, **a | lhs | rhs)

    return replaced(graph, turned)


def split_batches(graph: Graph) -> Graph:
    """Dots of one batch axis whose only user splits it have its parts as batch axes, if an operand has them too."""
    users = uses(graph)
    splits: dict[Op, Shape] = {}
    for op in graph.ops:
        dot = op.operands[0].op if op.name == "reshape" else None
        if dot is None or dot.name != "dot_general" or len(users[dot.result]) > 1 or dot.result in graph.roots:
            continue
        sizes = _batch_split_by(op, dot, graph.facts)
        if sizes and any(_has_parts(graph.facts, *side, sizes) for side in _sides(dot)):
            splits[dot] = sizes

    def split(builder: GraphBuilder, op: Op, old: Op) -> Sequence[Value] | None:
        if old.operands and old.operands[0].op in splits:  # the reshape
            return op.operands
        return [_split(builder, op, splits[old])] if old in splits else None

    return replaced(graph, split)


def _batch_split_by(reshape: Op, dot: Op, facts: ShapeFacts) -> Shape | None:
    """The sizes, more than one of them not 1, that a reshape of the result has in the place of its one batch axis."""
    kept = dot.result.shape[1:]
    count = reshape.result.rank - len(kept)
    sizes = reshape.result.shape[:count]
    if len(dot.attrs["lhs_batch"]) != 1 or sum(n is not ONE for n in sizes) < 2:
        return None
    return sizes if same_shape(facts, reshape.result.shape[count:], kept) else None


def _sides(dot: Op) -> list[tuple[Value, int]]:
    """Each operand with its batch axis."""
    return [(x, dot.attrs[batch][0]) for x, (batch, _) in zip(dot.operands, SIDES, strict=True)]


def _parted(x: Value, axis: int, sizes: Shape) -> Shape:
    """The shape of an operand with these sizes in the place of its axis."""
    return (*x.shape[:axis], *sizes, *x.shape[axis + 1 :])


def _has_parts(facts: ShapeFacts, x: Value, axis: int, sizes: Shape) -> bool:
    """Whether an operand is a reshape of what has them: reshaped to them, it is that again."""
    inner = made_by(x, "reshape")
    return inner is not None and same_shape(facts, inner.operands[0].shape, _parted(x, axis, sizes))


def _split(builder: GraphBuilder, dot: Op, sizes: Shape) -> Value:
    more = len(sizes) - 1
    attrs = dot.attrs.copy()
    made = []
    for x, (batch, contract) in zip(dot.operands, SIDES, strict=True):
        (axis,) = dot.attrs[batch]
        made.append(builder.op("reshape", (x,), dot.loc, shape=_parted(x, axis, sizes)))
        attrs[batch] = tuple(range(axis, axis + len(sizes)))
        attrs[contract] = tuple(a + more * (a > axis) for a in dot.attrs[contract])
    return builder.op("dot_general", made, dot.loc, **attrs)


def _perm_after_exchange(dot: Op, transpose: Op) -> tuple[int, ...] | None:
    left, right = dot_sides(dot)
    batch, lhs, rhs = len(left.batch), len(left.free), len(right.free)
    perm = transpose.attrs["perm"]
    last_of_rhs = max((i for i, axis in enumerate(perm) if axis >= batch + lhs), default=-1)
    first_of_lhs = min((i for i, axis in enumerate(perm) if batch <= axis < batch + lhs), default=-1)
    if not lhs or not rhs or last_of_rhs > first_of_lhs:
        return None
    return tuple(axis if axis < batch else axis + rhs if axis < batch + lhs else axis - lhs for axis in perm)
