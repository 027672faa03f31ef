"""A device function that computes on a tile of a dot's sums and stores it: one for equal epilogues of a module.

The sums lie in a small buffer of `width` columns. Values that follow from the dot are evaluated in order, each at its
own index, so that a transpose after the dot only changes where elements are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.axes import Order, Same
from hlo_disc.dynamic_hlo.ops.table import kind, links
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.elements import convert, settle
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.codegen.views import regrouped
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.dot.product import Product


class Stores:
    """Builds the code that stores a tile of one product.

    width: columns of the buffer of sums. lanes: of a step along them. scaled: every row of sums has a factor.
    """

    def __init__(self, b: Builder, p: Product, width: int, lanes: int, facts: ShapeFacts, scaled: bool = False):
        self.b, self.p, self.width, self.lanes, self.facts, self.scaled = b, p, width, lanes, facts, scaled
        self.group = p.epilogue
        self.dot = self.group.inputs[0]
        self.path = path(self.group, self.dot)

    def build(
        self,
        sizes: Sizes,
        sums: Sequence[Val],
        memory: Sequence[Val],
        batch: Sequence[Scalar],
        at: tuple[Scalar, Scalar],
        rows: tuple[Scalar, Scalar, int],
        columns: tuple[Scalar, Scalar],
    ) -> None:
        """Store rows and columns of the tile that begins `at` (row, column) of the result.

        sums: their buffer, and that of the factors if any. memory: the group's inputs but the first, and its output.
        rows: (first, end, step) in the tile. columns: (first, end) in it; those behind the last one are left out.
        """
        b, group = self.b, self.group
        values = [*group.inputs[1:], *group.outputs]
        leaves = {v: InMemory(m, sizes.shape(v.shape), v.dtype) for v, m in zip(values[:-1], memory[:-1], strict=True)}
        body = Body(b, self.lanes, sizes, leaves)
        output = InMemory(memory[-1], sizes.shape(values[-1].shape), values[-1].dtype)
        row, col = at

        def all_rows(c: Scalar, mask: Val | None, lanes: int) -> None:
            body.mask = mask
            with b.loop(*rows) as loop:
                x = b.load(sums[0], loop.i * self.width + c, lanes)
                if self.scaled:
                    x = b.binary("*", x, b.load(sums[1], loop.i))
                x = self._result(x)
                self._store(body, output, x, self._index(batch, row + loop.i, col + c))

        if self.p.col is None:
            all_rows(0, None, 0)
            return
        # Column by column, so that what does not vary along the rows is loaded once.
        first, last = columns
        end = b.minimum(sizes(self.p.col_axis.size) - col, last)
        left = (end - first) % self.lanes
        with b.loop(first, end - left, self.lanes) as loop:
            all_rows(loop.i, None, self.lanes)
        tail = lambda: all_rows(end - left, b.lanes.first(left, self.lanes), self.lanes)  # noqa: E731
        b.if_(b.compare("!=", left, 0), tail)

    def _result(self, x: Val) -> Val:
        """Return a sum as an element of the dot's result."""
        same = self.b.register_type(self.dot.dtype) == x.element
        return settle(self.b, x, self.dot.dtype) if same else convert(self.b, x, self.p.dtype, self.dot.dtype)

    def _index(self, batch: Sequence[Scalar], row: Scalar, col: Scalar) -> tuple[Index, ...]:
        """Return the index of the dot's result."""
        at = dict(zip(self.p.batch, map(Index, batch), strict=True))
        if self.p.row is not None:
            at[self.p.row] = Index(row)
        if self.p.col is not None:
            at[self.p.col] = Index(col, 1)
        return tuple(at[a] for a in range(len(self.p.axes)))

    def _store(self, body: Body, output: InMemory, sums: Val, index: tuple[Index, ...]) -> None:
        (result,) = self.group.outputs
        at = {self.dot: index}
        body.bound = {self.dot: sums}
        for op in self.path:
            before = next(x for x in op.operands if x in at)
            at[op.result] = forward(body, op, before, at[before])
            moved = kind(op) == "view"
            body.bound[op.result] = body.bound[before] if moved else body.eval(op.result, at[before])
        body.store(body.bound[result], output, at[result])
        body.bound = {}


class Epilogue:
    """Builds the function and its calls for one product.

    width: columns of a tile. lanes: of the accumulators. scaled: every row of sums has a factor.
    """

    def __init__(
        self, b: Builder, p: Product, width: int, lanes: int, device: Device, facts: ShapeFacts, scaled: bool = False
    ):
        self.b, self.p = b, p
        steps = width // lanes
        wide = lanes * (device.unroll if steps % device.unroll == 0 else 1)
        self.stores = Stores(b, p, width, wide, facts, scaled)
        key = ("epilogue", p.epilogue.key, facts.told, p.dtype, p.row, p.col, width, lanes, scaled)
        self.call = b.module.shared(key, "epilogue", self._types(), self._build)

    def __call__(
        self,
        sizes: Sizes,
        sums: Sequence[Val],
        memory: Sequence[Val],
        batch: Sequence[Scalar],
        row: Scalar,
        rows: Scalar,
        col: Scalar,
    ) -> None:
        """Store `rows` rows and the columns from `col` on; the rest as `Stores.build` takes it."""
        symbols = [self.b.index(sizes.symbols[name]) for name in self.p.epilogue.symbols]
        self.call(*sums, *memory, *symbols, *batch, row, rows, col)

    def _types(self) -> list[ir.Type]:
        """Return the parameters' types: sums, factors if any, the group's inputs but the first, its output; symbols,
        batch, row, rows, column."""
        b, group = self.b, self.p.epilogue
        scalars = len(group.symbols) + len(self.p.batch) + 3
        types = [b.buffer_type(b.register_type(self.p.dtype))] * (2 if self.stores.scaled else 1)
        types += [b.buffer_type(b.memory_type(v.dtype)) for v in (*group.inputs[1:], *group.outputs)]
        return types + [b.index_type] * scalars

    def _build(self, *values: Val) -> None:
        stores, group = self.stores, self.p.epilogue
        heads, names = 2 if stores.scaled else 1, group.symbols
        sums, rest = values[:heads], values[heads:]
        memory, scalar = rest[: len(group.inputs)], rest[len(group.inputs) :]
        symbols, (*batch, row, rows, col) = scalar[: len(names)], scalar[len(names) :]
        sizes = Sizes(self.b, dict(zip(names, symbols, strict=True)), stores.facts)
        stores.build(sizes, sums, memory, batch, (row, col), (0, rows, 1), (0, stores.width))


def path(group: Group, dot: Value) -> tuple[Op, ...]:
    """Return the ops of a group that depend on the dot, in order."""
    follows = {dot}
    found = []
    for op in group.ops:
        if any(x in follows for x in op.operands):
            follows.add(op.result)
            found.append(op)
    return tuple(found)


def forward(body: Body, op: Op, operand: Value, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """Return the index at which an op of the path stores its operand's element at `index`."""
    along = next((link.along for link in links(op, body.sizes.facts) if operand in link.values), ())
    if along is Order.AXES:
        return index
    if along is Order.ELEMENTS:
        return regrouped(body, index, operand.shape, op.result.shape)
    places = {entry.axis: i for entry, i in zip(along, index, strict=False) if isinstance(entry, Same)}
    if len(places) != len(index) or len(places) != op.result.rank:
        raise CompileError(f"{op.name} of a dot's result is not part of its epilogue ({op.loc or 'unknown line'})")
    return tuple(places[a] for a in range(op.result.rank))


def is_plain(p: Product) -> bool:
    """Whether tiles can be stored directly to the output."""
    (output,) = p.epilogue.outputs
    same = output is p.epilogue.inputs[0] and output.dtype == np.dtype(p.dtype)
    return same and p.col is not None and p.col == len(p.axes) - 1
