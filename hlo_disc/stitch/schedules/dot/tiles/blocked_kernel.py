"""The variant for columns that are not packed: read in place or, for many rows, from a copy in fast memory.

K is processed in blocks (BLIS's kc) whose micro-panel stays in a core's cache; tiles add to sums in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.epilogue import is_plain
from hlo_disc.stitch.schedules.dot.operand import KAxis, Operand
from hlo_disc.stitch.schedules.dot.product import Axis
from hlo_disc.stitch.schedules.dot.tiles.kernel import TileKernel
from hlo_disc.stitch.schedules.dot.tiles.pack import PanelPacker, WindowPacker
from hlo_disc.stitch.schedules.dot.variant import DotVariant

# Rows of a block that copies its panel: their sums stay in fast memory.
MOST_ROWS = 384
# Bytes of an entry that says where an element of K lies.
TABLE = 8
# As much of K as a block copies at a time: 64 columns of it stay in a core's cache.
KC = 2048
# The same where registers of small matrices multiply: 32 columns of it stay in the first one.
TILES_KC = 512
# From so many rows on a block copies its panel: rows read it from fast memory, in order. Fewer are enough when K is so
# deep that the next tile would not find the panel in the cache.
MANY_ROWS, SOME_ROWS = 96, 24


class BlockedKernel(TileKernel):
    """The kernel for many rows, which read the columns from a copy, made block by block of K."""

    v: BlockedDot

    def prepare(self) -> None:
        b, v, p = self.b, self.v, self.p
        self.packer: PanelPacker | None = None
        self.windows: WindowPacker | None = None
        if p.gathered:
            self.windows = WindowPacker(b, p.inner[-1], p.col_axis, v.types, v.lanes, v.vectors)
        else:
            self.packer = PanelPacker(b, p.inner, p.col_axis, v.types, v.lanes, v.vectors)
        self.make_tiles(1)

    def open(self, sizes: Sizes, buffers: Sequence[Val], *more: Scalar) -> None:
        super().open(sizes, buffers)
        b, v = self.b, self.v
        element, bytes_, before = b.memory_type(v.types.sum), v.itemsize, v.sums_elements + v.rest_elements
        self.room = b.generic(b.view(b.fast(), sizes(before * bytes_), element, sizes(v.packed_elements)))
        self.table = self.room  # where no list is needed
        if v.product.inner[-1].digits:
            at = sizes((before + v.packed_elements) * bytes_)
            self.table = b.generic(b.view(b.fast(), at, b.i64, sizes(v.table_bytes // TABLE)))

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute one panel of columns for the rows from `first` on: sums over all blocks of K, then the epilogue."""
        panels = self.panels
        self.locate_batch(number // panels)
        self.locate_columns(number % panels)
        self.start_panel(first)
        self.blocks(list(self.p.inner), self.row_at, self.col_at, 0, (first, chunk), self.part(self.v.slices))
        self.end_panel(first, chunk)

    def start_panel(self, first: Scalar) -> None:
        """Choose where a panel's sums go, and whether its columns are copied."""
        b, p, width = self.b, self.p, self.v.width
        full = b.compare(">=", self.count, width)
        rows = b.index(self.sizes(p.row_axis.size))
        self.copied = None
        if self.v.in_place:
            deep = b.compare(">", b.index(self.sizes(p.inner[-1].size)), KC)
            many = b.compare(">=", rows, b.select(deep, b.index(SOME_ROWS), b.index(MANY_ROWS)))
            self.copied = b.apply(arith.OrIOp, many, b.compare("<", self.count, width))
        buffer, at, stride = self.sums, b.index(0), b.index(width)
        if is_plain(p):
            # Tiles add up in the output itself.
            place = self.place(first)
            buffer = b.select(full, self.output, self.sums)
            at = b.select(full, b.index(place.at), at)
            stride = b.select(full, b.index(place.strides[0]), stride)
        self.target = Operand(buffer, at, (stride,))

    def end_panel(self, first: Scalar, chunk: Scalar) -> None:
        """Apply the epilogue, unless the sums are in their place already."""
        b, p = self.b, self.p

        def epilogue() -> None:
            rows = b.minimum(chunk, self.sizes(p.row_axis.size) - first)
            self.epilogue(self.sizes, [self.sums], self.memory, self.batch, first, rows, self.col)

        if is_plain(p):
            b.if_(b.compare("<", self.count, self.v.width), epilogue)
        else:
            epilogue()

    def blocks(
        self,
        axes: list[Axis],
        row_at: Scalar,
        col_at: Scalar,
        done: Scalar,
        rows: tuple[Scalar, Scalar],
        part: tuple[Scalar, Scalar],
    ) -> None:
        """Loop over all K axes, the last one in blocks. With nothing to sum, one empty block leaves zeros.

        part: of the first of `axes`.
        """
        b, sizes = self.b, self.sizes
        axis, *others = axes
        lo, hi = part
        if others:
            hi = lo + b.turns(hi - lo, (sizes(other.size) for other in others))
            with b.loop(lo, b.maximum(hi, lo + 1)) as loop:
                self.blocks(
                    others,
                    row_at + loop.i * sizes(axis.row_stride),
                    col_at + loop.i * sizes(axis.col_stride),
                    done + (loop.i - lo),
                    rows,
                    (0, b.index(sizes(others[0].size))),
                )
            return
        if len(self.p.inner) > 1:
            first, last = self.part(self.v.slices)
            nothing = b.compare("==", b.index(sizes(self.p.depth)), 0)
            nothing = b.apply(arith.OrIOp, nothing, b.compare("<=", last, first))
            hi = b.select(nothing, b.index(lo), b.index(hi))
        deep = self.deep(b.maximum(hi - lo, 1))
        with b.loop(lo, b.maximum(hi, lo + 1), deep) as loop:
            depth = b.minimum(deep, hi - loop.i)
            if axis.digits and self.windows is not None:
                self.windows.list(sizes, self.table, loop.i, depth)
            else:
                col_at = col_at + loop.i * sizes(axis.col_stride)
            self.block(depth, row_at + loop.i * sizes(axis.row_stride), col_at, done + (loop.i - lo), rows)

    def deep(self, size: Scalar) -> Scalar:
        """Return how much of K a block has."""
        b = self.b
        if self.copied is None:
            return self.v.kc
        # One tile of rows reads each column once: nothing is gained by going through them part by part.
        several = b.compare(">", b.index(self.sizes(self.p.row_axis.size)), self.v.steps[0])
        return b.select(b.apply(arith.OrIOp, self.copied, several), b.index(self.v.kc), b.index(size))

    def block(self, depth: Scalar, row_at: Scalar, col_at: Scalar, done: Scalar, rows: tuple[Scalar, Scalar]) -> None:
        """Compute all tiles over `depth` elements of K; they add to their sums unless this is the first block."""
        first, chunk = rows
        panel, step = self.take_block(depth, col_at, done)
        along = self.sizes(self.p.inner[-1].row_stride)

        def tile(row: Scalar, count: Scalar) -> None:
            where, axis = self.rows_at(row_at, row, count), KAxis(depth, along, step)
            self.multiply(count, where, panel, self.target_of(row - first), [axis], done)

        self.each_tile(first, chunk, tile)

    def target_of(self, row: Scalar) -> Operand:
        """Return where tiles leave their sums, from the item's row number `row` on."""
        (stride,) = self.target.strides
        return Operand(self.target.buffer, self.target.at + row * stride, (stride,))

    def take_block(self, depth: Scalar, col_at: Scalar, done: Scalar) -> tuple[Operand, Scalar]:
        """Return the panel's columns as tiles read them, `depth` elements of each after `done`, and their stride along
        K."""
        b, sizes, width = self.b, self.sizes, self.v.width

        def copy() -> None:
            panel = Operand(self.room, 0, (width, self.v.lanes))
            if self.windows is not None:
                count = b.minimum(self.count, width)
                self.windows.block(sizes, Operand(self.cols, col_at), self.col, panel, self.table, depth, count)
            elif self.packer is not None:
                self.packer.block(sizes, Operand(self.cols, col_at), panel, depth, self.count)

        panel_at, step = b.index(0), b.index(width)
        if self.copied is None:
            copy()
            return Operand(self.room, panel_at), step
        b.if_(self.copied, copy)
        panel = Operand(b.select(self.copied, self.room, self.cols), b.select(self.copied, panel_at, b.index(col_at)))
        return panel, b.select(self.copied, step, b.index(sizes(self.p.inner[-1].col_stride)))


@frozen
class BlockedDot(DotVariant):
    """The variant for columns that are not packed. A block of rows keeps its sums, and a block of its panel, in fast
    memory."""

    form = "open"
    kernel = BlockedKernel

    @property
    def kc(self) -> int:
        """Return how much of K is copied at a time."""
        return TILES_KC if self.types.tiles else KC

    @property
    def sums_elements(self) -> Dim:
        """Return the elements for the sums of all rows of a block."""
        return Dim.min(self.product.row_axis.size, MOST_ROWS) * self.width

    @property
    def packed_elements(self) -> Dim:
        """Return the elements for a block of a panel, after the sums."""
        return Dim.min(self.product.inner[-1].size, self.kc) * self.width

    @property
    def table_bytes(self) -> Dim:
        """Return the bytes for the position of each k of a block, after the panel."""
        listed = self.product.inner[-1].digits
        return Dim.min(self.product.inner[-1].size, self.kc) * TABLE if listed else Dim.const(0)

    def fast_bytes(self) -> Dim:
        return super().fast_bytes() + self.packed_elements * self.itemsize + self.table_bytes

    def chunked(self, b: Builder, rows: Scalar, chunk: Scalar, chunks: Scalar) -> tuple[Scalar, Scalar]:
        chunk = b.maximum(b.minimum(chunk, MOST_ROWS), 1)
        return chunk, b.ceil_div(rows, chunk)


@frozen
class AcrossDot(BlockedDot):
    """The variant for few columns, and adjacent rows: rows and columns are exchanged."""

    form = "across"
