"""Attention as a pattern: dot -> elementwise ops and row reductions -> dot; the ops between are passes over a row.

A score is an element of the first dot's result; the second dot contracts the `key` axis. The ops between may read
scores only at their own index, or reduced over the keys. So a block that owns whole rows of scores never writes them to
memory. (Softmax with scale, bias and mask is the usual case.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.dtypes import is_float
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.axes import dot_sides
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.fusion.space import Access, operand_accesses


@frozen
class Scores:
    """first, second: the dots; side: which operand of the second is made of scores. key, row: axes of the scores.

    middle: the ops between, in order. at: the axes of the scores that index each value between the dots, as
    ("out", axis); None for size 1. key_side: which operand of the first dot has the keys.
    """

    first: Op
    second: Op
    side: int
    key: int
    row: int | None
    key_side: int
    middle: tuple[Op, ...]
    at: Mapping[Value, Access]

    def result_axis(self, axis: int) -> int:
        """Return the axis of the second dot's result for an axis of the scores."""
        return dot_sides(self.second)[self.side].in_result[self.at[self.weights].index(("out", axis))]

    def has_keys(self, value: Value) -> bool:
        return ("out", self.key) in self.at[value]

    @property
    def weights(self) -> Value:
        """The operand of the second dot that is made of scores."""
        return self.second.operands[self.side]

    @property
    def reductions(self) -> list[list[Op]]:
        """Level by level: a reduction needs those of the levels before."""
        levels: dict[Value, int] = {}
        found: list[list[Op]] = []
        for op in self.middle:
            level = max((levels.get(x, 0) for x in op.operands), default=0)
            if op.name == "reduce":
                found += [[]] * (level + 1 - len(found))
                found[level] = [*found[level], op]
                level += 1
            levels[op.result] = level
        return found


def match_attention(
    first: Op,
    users: Mapping[Value, Sequence[Op]],
    position: Mapping[Op, int],
    in_memory: Collection[Value],
    facts: ShapeFacts,
) -> list[Op] | None:
    """`first`, what is between, and the second dot, or None when `first` is not the first dot of an attention."""
    found = _until_one_dot(first, users, in_memory)
    if found is None:
        return None
    between, second = found
    if _has_weight(first) or _has_weight(second):
        return None
    ops = [first, *sorted(between, key=position.__getitem__), second]
    once = sum(x.op in between or x.op is first for x in second.operands) == 1
    return ops if once and scores_of(ops, facts) is not None else None


def _has_weight(dot: Op) -> bool:
    """Does the dot multiply by a matrix that can be packed once? Then it is better off alone, whatever is around it."""
    for value in dot.operands if not dot.attrs["lhs_batch"] else ():
        while value.op is not None and kind(value.op) == "view":
            value = value.op.operands[0]
        if (value.op is None or value.op.name == "constant") and all(n.is_const for n in value.shape):
            return True
    return False


def _until_one_dot(
    first: Op, users: Mapping[Value, Sequence[Op]], in_memory: Collection[Value]
) -> tuple[set[Op], Op] | None:
    """All that follows from `first` up to the one dot that reads it; None when something else needs a part of it.

    Nearest users first: what is no attention branches soon.
    """
    between: set[Op] = set()
    second: Op | None = None
    todo = deque([first])
    while todo:
        value = todo.popleft().result
        if value in in_memory:
            return None
        for user in users[value]:
            if kind(user) == "dot":
                if second is not None and second is not user:
                    return None
                second = user
            elif user not in between:
                if not _is_swept(user):
                    return None
                between.add(user)
                todo.append(user)
    return None if second is None else (between, second)


def scores_of(ops: Sequence[Op], facts: ShapeFacts) -> Scores | None:
    """The pattern in a group's ops, which hold two dots; None when it is not one."""
    first, second = (op for op in ops if kind(op) == "dot")
    follows = {first.result}
    middle = []
    for op in ops:
        if op not in (first, second) and any(x in follows for x in op.operands):
            follows.add(op.result)
            middle.append(op)
    side = next((s for s, x in enumerate(second.operands) if x in follows), None)
    if side is None:
        return None
    needed = set(backward_slice([second.operands[side]], middle))
    middle = [op for op in middle if op in needed]
    key = _key(second, side)
    if key is None or not _is_plain(first, second, middle):
        return None
    weights = second.operands[side]
    reads = _Reads(first, weights, key, middle, facts)
    if not reads.follow(weights, reads.everywhere) or not any(op.name == "reduce" for op in middle):
        return None
    at = _renamed(reads.at, first.result)
    (key,) = (a[1] for i, a in enumerate(at[weights]) if i == key and a)
    key_side = _owner(first, key)
    if key_side is None or len(_free_axes(second, 1 - side)) != 1:
        return None
    row = _row(first, key_side, facts)
    return Scores(first, second, side, key, row, key_side, tuple(middle), at)


def _renamed(at: Mapping[Value, Access], scores: Value) -> dict[Value, Access]:
    """Accesses in the scores' own axes instead of the weights'."""
    names: dict[tuple[str, int], tuple[str, int]] = {a: ("out", i) for i, a in enumerate(at[scores]) if a}
    return {value: tuple(names[a] if a else None for a in access) for value, access in at.items()}


def _key(second: Op, side: int) -> int | None:
    """The one axis that the second dot contracts."""
    real = [a for a in dot_sides(second)[side].contract if second.operands[side].shape[a] is not ONE]
    return real[0] if len(real) == 1 else None


def _is_plain(first: Op, second: Op, middle: Sequence[Op]) -> bool:
    """Floats in one kind of register, and ops that a row can be swept with."""
    dtypes = {max(op.result.dtype.itemsize, 4) for op in (first, second)}
    dtypes.add(max(middle[-1].result.dtype.itemsize, 4) if middle else 0)
    if len(dtypes) != 1 or not all(is_float(op.result.dtype) for op in (first, second, *middle[-1:])):
        return False
    return all(map(_is_swept, middle))


def _is_swept(op: Op) -> bool:
    return kind(op) in ("elementwise", "view") or (op.name == "reduce" and op.result.dtype.name != "bool")


def _free_axes(dot: Op, side: int) -> list[int]:
    """The result's axes for the free axes of an operand, not counting those of size 1."""
    axes, shape = dot_sides(dot)[side], dot.operands[side].shape
    return [axes.in_result[a] for a in axes.free if shape[a] is not ONE]


def _owner(first: Op, key: int) -> int | None:
    """The operand of the first dot whose only free axis is the key."""
    return next((side for side in (0, 1) if _free_axes(first, side) == [key]), None)


def _row(first: Op, key_side: int, facts: ShapeFacts) -> int | None:
    """The axis along the rows of a tile: the longest free axis of the queries."""
    free = _free_axes(first, 1 - key_side)
    return max(free, key=lambda a: (facts.likely(first.result.shape[a]), a), default=None)


class _Reads:
    """Follows values from the second dot up, with the axes of the weights that index them."""

    def __init__(self, first: Op, weights: Value, key: int, middle: Sequence[Op], facts: ShapeFacts):
        self.first, self.key, self.middle, self.facts = first, ("out", key), set(middle), facts
        self.at: dict[Value, Access] = {}
        self.everywhere = tuple(None if n is ONE else ("out", a) for a, n in enumerate(weights.shape))

    def _is_whole(self, access: Access) -> bool:
        """Every axis once, in any order."""
        real = [a for a in access if a]
        return len(real) == len(set(real)) and set(real) == {a for a in self.everywhere if a}

    def follow(self, value: Value, access: Access) -> bool:
        """Note the access of `value` and all that it is made of; False when that does not fit the pattern."""
        access = tuple(None if n is ONE else a for a, n in zip(access, value.shape, strict=True))
        if value in self.at:
            return self.at[value] == access
        op = value.op
        if value is self.first.result:
            self.at[value] = access
            return self._is_whole(access)
        if op is None or op not in self.middle:
            return True
        self.at[value] = access
        if op.name == "reduce" and self.key in access:
            return False
        operands = operand_accesses(op, access, self.facts)
        if op.name == "reduce":
            x, at = operands[0]
            columns = [a for a in op.attrs["dims"] if x.shape[a] is not ONE]
            at = tuple(self.key if i in columns else a for i, a in enumerate(at))
            if len(columns) != 1 or not self._is_whole(at):
                return False
            operands = [(x, at), *operands[1:]]
        return all(self.follow(x, at) for x, at in operands)
