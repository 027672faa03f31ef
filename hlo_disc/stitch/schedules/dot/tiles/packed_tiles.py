"""The variant of a packed operand for registers of small matrices: K in blocks, outside of the rows.

A block of a panel stays in a core's first cache while all rows pass, whose sums are in memory meanwhile: products are
so fast that the second cache could not bring both operands.
"""

from __future__ import annotations

from dataclasses import replace

from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar
from hlo_disc.stitch.schedules.dot.operand import Operand
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import ROWS
from hlo_disc.stitch.schedules.dot.tiles.blocked_kernel import MOST_ROWS, BlockedDot, BlockedKernel
from hlo_disc.stitch.schedules.dot.tiles.forms import PackedDot, PackedKernel

# Elements of rows that stay in the second cache.
CACHED = 1 << 18


class PackedTilesKernel(PackedKernel, BlockedKernel):
    """The kernel whose blocks of K are read where the panel has them."""

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute one panel of columns for the rows from `first` on."""
        panels = self.panels
        self.locate_batch(number // panels)
        self.locate_columns(number % panels)
        self.take_panel(number, panels)
        self.start_panel(first)
        self.blocks(list(self.p.inner), self.row_at, self.col_at, 0, (first, chunk), self.part(1))
        self.end_panel(first, chunk)

    def take_block(self, depth: Scalar, col_at: Scalar, done: Scalar) -> tuple[Operand, Scalar]:
        """Two elements of K are in one row of the panel."""
        return replace(self.panel, at=self.panel.at + done // 2 * self.v.lanes), self.v.lanes


@frozen
class PackedTilesDot(PackedDot, BlockedDot):
    """The variant for a static operand, packed once, by `register_tile`."""

    kernel = PackedTilesKernel

    def place(self, total: Scalar, item: Scalar, chunks: Scalar, chunk: Scalar) -> tuple[Scalar, Scalar]:
        """Order items so that all panels of some rows are consecutive: the rows stay in the second cache."""
        items = total // chunks
        return item % items, (item // items) * chunk

    @property
    def most_rows(self) -> int:
        """Return the largest number of rows of a chunk."""
        return max(ROWS, min(MOST_ROWS, CACHED // max(self.product.depth.value, 1) // ROWS * ROWS))

    def chunked(self, b: Builder, rows: Scalar, chunk: Scalar, chunks: Scalar) -> tuple[Scalar, Scalar]:
        chunk = b.maximum(b.minimum(chunk, self.most_rows), 1)
        return chunk, b.ceil_div(rows, chunk)

    @property
    def packed_elements(self) -> Dim:
        """Return 0: nothing is copied."""
        return ZERO
