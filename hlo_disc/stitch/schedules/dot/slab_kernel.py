"""The kernel of columns that are not packed: they are read where they lie, or by many rows from a copy in fast memory.

K is walked in slabs whose copy stays in a core's cache; tiles add to sums in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.epilogue import is_plain
from hlo_disc.stitch.schedules.dot.kernel import SLAB, TABLE, TileKernel, TileParts, Tiling
from hlo_disc.stitch.schedules.dot.product import Axis

# From so many rows on a block copies its panel: rows read it from fast memory, in order. Fewer are enough when K is so
# deep that the next tile would not find the panel in the cache.
MANY_ROWS, SOME_ROWS = 96, 24


class SlabKernel(TileKernel):
    """The kernel of columns that are not packed: many rows read them from a copy, which is made slab by slab of K."""

    def __init__(self, b: Builder, v: Tiling, parts: TileParts, sizes: Sizes, buffers: Sequence[Val]):
        super().__init__(b, v, parts, sizes, buffers)
        element, bytes_ = b.memory_type(v.types.sum), np.dtype(v.types.sum).itemsize
        self.room = b.generic(b.view(b.fast(), sizes(v.sums_elements * bytes_), element, sizes(v.slab_elements)))
        self.table = self.room  # where no list is needed
        if v.product.inner[-1].digits:
            at = sizes((v.sums_elements + v.slab_elements) * bytes_)
            self.table = b.generic(b.view(b.fast(), at, b.i64, sizes(v.table_bytes // TABLE)))

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """One panel of columns, and the rows from `first` on: sums over all slabs, then the epilogue."""
        self._locate(number)
        self._start_panel(first)
        self._slabs(list(self.p.inner), self.row_at, self.col_at, 0, (first, chunk), self._slice())
        self._end_panel(first, chunk)

    def _start_panel(self, first: Scalar) -> None:
        """Where the sums of a panel go, and whether its columns are copied."""
        b, p, width = self.b, self.p, self.v.width
        full = b.compare(">=", self.count, width)
        rows = b.index(self.sizes(p.row_axis.size))
        self.copied = None
        if self.v.in_place:
            deep = b.compare(">", b.index(self.sizes(p.inner[-1].size)), SLAB)
            many = b.compare(">=", rows, b.select(deep, b.index(SOME_ROWS), b.index(MANY_ROWS)))
            self.copied = b.apply(arith.OrIOp, many, b.compare("<", self.count, width))
        self.target, self.target_at, self.target_stride = self.sums, b.index(0), b.index(width)
        if is_plain(p):
            # Tiles add up in the output itself.
            place, step = self._place(first)
            self.target = b.select(full, self.output, self.sums)
            self.target_at = b.select(full, b.index(place), self.target_at)
            self.target_stride = b.select(full, b.index(step), self.target_stride)

    def _end_panel(self, first: Scalar, chunk: Scalar) -> None:
        """The epilogue, unless the sums are in their place already."""
        b, p = self.b, self.p

        def epilogue() -> None:
            rows = b.minimum(chunk, self.sizes(p.row_axis.size) - first)
            self.parts.epilogue(self.sizes, [self.sums], self.memory, self.batch, first, rows, self.col)

        if is_plain(p):
            b.if_(b.compare("<", self.count, self.v.width), epilogue)
        else:
            epilogue()

    def _slice(self) -> tuple[Scalar, Scalar]:
        """The part of the outermost K axis that the item sums: where it starts and ends."""
        b, size = self.b, self.b.index(self.sizes(self.p.inner[0].size))
        if self.v.slices == 1:
            return 0, size
        span = b.ceil_div(size, self.v.slices)
        lo = b.minimum(self.batch[0] * span, size)
        return lo, b.minimum(lo + span, size)

    def _slabs(
        self,
        axes: list[Axis],
        row_at: Scalar,
        col_at: Scalar,
        done: Scalar,
        rows: tuple[Scalar, Scalar],
        part: tuple[Scalar, Scalar],
    ) -> None:
        """Loops over all K axes, the last one in slabs. With nothing to sum one empty slab leaves zeros.

        part: of the first of `axes`.
        """
        b, sizes = self.b, self.sizes
        axis, *others = axes
        lo, hi = part
        if others:
            with b.loop(lo, b.maximum(hi, lo + 1)) as loop:
                self._slabs(
                    others,
                    row_at + loop.i * sizes(axis.row_stride),
                    col_at + loop.i * sizes(axis.col_stride),
                    done + (loop.i - lo),
                    rows,
                    (0, b.index(sizes(others[0].size))),
                )
            return
        if len(self.p.inner) > 1:
            first, last = self._slice()
            nothing = b.compare("==", b.index(sizes(self.p.depth)), 0)
            nothing = b.apply(arith.OrIOp, nothing, b.compare("<=", last, first))
            hi = b.select(nothing, b.index(lo), b.index(hi))
        deep = self._deep(b.maximum(hi - lo, 1))
        with b.loop(lo, b.maximum(hi, lo + 1), deep) as loop:
            depth = b.minimum(deep, hi - loop.i)
            if axis.digits and self.parts.runs is not None:
                self.parts.runs.list(sizes, self.table, loop.i, depth)
            else:
                col_at = col_at + loop.i * sizes(axis.col_stride)
            self._slab(depth, row_at + loop.i * sizes(axis.row_stride), col_at, done + (loop.i - lo), rows)

    def _deep(self, size: Scalar) -> Scalar:
        """How much of K a slab has."""
        b = self.b
        if self.copied is None:
            return self.v.slab
        # One tile of rows reads each column once: nothing is gained by going through them part by part.
        several = b.compare(">", b.index(self.sizes(self.p.row_axis.size)), self.v.steps[0])
        return b.select(b.apply(arith.OrIOp, self.copied, several), b.index(self.v.slab), b.index(size))

    def _slab(self, depth: Scalar, row_at: Scalar, col_at: Scalar, done: Scalar, rows: tuple[Scalar, Scalar]) -> None:
        """All tiles over `depth` elements of K; they add to their sums unless nothing is done yet."""
        first, chunk = rows
        panel, panel_at, step = self._panel(depth, col_at)
        along = self.sizes(self.p.inner[-1].row_stride)

        def tile(row: Scalar, count: int) -> None:
            operands = (self.rows, *self._rows(row_at, row, count), panel, panel_at)
            self.parts.tiles[count, False](*operands, *self._target(row - first), depth, along, step, done)

        self._each_tile(first, chunk, tile)

    def _target(self, row: Scalar) -> tuple[Scalar, ...]:
        """Where tiles leave their sums: the buffer, the place of the item's row number `row`, the stride of a row."""
        return self.target, self.target_at + row * self.target_stride, self.target_stride

    def _panel(self, depth: Scalar, col_at: Scalar) -> tuple[Scalar, ...]:
        """The panel's columns as tiles read them, `depth` elements of each: buffer, place, stride along K."""
        b, sizes, width = self.b, self.sizes, self.v.width

        def copy() -> None:
            if self.parts.runs is not None:
                count = b.minimum(self.count, width)
                self.parts.runs.slab(sizes, self.cols, col_at, self.col, self.room, self.table, depth, count)
            elif self.parts.fill is not None:
                self.parts.fill.slab(sizes, self.cols, col_at, self.room, 0, depth, self.count)

        panel, panel_at, step = self.room, b.index(0), b.index(width)
        if self.copied is None:
            copy()
            return panel, panel_at, step
        b.if_(self.copied, copy)
        return (
            b.select(self.copied, self.room, self.cols),
            b.select(self.copied, panel_at, b.index(col_at)),
            b.select(self.copied, step, b.index(sizes(self.p.inner[-1].col_stride))),
        )
