"""A sort's comparator, split: a part for each element alone, computed once, and a part for pairs of elements.

JAX compares floats by integers made from their bits, after making zeros and NaNs alike. These integers are `keys`, so
that each pair only compares them. A comparator may do anything with one element.
"""

from __future__ import annotations

from collections.abc import Hashable

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value, attribute_key
from hlo_disc.frozen import frozen


@frozen(eq=False)
class Comparator:
    """keys: (one element of each operand, captured) -> its keys. less: (keys of a, keys of b, captured) -> a is first.

    given: for each operand the number of the key that it is itself, None when it is none.
    """

    keys: Region
    less: Region
    given: tuple[int | None, ...]


def comparator(body: Region, count: int) -> Comparator:
    """Split a region over (a, b) of `count` operands in turn, and captured scalars."""
    return _Parts(body, count).take()


class _Parts:
    def __init__(self, body: Region, count: int):
        self.body, self.count = body, count
        a, b, captured = body.inputs[: 2 * count : 2], body.inputs[1 : 2 * count : 2], body.inputs[2 * count :]
        # Which elements a value depends on, and what it is, as a function of one element.
        self.sides: dict[Value, frozenset[str]] = {v: frozenset("a") for v in a}
        self.sides |= {v: frozenset("b") for v in b} | {v: frozenset() for v in captured}
        self.meaning: dict[Value, Hashable] = {}
        for vs, name in ((a, "x"), (b, "x"), (captured, "captured")):
            self.meaning.update((v, (name, i)) for i, v in enumerate(vs))
        self.operands, self.captured = a, captured
        for op in body.ops:
            attrs = tuple(sorted((name, attribute_key(attr)) for name, attr in op.attrs.items()))
            side = frozenset().union(*(self.sides[x] for x in op.operands))
            meaning = (op.name, attrs, tuple(self.meaning[x] for x in op.operands))
            for i, result in enumerate(op.results):
                self.sides[result], self.meaning[result] = side, (*meaning, i)

    def take(self) -> Comparator:
        mixed = [op for op in self.body.ops if len(self.sides[op.results[0]]) == 2]
        wanted = [*(x for op in mixed for x in op.operands), *self.body.outputs]
        found: dict[Hashable, Value] = {}
        for value in wanted:
            if len(self.sides[value]) == 1:
                found.setdefault(self.meaning[value], value)
        numbers = {meaning: i for i, meaning in enumerate(found)}
        given = tuple(numbers.get(("x", i)) for i in range(self.count))
        return Comparator(self._keys(list(found.values())), self._less(list(found.values()), numbers, mixed), given)

    def _keys(self, keys: list[Value]) -> Region:
        """Build the region that computes each key of one element, whichever of the two it was written for."""
        inputs = [Value(v.dtype, (), None, i) for i, v in enumerate((*self.operands, *self.captured))]
        new = dict(zip((self.meaning[v] for v in (*self.operands, *self.captured)), inputs, strict=True))
        ops: list[Op] = []
        outputs = [self._copy(value, new, ops) for value in keys]
        return Region(tuple(inputs), tuple(ops), tuple(outputs))

    def _less(self, keys: list[Value], numbers: dict[Hashable, int], mixed: list[Op]) -> Region:
        """Build the rest, over keys of a, keys of b, and captured scalars."""
        both = [*keys, *keys, *self.captured]
        inputs = [Value(v.dtype, (), None, i) for i, v in enumerate(both)]
        shared = dict(zip((self.meaning[v] for v in self.captured), inputs[2 * len(keys) :], strict=True))
        new: dict[Value, Value] = {}
        ops: list[Op] = []

        def get(value: Value) -> Value:
            if len(self.sides[value]) == 1:
                return inputs[numbers[self.meaning[value]] + len(keys) * ("b" in self.sides[value])]
            return new[value] if value in new else self._copy(value, shared, ops)

        for op in mixed:
            operands = [get(x) for x in op.operands]
            ops.append(op.with_operands(operands))
            new.update(zip(op.results, ops[-1].results, strict=True))
        outputs = tuple(get(v) for v in self.body.outputs)  # may add ops
        return Region(tuple(inputs), tuple(ops), outputs)

    def _copy(self, value: Value, new: dict[Hashable, Value], ops: list[Op]) -> Value:
        """Copy `value`, reusing new values of equal meaning."""
        meaning = self.meaning[value]
        if meaning not in new:
            op = value.op
            assert op is not None
            operands = [self._copy(x, new, ops) for x in op.operands]
            ops.append(op.with_operands(operands))
            new.update((self.meaning[old], made) for old, made in zip(op.results, ops[-1].results, strict=True))
        return new[meaning]
