"""Moves dots out of loops: a pass over `while`.

A dot whose operands do not depend on the iteration, or whose result no iteration reads, becomes one dot over all
iterations:

    x[t] . w             each iteration, with the same w: before the loop
    c = c + a . b        each iteration, as gradients of recurrent weights: c is read and written in each
    out[t] = a . w       each iteration, with the same w

The operands are stacked, a row per iteration. c is added to one dot, which contracts the iterations, too. This is done
if c is larger than the stacked operands, which are no larger than the rows that the loop reads and writes. A result
before the loop may be WIDER times that, as the four gates of an LSTM are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dependence import live_ops
from hlo_disc.dynamic_hlo.ir.dtypes import is_small_float
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Shape, Value, copied, everywhere, make_op, substitute
from hlo_disc.dynamic_hlo.ops.axes import SIDES
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.ops.cost import typical_bytes
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.passes.rules.patterns import are_equal, counting, made_by, scalar_dim
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

WIDER = 4

Line = tuple[Dim, int]  # a scalar of the body: where it starts, and by how much it grows in each turn


def multiply_after_loops(graph: Graph, excess_precision: bool = False) -> Graph:
    """An equal graph in which such products run once; the same object when there is none.

    excess_precision: also where each turn rounds a sum to fewer bits than f32 has, and one product does that once.
    """
    return everywhere(graph, lambda scope: _in_scope(scope, excess_precision))


def _in_scope(graph: Graph, excess_precision: bool) -> Graph:
    def after(builder: GraphBuilder, op: Op, _: Op) -> list[Value] | None:
        loop = _Loop.of(graph.facts, op) if op.name == "while" else None
        return loop.without_products(builder.ops, excess_precision) if loop else None

    return replaced(graph, after)


class _Row(NamedTuple):
    """A row of an array, another one in each turn. start: which, in the body."""

    array: Value
    start: Value
    line: Line


class _Sum(NamedTuple):
    """A dot that is added to a carried value, reshaped and transposed by `views`."""

    dot: Op
    views: list[Op]


class _Loop:
    """A `while` that counts its turns from 0, and asks for nothing else."""

    def __init__(self, facts: ShapeFacts, op: Op, counter: int, turns: Dim):
        self.facts, self.op, self.turns = facts, op, turns
        self.cond: Region = op.attrs["cond"]
        self.body: Region = op.attrs["body"]
        self.count: int = op.attrs["carried"]
        self.counter = self.body.inputs[counter]
        self.outside = dict(zip(self.body.inputs[self.count :], op.operands[self.count :], strict=True))
        self.varying = set(self.body.inputs[: self.count])
        for inner in self.body.ops:
            if not self.varying.isdisjoint(inner.operands):
                self.varying.update(inner.results)
        self.uses = Counter([*(x for inner in self.body.ops for x in inner.operands), *self.body.outputs])

    @staticmethod
    def of(facts: ShapeFacts, op: Op) -> _Loop | None:
        found = counting(op)
        if found is None or scalar_dim(found.start) != ZERO or scalar_dim(found.step) != ONE:
            return None
        turns = scalar_dim(found.limit)
        if turns is None or facts.at_most(ZERO, turns) is not Truth.YES:
            return None
        return _Loop(facts, op, found.counter, turns)

    def line(self, value: Value) -> Line | None:
        if value is self.counter:
            return ZERO, 1
        number = scalar_dim(self.outside.get(value, value))
        if number is not None:
            return number, 0
        if value.op is None or value.op.name not in ("add", "subtract"):
            return None
        left, right = map(self.line, value.op.operands)
        if left is None or right is None:
            return None
        sign = 1 if value.op.name == "add" else -1
        return left[0] + right[0] * sign, left[1] + right[1] * sign

    def _place(self, array: Value, part: Shape, start: Value) -> Line | None:
        """Which row of an array a part is, when it is a whole one, which starts at 0, and in the end all were."""
        line = self.line(start)
        pairs = zip((ONE, self.turns, *part[1:]), (part[0], array.shape[0], *array.shape[1:]), strict=True)
        if not all(are_equal(self.facts, a, b) for a, b in pairs):
            return None
        return line if line in ((ZERO, 1), (self.turns - 1, -1)) else None

    def _row(self, value: Value) -> _Row | None:
        """Return the row that an iteration reads from an array outside; None for other values."""
        view = made_by(value, "reshape")
        part = made_by(view.operands[0] if view else value, "dynamic_slice")
        if part is None or part.operands[0] not in self.outside:
            return None
        line = self._place(part.operands[0], part.result.shape, part.operands[1])
        return _Row(self.outside[part.operands[0]], part.operands[1], line) if line else None

    def _bytes_of_rows(self) -> float:
        """Return the bytes that an iteration reads and writes in arrays that have a row for each iteration."""
        parts = [(op.operands[0], op.result, op.operands[1]) for op in self.body.ops if op.name == "dynamic_slice"]
        updates = [op for op in self.body.ops if op.name == "dynamic_update_slice"]
        parts += [(op.operands[0], op.operands[1], op.operands[2]) for op in updates]
        return sum(typical_bytes(part) for array, part, start in parts if self._place(array, part.shape, start))

    def _is_private(self, k: int) -> bool:
        """Whether nothing reads a carried value but its own update, and nothing else that."""
        return self.uses[self.body.inputs[k]] == self.uses[self.body.outputs[k]] == 1

    def _sum(self, k: int) -> _Sum | None:
        add, c = made_by(self.body.outputs[k], "add"), self.body.inputs[k]
        if add is None or not self._is_private(k) or c not in add.operands:
            return None
        (value,) = (x for x in add.operands if x is not c)
        views: list[Op] = []
        while value.op is not None and kind(value.op) == "view" and self.uses[value] == 1:
            views.insert(0, value.op)
            value = value.op.operands[0]
        dot = made_by(value, "dot_general")
        if dot is None or self.uses[value] != 1 or not self.varying.issuperset(dot.operands):
            return None
        return _Sum(dot, views)

    def _product(self, k: int) -> tuple[Op, Line] | None:
        """The dot whose rows are all of a result, where its right operand is the same in all turns."""
        update = made_by(self.body.outputs[k], "dynamic_update_slice")
        if update is None or not self._is_private(k) or update.operands[0] is not self.body.inputs[k]:
            return None
        line = self._place(update.operands[0], update.operands[1].shape, update.operands[2])
        view = made_by(update.operands[1], "reshape")
        dot = made_by(view.operands[0] if view else update.operands[1], "dot_general")
        if line is None or dot is None or dot.attrs["lhs_batch"] or dot.operands[1] not in self.outside:
            return None
        return dot, line

    def without_products(self, made: list[Op], excess_precision: bool) -> list[Value] | None:
        """The results of the loop; it, and the products, are appended. None when there are no products."""
        stacks: dict[tuple[Value, Line], Value] = {}  # what is stacked, and at which row
        room = self._bytes_of_rows()
        sums: dict[int, tuple[_Sum, Line]] = {}
        for k in range(self.count):
            found = self._sum(k)
            rounded = is_small_float(self.body.outputs[k].dtype) and not excess_precision
            if found is None or rounded:
                continue
            rows = [row for x in found.dot.operands if (row := self._row(x))]
            start, line = (rows[0].start, rows[0].line) if rows else (self.counter, (ZERO, 1))
            new = [x for x in dict.fromkeys(found.dot.operands) if not self._has(x, line, stacks)]
            cost = sum(map(typical_bytes, new))
            if cost <= min(room, typical_bytes(self.body.outputs[k])):
                room -= cost
                sums[k] = found, line
                stacks.update({(x, line): start for x in new})
        products = {k: made_of for k in range(self.count) if (made_of := self._product(k))}
        products = {k: (dot, line) for k, (dot, line) in products.items() if self._has(dot.operands[0], line, stacks)}
        done = {dot for dot, _ in products.values()}
        early: dict[Op, _Row] = {}  # dots of a row and a value from outside
        room *= WIDER
        for op in self.body.ops:
            row = self._row(op.operands[0]) if op.name == "dot_general" and not op.attrs["lhs_batch"] else None
            if row is not None and op.operands[1] in self.outside and op not in done:
                cost = typical_bytes(op.result)
                if cost <= min(room, typical_bytes(op.operands[1])):
                    room -= cost
                    early[op] = row
        if not sums and not products and not early:
            return None
        kept = [k for k in range(self.count) if k not in sums and k not in products]
        loop = self._stacking(kept, stacks, early, made)
        made.append(loop)
        stacked = dict(zip(stacks, loop.results[len(kept) :], strict=True))
        after = GraphBuilder(self.facts)
        results = dict(zip(kept, loop.results, strict=False))
        for k, (found, line) in sums.items():
            lhs, rhs = (self._all_rows(after, x, line, stacked) for x in found.dot.operands)
            total = after.op("dot_general", (lhs, rhs), found.dot.loc, **_over_turns(found.dot))
            for view in found.views:
                after.ops.append(copied(view, {view.operands[0]: total}))
                total = after.ops[-1].result
            results[k] = after.op("add", (self.op.operands[k], total), found.dot.loc)
        for k, (dot, line) in products.items():
            rows_of = self._product_of_rows(after, dot, self._all_rows(after, dot.operands[0], line, stacked))
            results[k] = after.op("reshape", (rows_of,), dot.loc, shape=self.op.results[k].shape)
        made += after.ops
        return [results[k] for k in range(self.count)]

    def _has(self, value: Value, line: Line, stacks: dict[tuple[Value, Line], Value]) -> bool:
        """Whether there is an array of what the value is in all turns."""
        row = self._row(value)
        return (value, line) in stacks or (row is not None and row.line == line)

    def _product_of_rows(self, builder: GraphBuilder, dot: Op, rows: Value) -> Value:
        """A row for each turn of a dot whose right operand is the same in all."""
        attrs = dot.attrs | {"lhs_contract": tuple(axis + 1 for axis in dot.attrs["lhs_contract"])}
        return builder.op("dot_general", (rows, self.outside[dot.operands[1]]), dot.loc, **attrs)

    def _all_rows(
        self, after: GraphBuilder, value: Value, line: Line, stacked: dict[tuple[Value, Line], Value]
    ) -> Value:
        """Return the value of all iterations, stacked on a new first axis."""
        if (value, line) in stacked:
            return stacked[value, line]
        row = self._row(value)
        assert row is not None
        return after.op("reshape", (row.array,), shape=(self.turns, *value.shape))

    def _stacking(
        self, kept: Sequence[int], stacks: dict[tuple[Value, Line], Value], early: dict[Op, _Row], made: list[Op]
    ) -> Op:
        """The loop with these carried values, and then the stacks; rows of what is made before it for `early`."""
        before, inner = GraphBuilder(self.facts), GraphBuilder(self.facts)
        outside = [
            self._product_of_rows(before, dot, self._all_rows(before, dot.operands[0], row.line, {}))
            for dot, row in early.items()
        ]
        products = {dot: Value(x.dtype, x.shape) for dot, x in zip(early, outside, strict=True)}
        values: dict[Value, Value] = {}
        for op in self.body.ops:
            if op in early:
                start, shape = early[op].start, op.result.shape
                first = [inner.op("constant", value=np.zeros((), start.dtype)) for _ in shape]
                row = inner.op("dynamic_slice", (products[op], start, *first), op.loc, sizes=(ONE, *shape))
                values[op.result] = inner.op("reshape", (row,), op.loc, shape=shape)
            else:
                inner.ops.append(substitute(op, values))
        empty, inside = [], []
        outputs = [values.get(x, x) for x in (self.body.outputs[k] for k in kept)]
        for (value, _), start in stacks.items():
            zero = before.op("constant", value=np.zeros((), value.dtype))
            empty.append(before.op("broadcast", (zero,), shape=(self.turns, *value.shape), dims=()))
            inside.append(Value(value.dtype, empty[-1].shape))
            row = inner.op("reshape", (values.get(value, value),), shape=(ONE, *value.shape))
            first = [inner.op("constant", value=np.zeros((), start.dtype)) for _ in value.shape]
            outputs.append(inner.op("dynamic_update_slice", (inside[-1], row, start, *first)))
        made += before.ops
        captured = range(self.count, len(self.op.operands))

        def slots(old: Sequence[Value], stacked: Sequence[Value], read: Sequence[Value]) -> tuple[Value, ...]:
            return (*(old[k] for k in kept), *stacked, *(old[k] for k in captured), *read)

        def new(values: Sequence[Value]) -> list[Value]:
            return [Value(x.dtype, x.shape) for x in values]

        body = Region(
            slots(self.body.inputs, inside, list(products.values())),
            tuple(live_ops(inner.ops, outputs)),
            tuple(outputs),
        )
        cond = replace(self.cond, inputs=slots(self.cond.inputs, new(inside), new(outside)))
        attrs = self.op.attrs | {"cond": cond, "body": body, "carried": len(outputs)}
        operands = slots(self.op.operands, empty, outside)
        return make_op("while", operands, attrs, [(x.dtype, x.shape) for x in outputs], self.op.loc)


def _over_turns(dot: Op) -> Attributes:
    """The numbers of a dot that is contracted over a first axis more."""
    attrs = dot.attrs.copy()
    for batch, contract in SIDES:
        attrs[batch] = tuple(axis + 1 for axis in attrs[batch])
        attrs[contract] = (0, *(axis + 1 for axis in attrs[contract]))
    return attrs
