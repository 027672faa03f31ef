"""The kernel of rows that lie together, and not the elements of a row: a transposed operand.

Gradients of weights have one. Tiles of a few rows would jump through memory, a line for each k. So a slab of K of all
rows of an item is copied, and used for several panels of columns. That is possible where sums are left in the output
itself; where an epilogue follows, an item has one panel.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.kernel import ROW_VECTORS, TileParts, Tiling
from hlo_disc.stitch.schedules.dot.microkernel import block_elements
from hlo_disc.stitch.schedules.dot.slab_kernel import SlabKernel


class TurnedKernel(SlabKernel):
    """span: how many panels an item has."""

    def __init__(self, b: Builder, v: Tiling, parts: TileParts, sizes: Sizes, buffers: Sequence[Val], span: Scalar):
        super().__init__(b, v, parts, sizes, buffers)
        self.span = span
        # The rows that are brought together follow the panel.
        self.rows_at = sizes(Dim.min(v.product.inner[-1].size, v.slab) * v.width)

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """`span` panels of columns, and the rows from `first` on."""
        b = self.b
        groups = b.ceil_div(self.panels, self.span)
        self._locate_batch(number // groups)
        self.lo = (number % groups) * self.span
        self.hi = b.minimum(self.lo + self.span, self.panels)
        self._slabs(list(self.p.inner), self.row_at, self.batch_at, 0, (first, chunk), self._slice())
        # Of several panels only the last one can have sums that are not in their place.
        self._locate_columns(self.hi - 1)
        self._end_panel(first, chunk)

    def _deep(self, size: Scalar) -> Scalar:
        return self.v.slab

    def _slab(self, depth: Scalar, row_at: Scalar, col_at: Scalar, done: Scalar, rows: tuple[Scalar, Scalar]) -> None:
        b, axis, sizes, width = self.b, self.p.inner[-1], self.sizes, self.v.row_width
        first, chunk = rows
        end = b.minimum(first + chunk, sizes(self.p.row_axis.size))
        along = sizes(axis.row_stride)
        several = b.compare(">", b.index(sizes(self.p.row_axis.size)), self.v.steps[0])

        def copy() -> None:
            self.parts.fill_rows(self.rows, row_at + first, along, self.room, self.rows_at, depth, end - first)

        b.if_(several, copy)
        with b.loop(self.lo, self.hi) as panels:
            self._locate_columns(panels.i)
            self._start_panel(first)
            panel = self._panel(depth, col_at + (self.col_at - self.batch_at))

            def straight() -> None:
                def tile(row: Scalar, count: int) -> None:
                    operands = (self.rows, *self._rows(row_at, row, count), *panel[:2])
                    self.parts.tiles[count, False](*operands, *self._target(row - first), depth, along, panel[2], done)

                self._each_tile(first, chunk, tile)

            def together() -> None:
                with b.loop(first, end, width) as block:
                    number = (block.i - first) // width
                    block_at = self.rows_at + number * block_elements(depth, self.v.lanes, ROW_VECTORS)

                    def tile(row: Scalar, count: int) -> None:
                        operands = (self.room, block_at + (row - block.i), 1, *panel[:2])
                        self.parts.row_tiles[count](*operands, *self._target(row - first), depth, width, panel[2], done)

                    self._each_tile(block.i, b.minimum(end - block.i, width), tile)

            b.if_(several, together, straight)
