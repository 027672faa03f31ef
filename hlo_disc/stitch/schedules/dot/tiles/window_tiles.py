"""The variant of windows for registers of small matrices: rows are packed (BLIS's packed A).

Rows of such a register have one stride, and the positions of a window have none; nor is K one axis. So all of K of an
item's rows is copied to fast memory, where several panels of columns read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import Call, DotTypes, KAxis, Operand, Rows, k_axis, matrix, routine, scalar
from hlo_disc.stitch.schedules.dot.product import Axis, position
from hlo_disc.stitch.schedules.dot.tiles.bf16_dot import packed_depth
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import DEPTH
from hlo_disc.stitch.schedules.dot.tiles.packed_tiles import PackedTilesDot, PackedTilesKernel
from hlo_disc.stitch.schedules.dot.variant import panels_together


class WindowTilesKernel(PackedTilesKernel):
    """The kernel. span: the number of panels of an item."""

    v: WindowTilesDot

    def prepare(self) -> None:
        super().prepare()
        self.copy = copy_lines(self.b, self.v.types, len(self.p.inner))

    def open(self, sizes: Sizes, buffers: Sequence[Val], *more: Scalar) -> None:
        super().open(sizes, buffers)
        (self.span,) = more
        self.lines = self.b.retyped(self.room, self.b.memory_type(self.v.types.row))

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute `span` panels of columns for the rows from `first` on."""
        b = self.b
        groups = b.ceil_div(self.panels, self.span)
        self.locate_batch(number // groups)
        self.first = first
        self.bring(first, b.minimum(first + chunk, self.sizes(self.p.row_axis.size)))
        lo = (number % groups) * self.span
        axis = Axis(Dim.const(2 * self.v.pairs), ONE, ONE)
        with b.loop(lo, b.minimum(lo + self.span, self.panels)) as panel:
            self.locate_columns(panel.i)
            self.take_panel(panel.i, self.panels)
            self.start_panel(first)
            self.blocks([axis], 0, self.col_at, 0, (first, chunk), (0, b.index(2 * self.v.pairs)))
            self.end_panel(first, chunk)

    def bring(self, first: Scalar, end: Scalar) -> None:
        """Copy together the rows that follow each other with one stride."""
        b, axis, sizes = self.b, self.p.row_axis, self.sizes
        stride, line = sizes(axis.row_stride), self.v.line
        walk = [KAxis(sizes(x.size), sizes(x.row_stride), 0) for x in self.p.inner]
        length: Scalar = b.maximum(sizes(axis.digits[-1].size), 1) if axis.digits else end
        with b.loop(b.index(first) // length, b.ceil_div(end, length)) as run:
            lo, hi = b.maximum(first, run.i * length), b.minimum(end, (run.i + 1) * length)
            source = Operand(self.rows, self.row_at + position(axis, lo, "row", sizes), (stride,))
            self.copy(source, Operand(self.lines, (lo - first) * line, (line,)), hi - lo, *walk)

    def rows_at(self, at: Scalar, first: Scalar, rows: Scalar) -> Operand | Rows:
        """Return where the rows were copied to."""
        return Operand(self.lines, at + (first - self.first) * self.v.line, (self.v.line,))


@frozen
class WindowTilesDot(PackedTilesDot):
    """The variant for a static operand, packed once, and windows. Its kernel takes the number of panels of an item."""

    form = "windows"
    kernel = WindowTilesKernel
    spans = 1

    @property
    def pairs(self) -> int:
        """Return the pairs along K of a line, which are those of a panel."""
        return packed_depth(True, self.product.inner).value

    @property
    def line(self) -> int:
        """Return the elements between lines: a vector more than needed, so that lines differ in cache sets."""
        return -(-2 * self.pairs // DEPTH) * DEPTH + DEPTH

    @property
    def packed_elements(self) -> Dim:
        """Return the elements for the rows of an item, in words of two elements."""
        return Dim.min(self.product.row_axis.size, self.most_rows) * (self.line // 2)

    def span(self, b: Builder, batch: Scalar, panels: Scalar, chunks: Scalar, wanted: Scalar) -> Scalar:
        """Return the number of panels that share a copy of their rows."""
        return panels_together(b, batch, panels, chunks, wanted)


def copy_lines(b: Builder, types: DotTypes, depth: int) -> Call:
    """lines[r] = all of row[r], over `depth` axes of K, the last of which is contiguous.

    (row with the stride of a row; lines with that of a line; number of rows; the axes of K). What the last axis has
    begins at an even element, and up to DEPTH elements behind a line are 0.
    """
    parameters = [matrix(b, types.row, 1), matrix(b, types.row, 1), scalar(b), *[k_axis(b)] * depth]

    def body(row: Operand, lines: Operand, count: Val, *axes: KAxis) -> None:
        *outer, last = axes
        left = last.size % DEPTH
        whole, mask, length = last.size - left, b.lanes.first(left, DEPTH), 2 * b.ceil_div(last.size, 2)

        def copy(axes: Sequence[KAxis], x: Scalar, y: Scalar, number: Scalar) -> None:
            if axes:
                with b.loop(0, axes[0].size) as loop:
                    copy(axes[1:], x + loop.i * axes[0].row_stride, y, number * axes[0].size + loop.i)
                return
            to = y + number * length
            with b.loop(0, whole, DEPTH) as loop:
                b.store(b.load(row.buffer, x + loop.i, DEPTH), lines.buffer, to + loop.i)

            def rest() -> None:
                b.store(b.load(row.buffer, x + whole, DEPTH, mask), lines.buffer, to + whole)

            b.if_(b.compare("!=", left, 0), rest)

        with b.loop(0, count) as loop:
            copy(outer, row.at + loop.i * row.strides[0], lines.at + loop.i * lines.strides[0], 0)

    return routine(b, ("lines", types, depth), f"lines{depth}_", parameters, body)
