"""The variant for a transposed row operand, in which rows are adjacent and a row's elements are not.

Gradients of weights have one. Tiles of a few rows would jump through memory, a line for each k. So a block of K of all
rows of an item is packed (BLIS's packed block of A), and used for several panels of columns. That is possible where
sums are left in the output itself; where an epilogue follows, an item has one panel.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.epilogue import is_plain
from hlo_disc.stitch.schedules.dot.operand import DotTypes, KAxis, Operand
from hlo_disc.stitch.schedules.dot.product import Product
from hlo_disc.stitch.schedules.dot.tiles.blocked_kernel import MOST_ROWS, BlockedDot, BlockedKernel
from hlo_disc.stitch.schedules.dot.tiles.micro_panels import copy_rows, row_panel_elements
from hlo_disc.stitch.schedules.dot.tiles.microkernel import outer_tile
from hlo_disc.stitch.schedules.dot.variant import panels_together

# As much of K as is copied at a time: 64 columns and MOST_ROWS rows of it stay in a core's cache.
KC = 256
# Vectors of rows that are brought together: the tiles of most rows fill it.
ROW_VECTORS = 3


class TransposedKernel(BlockedKernel):
    """The kernel. span: the number of panels of an item."""

    v: TransposedDot

    def prepare(self) -> None:
        super().prepare()
        b, v = self.b, self.v
        self.pack_rows = copy_rows(b, DotTypes(v.types.row, v.types.sum, v.types.sum), v.lanes, ROW_VECTORS)
        same = DotTypes(v.types.sum, v.types.sum, v.types.sum)
        self.row_tiles = {rows: outer_tile(b, same, v.lanes, rows, v.vectors, 1, False) for rows in v.steps}

    def open(self, sizes: Sizes, buffers: Sequence[Val], *more: Scalar) -> None:
        super().open(sizes, buffers)
        (self.span,) = more
        # The rows that are brought together follow the panel.
        self.packed_rows_at = sizes(Dim.min(self.p.inner[-1].size, self.v.kc) * self.v.width)

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute `span` panels of columns for the rows from `first` on."""
        b = self.b
        groups = b.ceil_div(self.panels, self.span)
        self.locate_batch(number // groups)
        self.lo = (number % groups) * self.span
        self.hi = b.minimum(self.lo + self.span, self.panels)
        self.blocks(list(self.p.inner), self.row_at, self.batch_at, 0, (first, chunk), self.part(self.v.slices))
        # Of several panels only the last one can have sums that are not in their place.
        self.locate_columns(self.hi - 1)
        self.end_panel(first, chunk)

    def deep(self, size: Scalar) -> Scalar:
        return self.v.kc

    def block(self, depth: Scalar, row_at: Scalar, col_at: Scalar, done: Scalar, rows: tuple[Scalar, Scalar]) -> None:
        b, axis, sizes, width = self.b, self.p.inner[-1], self.sizes, self.v.row_width
        first, chunk = rows
        end = b.minimum(first + chunk, sizes(self.p.row_axis.size))
        along = sizes(axis.row_stride)
        several = b.compare(">", b.index(sizes(self.p.row_axis.size)), self.v.steps[0])

        def copy() -> None:
            source, target = Operand(self.rows, row_at + first, (along,)), Operand(self.room, self.packed_rows_at)
            self.pack_rows(source, target, depth, end - first)

        b.if_(several, copy)
        with b.loop(self.lo, self.hi) as panels:
            self.locate_columns(panels.i)
            self.start_panel(first)
            panel, step = self.take_block(depth, col_at + (self.col_at - self.batch_at), done)

            def straight() -> None:
                def tile(row: Scalar, count: int) -> None:
                    where, walk = self.rows_at(row_at, row, count), KAxis(depth, along, step)
                    self.multiply(count, where, panel, self.target_of(row - first), [walk], done)

                self.each_tile(first, chunk, tile)

            def together() -> None:
                with b.loop(first, end, width) as block:
                    number = (block.i - first) // width
                    block_at = self.packed_rows_at + number * row_panel_elements(depth, self.v.lanes, ROW_VECTORS)

                    def tile(row: Scalar, count: int) -> None:
                        where = Operand(self.room, block_at + (row - block.i), (1,))
                        walk = KAxis(depth, width, step)
                        self.row_tiles[count](where, panel, self.target_of(row - first), walk, done)

                    self.each_tile(block.i, b.minimum(end - block.i, width), tile)

            b.if_(several, together, straight)


@frozen
class TransposedDot(BlockedDot):
    """The variant that packs adjacent rows, too. Its kernel takes the number of panels of an item."""

    kernel = TransposedKernel
    spans = 1

    @property
    def kc(self) -> int:
        return KC

    @property
    def row_width(self) -> int:
        """Return the number of rows that are packed at a time."""
        return ROW_VECTORS * self.lanes

    @property
    def packed_elements(self) -> Dim:
        """Return the elements for a block of a panel, and of rows."""
        deep = Dim.min(self.product.inner[-1].size, self.kc)
        blocks = (Dim.min(self.product.row_axis.size, MOST_ROWS) + (self.row_width - 1)) // self.row_width
        return deep * self.width + blocks * row_panel_elements(deep, self.lanes, ROW_VECTORS)

    def span(self, b: Builder, batch: Scalar, panels: Scalar, chunks: Scalar, wanted: Scalar) -> Scalar:
        """Return the number of panels that share a copy of their rows."""
        if not is_plain(self.product):
            return 1
        if self.slices > 1:
            return b.maximum(panels, 1)
        return panels_together(b, batch, panels, chunks, wanted)


def is_transposed(p: Product) -> bool:
    """Whether consecutive rows are adjacent in memory, and the elements of a row are not."""
    row, last = p.row_axis, p.inner[-1]
    return row.row_stride == ONE != last.row_stride and not row.digits
