"""The common part of the kernels of all variants of a dot: panels of columns, tiles of rows, and the target of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index, IndexMath
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.strided import row_major
from hlo_disc.stitch.schedules.dot.epilogue import Epilogue, is_plain
from hlo_disc.stitch.schedules.dot.operand import Call, DotTypes, KAxis, Operand, Rows
from hlo_disc.stitch.schedules.dot.product import Product, position
from hlo_disc.stitch.schedules.dot.tiles.bf16_dot import pair_tile
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import register_tile, tiles_of_registers
from hlo_disc.stitch.schedules.dot.tiles.microkernel import outer_tile

if TYPE_CHECKING:
    from hlo_disc.stitch.schedules.dot.variant import DotVariant


class ProductKernel:
    """Builds a kernel of a product, and locates its matrices."""

    def __init__(self, b: Builder, p: Product):
        self.b, self.p = b, p

    def open_memory(self, sizes: Sizes, group: Group, buffers: Sequence[Val]) -> None:
        """Open the buffers of the product's group."""
        self.sizes = sizes
        memory = dict(zip((*group.inputs, *group.outputs), buffers, strict=False))
        self.rows, self.cols = memory[self.p.rows.source], memory[self.p.cols.source]
        self.output = memory[group.outputs[0]]
        self.memory = [memory[x] for x in self.p.reads] + [self.output]

    def locate_batch(self, number: Scalar) -> None:
        """Locate the matrices of a batch."""
        shape = self.sizes.shape([self.p.axes[a].size for a in self.p.batch])
        self.batch = [i.base for i in IndexMath(self.b, 1).delinear(Index(number), shape)]
        self.row_at = self._start(self.p.rows.offset, "row")
        self.batch_at = self._start(self.p.cols.offset, "col")

    def part(self, slices: int) -> tuple[Scalar, Scalar]:
        """Return the start and end of the part of the outermost K axis that a batch sums, if K is divided."""
        b, size = self.b, self.b.index(self.sizes(self.p.inner[0].size))
        if slices == 1:
            return 0, size
        span = b.ceil_div(size, slices)
        lo = b.minimum(self.batch[0] * span, size)
        return lo, b.minimum(lo + span, size)

    def _start(self, offset: Dim, side: str) -> Scalar:
        at = self.sizes(offset)
        for i, a in zip(self.batch, self.p.batch, strict=True):
            at = at + position(self.p.axes[a], i, side, self.sizes)
        return at


class TileKernel(ProductKernel):
    """Builds a kernel: first the device functions that it calls, then, when it is open, panel by panel (`item`)."""

    def __init__(self, b: Builder, v: DotVariant):
        super().__init__(b, v.product)
        self.v = v
        self.epilogue = Epilogue(b, v.product, v.width, v.lanes, v.device, v.facts)
        self.prepare()

    def prepare(self) -> None:
        """Make the device functions."""
        raise NotImplementedError

    def open(self, sizes: Sizes, buffers: Sequence[Val], *more: Scalar) -> None:
        """Open the kernel's arguments."""
        b = self.b
        self.open_memory(sizes, self.v.group, buffers)
        element = b.memory_type(self.v.types.sum)
        elements = sizes(self.v.sums_elements)
        self.sums = b.generic(b.view(b.fast(), 0, element, elements + self.v.rest_elements))
        self.rest = Operand(self.sums, elements)

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute one panel of columns for the rows from `first` on."""
        panels = self.panels
        self.locate_batch(number // panels)
        self.locate_columns(number % panels)
        self.take_panel(number, panels)
        self.each_tile(first, chunk, self.tile)

    def make_tiles(self, depth: int, masked: tuple[bool, ...] = (False,)) -> None:
        """Make tiles for all numbers of rows, with `depth` loops over K, whole and masked."""
        b, v = self.b, self.v
        self.tiles: dict[tuple[Scalar, bool], Call] = {}
        if v.types.tiles:
            self.any_rows = register_tile(b, v.types, v.vectors, v.packed)
            return
        types, apart = DotTypes(v.types.row, v.types.sum, v.types.sum), bool(self.p.row_axis.digits)
        for rows in v.steps:
            if v.types.pairs:
                self.tiles[rows, False] = pair_tile(b, v.types, v.lanes, rows, v.vectors, v.packed)
                continue
            for mask in masked:
                tile = outer_tile(b, types, v.lanes, rows, v.vectors, depth, mask, apart, v.packed, v.device.prefetch)
                self.tiles[rows, mask] = tile

    def multiply(
        self,
        rows: Scalar,
        where: Operand | Rows,
        panel: Operand,
        sums: Operand,
        axes: Sequence[KAxis],
        done: Scalar,
        count: Val | None = None,
    ) -> None:
        """Add a tile's sums over `axes` to its target, unless it is the first part; count: columns that may be read."""
        if self.v.types.tiles:
            self.any_rows(where, panel, sums, *axes, done, rows, self.rest)
        else:
            self.tiles[rows, count is not None](where, panel, sums, *axes, done, *([] if count is None else [count]))

    # Where an item is.

    @property
    def panels(self) -> Scalar:
        return self.b.ceil_div(self.sizes(self.p.col_axis.size), self.v.width)

    def locate_columns(self, panel: Scalar) -> None:
        axis, sizes = self.p.col_axis, self.sizes
        self.col = panel * self.v.width
        self.count = self.b.index(sizes(axis.size) - self.col)
        self.col_at = self.batch_at
        if not self.p.gathered:
            self.col_at = self.col_at + self.col * sizes(axis.col_stride)

    def take_panel(self, number: Scalar, panels: Scalar) -> None:
        """Return where the tiles of item `number` read the columns, and their stride along K."""
        self.panel = Operand(self.cols, self.col_at)
        self.k_steps = self.sizes.shape([axis.col_stride for axis in self.p.inner])

    def rows_at(self, at: Scalar, first: Scalar, rows: Scalar) -> Operand | Rows:
        """Return the rows of a tile; row 0 of the matrix is at `at`."""
        axis, sizes = self.p.row_axis, self.sizes
        if axis.digits:
            assert isinstance(rows, int), "windows are not read by registers of matrices"
            return Rows(self.rows, tuple(at + position(axis, first + r, "row", sizes) for r in range(rows)))
        return Operand(self.rows, at + first * sizes(axis.row_stride), (sizes(axis.row_stride),))

    def each_tile(self, first: Scalar, chunk: Scalar, tile: Callable[..., None]) -> None:
        """Call `tile` for the rows of a chunk, with the first one and how many: one of `steps`, or a scalar."""
        b = self.b
        end = b.minimum(first + chunk, self.sizes(self.p.row_axis.size))
        if self.v.types.tiles:
            tiles_of_registers(b, first, end, tile)
        else:
            rows_of_tiles(b, self.v.steps, first, end, tile)

    # Tiles.

    def tile(self, row: Scalar, rows: Scalar) -> None:
        """Compute one tile: its sums go directly to the output, or through a buffer and the epilogue."""
        b = self.b
        where = self.rows_at(self.row_at, row, rows)
        full = b.compare(">=", self.count, self.v.width)

        def through_sums() -> None:
            self.leave_sums(where, rows, full)
            self.epilogue(self.sizes, [self.sums], self.memory, self.batch, row, rows, self.col)

        if is_plain(self.p) and self.writes_tiles:
            b.if_(full, lambda: self.sum(where, rows, self.place(row)), through_sums)
        else:
            through_sums()

    # May a tile's sums be written straight into the output?
    writes_tiles = True

    def place(self, row: Scalar) -> Operand:
        """Return the tile's position in an output that is the dot's result, and its stride along the rows."""
        p = self.p
        strides = self.sizes.shape(row_major(tuple(axis.size for axis in p.axes)))
        at = self.col
        for i, a in zip(self.batch, p.batch, strict=True):
            at = at + i * strides[a]
        if p.row is None:
            return Operand(self.output, at, (0,))
        return Operand(self.output, at + row * strides[p.row], (strides[p.row],))

    def leave_sums(self, where: Operand | Rows, rows: Scalar, full: Val) -> None:
        """Leave the tile's sums in their buffer; full: whether it has all its columns."""
        self.sum(where, rows, Operand(self.sums, 0, (self.v.width,)))

    def sum(self, where: Operand | Rows, rows: Scalar, sums: Operand, masked: bool = False) -> None:
        """Compute a tile's sums over all of K. masked: only existing columns may be read."""
        raise NotImplementedError

    def walk(self) -> list[KAxis]:
        """Return the axes of K in the tiles' order."""
        sizes = self.sizes
        first, *rest = sizes.shape([axis.size for axis in self.p.inner])
        axes = zip([self.b.turns(first, rest), *rest], self.p.inner, self.k_steps, strict=True)
        return [KAxis(size, sizes(axis.row_stride), step) for size, axis, step in axes]


def rows_of_tiles(
    b: Builder, steps: Sequence[int], lo: Scalar, end: Scalar, tile: Callable[[Scalar, int], None]
) -> None:
    """Call `tile` for the rows from `lo` on: as many tiles of most rows as there are, then smaller ones."""
    for rows in steps:
        hi = end - (end - lo) % rows
        with b.loop(lo, hi, rows) as loop:
            tile(loop.i, rows)
        lo = hi


def panel_steps(p: Product, sizes: Sizes, innermost: int) -> list[Scalar]:
    """Return the strides in a micro-panel along each axis of K, given that of the last one."""
    steps: list[Scalar] = []
    step: Scalar = innermost
    for axis in reversed(p.inner):
        steps = [step, *steps]
        step = step * sizes(axis.size)
    return steps
