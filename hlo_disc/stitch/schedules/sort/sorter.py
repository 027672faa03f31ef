"""The building blocks of sort kernels: sorting in a block's fast memory, and its loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import group_kernel
from hlo_disc.stitch.schedules.sort.merge import PARTS, merger
from hlo_disc.stitch.schedules.sort.records import Records

# Rows of the sorting network.
COLUMN = 8
# Elements that are worth sorting in fast memory.
LEAST_ROOM = 64


@frozen
class Layout:
    """The layout that the kernels of a sort share.

    Results may be shorter than the operands along the sorted axis: the first elements.

    room: how many elements are sorted in fast memory, a power of two. tile: how many it must hold in any case, and
    outputs of a merge that a block makes at once.
    """

    group: Group
    records: Records
    facts: ShapeFacts
    device: Device
    room: int
    tile: int = 0

    def fitting(self) -> Layout:
        """Return the layout with `room` and `tile` halved until it fits fast memory, or `room` is LEAST_ROOM."""
        layout, limit = self, self.device.fast_limit
        while limit and layout.fast_bytes > limit and layout.room > LEAST_ROOM:
            layout = replace(layout, room=layout.room // 2, tile=layout.tile // 2)
        return layout

    @property
    def op(self) -> Op:
        return self.group.outputs[0].op  # type: ignore[return-value]

    @property
    def kept(self) -> Dim:
        """Return the length of the results' rows."""
        dim: int = self.op.attrs["dim"]
        return self.op.results[0].shape[dim]

    @property
    def span(self) -> int:
        """Return where the other half of fast memory starts: after the elements that a merge reads past the end of the
        first."""
        return self.room + self.room // PARTS

    @property
    def elements(self) -> int:
        """Return the number of elements that fast memory holds."""
        return max(2 * self.span, self.tile)

    @property
    def fast_bytes(self) -> int:
        return self.elements * self.records.bytes


@contextmanager
def sort_kernel(
    b: Builder, layout: Layout, name: str, sets: int, scalars: int
) -> Iterator[tuple[Sorter, list[list[Val]], list[Val]]]:
    """Open a kernel of (inputs, outputs, `sets` of arrays of records, symbols, `scalars`)."""
    group, records = layout.group, layout.records
    words = [(b.buffer_type(records.element(b, i)), "w") for i in range(len(records.words))]
    with group_kernel(b, name, group, layout.facts, scalars, more=words * sets) as (sizes, buffers, rest):
        given, buffers = buffers[: len(group.inputs)], buffers[len(group.inputs) :]
        made, buffers = buffers[: len(group.outputs)], buffers[len(group.outputs) :]
        count = len(words)
        arrays = [buffers[k * count : (k + 1) * count] for k in range(sets)]
        yield Sorter(b, layout, sizes, given, made), arrays, rest


class Sorter:
    """Builds the body of one kernel. Tiles: the words of records in fast memory."""

    def __init__(self, b: Builder, layout: Layout, sizes: Sizes, inputs: Sequence[Val], outputs: Sequence[Val]):
        self.b, self.layout, self.records = b, layout, layout.records
        self.symbols = [sizes.symbols[name] for name in layout.group.symbols]
        given = zip(layout.group.inputs, inputs, strict=True)
        leaves = {v: InMemory(m, sizes.shape(v.shape), v.dtype) for v, m in given}
        self.body = Body(b, layout.device.lanes, sizes, leaves)
        self.dim = layout.op.attrs["dim"]
        self.operands = layout.op.operands[: layout.op.attrs["count"]]
        self.shape = sizes.shape(layout.op.operands[0].shape)
        self.result = sizes.shape(layout.op.results[0].shape)
        self.outputs = outputs
        # How long a row is, and how much of it is wanted.
        self.n, self.kept = b.index(self.shape[self.dim]), b.index(self.result[self.dim])
        self.captured = [self.body.eval(v, ()) for v in self.records.captured]
        self.tiles = self._tiles()
        self.merge = merger(b, self.records, self.body.width)

    def _tiles(self) -> list[Val]:
        """Return the arrays in fast memory."""
        b, tiles, offset = self.b, [], 0
        fast = b.fast()
        for i in range(len(self.records.words)):
            count = self.layout.elements
            tiles.append(b.generic(b.view(fast, offset, self.records.element(b, i), count)))
            offset += count * self.records.bits(i) // 8
        return tiles

    def place(self, item: Val, length: int) -> tuple[Val, Val, Val]:
        """Return the row of an item, where its part of the row starts, and how many elements it has there."""
        b = self.b
        parts = b.index(b.ceil_div(self.n, length))
        first = b.index((item % parts) * length)
        return item // parts, first, b.index(b.minimum(self.n - first, length))

    def _index(self, row: Val, along: Index) -> tuple[Index, ...]:
        """Return the index tuple of an element of a row."""
        others = self.body.math.delinear(Index(row), [n for axis, n in enumerate(self.shape) if axis != self.dim])
        return (*others[: self.dim], along, *others[self.dim :])

    def vectors(self, count: Val, step: Callable[[Val], None]) -> None:
        """Run `step` for every vector of `count` elements, the last one masked."""
        b, width = self.b, self.body.width
        rest = b.index(count % width)
        whole = count - rest
        with b.loop(0, whole, width) as loop:
            step(loop.i)

        def tail() -> None:
            self.body.mask = b.lanes.first(rest, width)
            step(whole)
            self.body.mask = None

        b.if_(b.compare("!=", rest, 0), tail)

    def sort(self, count: Val) -> Val:
        """Sort the first `count` records of the tiles; returns where they are then, in the first half or the other."""
        with self.b.loop(0, count, COLUMN * self.body.width) as block:
            self._network(block.i, count)
        return self._merge_all(count)

    def load(self, row: Val, at: Val) -> list[Val]:
        """Load the words of the operands' records from number `at` of a row on."""
        b, body, records = self.b, self.body, self.records
        index = self._index(row, Index(at, 1))
        values = [body.eval(x, index) for x in self.operands]
        fields = inline(body, records.comparator.keys, [*values, *self.captured])
        fields += [x for at, x in zip(records.at, values, strict=True) if at is not None and at >= len(fields)]
        return records.pack(b, [b.splat(x, body.width) for x in fields])

    def _network(self, start: Val, count: Val) -> None:
        """Sort the COLUMN elements of each lane: only neighbours are swapped, so equal elements keep their order."""
        b, body, records = self.b, self.body, self.records
        lanes = b.binary("*", b.lanes.numbers(body.width), COLUMN)
        rows = [[b.gather(tile, start + r, lanes, fixed=False) for tile in self.tiles] for r in range(COLUMN)]
        keys = [records.keys(b, dict(enumerate(row))) for row in rows]
        inside = [b.compare("<", lanes, count - start - r) for r in range(COLUMN)]
        for turn in range(COLUMN):
            for r in range(turn % 2, COLUMN - 1, 2):
                (before,) = inline(body, records.comparator.less, [*keys[r + 1], *keys[r], *self.captured])
                swap = b.both(before, inside[r + 1])
                for all_ in (rows, keys):
                    low, high = all_[r], all_[r + 1]
                    all_[r] = [b.select(swap, y, x) for x, y in zip(low, high, strict=True)]
                    all_[r + 1] = [b.select(swap, x, y) for x, y in zip(low, high, strict=True)]
        for r, row in enumerate(rows):
            for x, tile in zip(row, self.tiles, strict=True):
                b.scatter(x, tile, start + r, lanes)

    def _merge_all(self, count: Val) -> Val:
        """Merge columns until `count` elements are sorted; returns where in the tiles they are."""
        b = self.b

        def level(values: list[Val]) -> list[Val]:
            run, source, target = values
            q = b.minimum(run + run, self.layout.room // PARTS)
            with b.loop(0, count, q * PARTS) as part:
                self.merge_runs(self.tiles, self.tiles, source, target + part.i, part.i, run, count, q)
            return [run + run, target, source]

        starts = [b.index(COLUMN), b.index(0), b.index(self.layout.span)]
        _, source, _ = b.while_(starts, lambda v: b.compare("<", v[0], count), level)
        return source

    def merge_runs(self, source: Sequence[Val], target: Sequence[Val], *where: Scalar) -> None:
        self.merge(*source, *target, *self.captured, *self.symbols, *where)

    # What leaves fast memory.

    def keep(self, work: Sequence[Val], at: Scalar, source: Val, count: Val) -> None:
        """Copy records to the workspace."""
        b, width = self.b, self.body.width

        def step(i: Val) -> None:
            for tile, array in zip(self.tiles, work, strict=True):
                b.store(b.load(tile, source + i, width), array, at + i, self.body.mask)

        self.vectors(count, step)

    def results(self, row: Val, first: Val, source: Val, count: Val) -> None:
        """Copy the operands to the results, as far as they are wanted."""
        b, body, records = self.b, self.body, self.records
        count = b.index(b.maximum(b.minimum(self.kept - first, count), 0))

        def step(i: Val) -> None:
            at = body.math.linear(self._index(row, Index(first + i, 1)), self.result)
            words = {k: b.load(tile, source + i, body.width) for k, tile in enumerate(self.tiles)}
            for number, output in zip((k for k in records.at if k is not None), self.outputs, strict=True):
                x = records.field_bits(b, words, number)
                array = b.retyped(output, x.element)
                if isinstance(at.lanes, int) and at.lanes == 1:
                    b.store(x, array, at.base, body.mask)
                else:
                    b.scatter(x, array, at.base, body.math.offsets(at), body.mask)

        self.vectors(count, step)
