"""The kernel of the tile schedule: panels of columns, tiles of rows, and which device functions they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index, IndexMath
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.strided import ONE, ZERO, row_major
from hlo_disc.stitch.schedules.dot.bf16_dot import pair_inner, pair_tile, panel_depth
from hlo_disc.stitch.schedules.dot.epilogue import Epilogue, is_plain
from hlo_disc.stitch.schedules.dot.microkernel import Types, block_elements, copy_blocks, inner_tile, outer_tile
from hlo_disc.stitch.schedules.dot.pack import Filler, RunFiller
from hlo_disc.stitch.schedules.dot.product import Product, position

# Rows of a block that copies its panel: their sums stay in fast memory.
MOST_ROWS = 384
# Bytes of an entry that says where an element of K lies.
TABLE = 8
# As much of K as a block copies at a time: 64 columns of it stay in a core's cache, or 64 columns and MOST_ROWS rows.
SLAB, SLAB_TURNED = 2048, 256
# Vectors of rows that are brought together: the tiles of most rows fill it.
ROW_VECTORS = 3


@dataclass(frozen=True)
class Tiling:
    """How a dot group is tiled: its form, element types, lanes and vectors of a tile.

    slices: into how many parts K is divided; more than one are the product's first axis.
    """

    group: Group
    product: Product
    form: str
    types: Types
    lanes: int
    vectors: int
    device: Device
    facts: ShapeFacts
    slices: int = 1

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    @property
    def steps(self) -> tuple[int, ...]:
        """Rows of the tiles, largest first."""
        one = self.form in ("inner", "narrow", "stream")
        return (1,) if one else (self.device.tile_rows, *self.device.row_steps)

    @property
    def in_place(self) -> bool:
        """Can a tile read the columns where they lie?"""
        contiguous = self.product.col_axis.col_stride == ONE and not self.product.gathered
        return contiguous and self.types.col == self.types.sum

    @property
    def turned(self) -> bool:
        """Do rows that follow each other lie together, and not the elements of a row?"""
        row, last = self.product.row_axis, self.product.inner[-1]
        return self.form == "open" and row.row_stride == ONE != last.row_stride and not row.digits

    @property
    def slab(self) -> int:
        return SLAB_TURNED if self.turned else SLAB

    @property
    def row_width(self) -> int:
        """Rows that are brought together at a time."""
        return ROW_VECTORS * self.lanes

    @property
    def sums_elements(self) -> Dim:
        """Room for sums in fast memory: of a tile, or of all rows of a block where a panel comes in slabs."""
        rows = Dim.min(self.product.row_axis.size, MOST_ROWS) if self.form == "open" else Dim.const(self.steps[0])
        return rows * self.width

    @property
    def slab_elements(self) -> Dim:
        """Room for a slab of a panel, and of rows if they are turned, which follows the sums."""
        deep = Dim.min(self.product.inner[-1].size, self.slab) if self.form == "open" else Dim.const(0)
        if not self.turned:
            return deep * self.width
        blocks = (Dim.min(self.product.row_axis.size, MOST_ROWS) + (self.row_width - 1)) // self.row_width
        return deep * self.width + blocks * block_elements(deep, self.lanes, ROW_VECTORS)

    @property
    def table_bytes(self) -> Dim:
        """Room for where each k of a slab lies, behind the slab."""
        listed = self.form == "open" and self.product.inner[-1].digits
        return Dim.min(self.product.inner[-1].size, self.slab) * TABLE if listed else Dim.const(0)


class TileParts:
    """The device functions of a variant."""

    def __init__(self, b: Builder, v: Tiling):
        p = v.product
        self.epilogue = Epilogue(b, p, v.width, v.lanes, v.device, v.facts)
        self.fill: Filler | None = None
        self.runs: RunFiller | None = None
        if v.form == "open" and p.gathered:
            self.runs = RunFiller(b, p.inner[-1], p.col_axis, v.types, v.lanes, v.vectors)
        elif v.form == "open":
            self.fill = Filler(b, p.inner, p.col_axis, v.types, v.lanes, v.vectors)
        self.tiles: dict[tuple[int, bool], Callable[..., None]] = {}
        if v.form in ("inner", "narrow"):
            columns = _columns(p.col_axis.size, v.lanes)
            if v.types.pairs:
                self.inner = pair_inner(b, v.types, v.lanes, columns)
            else:
                self.inner = inner_tile(b, v.types, v.lanes, columns, p.inner[0].row_stride == ONE)
            return
        if v.types.pairs:
            self.tiles = {(rows, False): pair_tile(b, v.types, v.lanes, rows, v.vectors) for rows in v.steps}
            return
        types = Types(v.types.row, v.types.sum, v.types.sum)
        depth = 1 if v.form == "open" else len(p.inner)
        for rows in v.steps:
            for masked in (False, True) if v.form == "stream" else (False,):
                apart = bool(p.row_axis.digits)
                self.tiles[rows, masked] = outer_tile(b, types, v.lanes, rows, v.vectors, depth, masked, apart)
        if v.turned:
            self.fill_rows = copy_blocks(b, types, v.lanes, ROW_VECTORS)
            same = Types(types.sum, types.sum, types.sum)
            self.row_tiles = {rows: outer_tile(b, same, v.lanes, rows, v.vectors, 1, False) for rows in v.steps}


class TileKernel:
    """The body of a kernel: `item` builds one panel of columns."""

    def __init__(self, b: Builder, v: Tiling, parts: TileParts, sizes: Sizes, buffers: Sequence[Val]):
        self.b, self.v, self.p, self.parts, self.sizes = b, v, v.product, parts, sizes
        p, group = v.product, v.group
        memory = dict(zip((*group.inputs, *group.outputs), buffers, strict=False))
        self.rows, self.cols = memory[p.rows.source], memory[p.cols.source]
        self.output = memory[group.outputs[0]]
        self.memory = [memory[x] for x in p.reads] + [self.output]
        self.packed = buffers[-1]
        element = b.memory_type(v.types.sum)
        self.sums = b.generic(b.view(b.fast(), 0, element, sizes(v.sums_elements)))

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """One panel of columns, and the rows from `first` on."""
        self._locate(number)
        self._each_tile(first, chunk, self._tile)

    @property
    def panels(self) -> Scalar:
        return self.b.ceil_div(self.sizes(self.p.col_axis.size), self.v.width)

    def _locate(self, number: Scalar) -> None:
        """Where the item's panel and its batch element are: in the result, in both operands, and in packed panels."""
        panels = self.panels
        self._locate_batch(number // panels)
        self._locate_columns(number % panels)
        self.panel, self.steps = self.cols, self.sizes.shape([axis.col_stride for axis in self.p.inner])
        if self.v.form == "packed":
            self.panel, self.steps = self.packed, self._packed_steps()
            self.col_at = self._packed_panel(number % panels, panels)

    def _locate_batch(self, number: Scalar) -> None:
        shape = self.sizes.shape([self.p.axes[a].size for a in self.p.batch])
        self.batch = [i.base for i in IndexMath(self.b, 1).delinear(Index(number), shape)]
        self.row_at = self._start(self.p.rows.offset, "row")
        self.batch_at = self._start(self.p.cols.offset, "col")

    def _locate_columns(self, panel: Scalar) -> None:
        axis, sizes = self.p.col_axis, self.sizes
        self.col = panel * self.v.width
        self.count = self.b.index(sizes(axis.size) - self.col)
        self.col_at = self.batch_at
        if not self.p.gathered:
            self.col_at = self.col_at + self.col * sizes(axis.col_stride)

    def _start(self, offset: Dim, side: str) -> Scalar:
        at = self.sizes(offset)
        for i, a in zip(self.batch, self.p.batch, strict=True):
            at = at + position(self.p.axes[a], i, side, self.sizes)
        return at

    def _rows(self, at: Scalar, first: Scalar, rows: int) -> list[Scalar]:
        """How tiles are told where their rows lie, row 0 being at `at`."""
        axis, sizes = self.p.row_axis, self.sizes
        if axis.digits:
            return [at + position(axis, first + r, "row", sizes) for r in range(rows)]
        return [at + first * sizes(axis.row_stride), sizes(axis.row_stride)]

    def _packed_panel(self, panel: Scalar, panels: Scalar) -> Scalar:
        for i, a in reversed(list(zip(self.batch, self.p.batch, strict=True))):
            if self.p.axes[a].col_stride != ZERO:
                panel = panel + i * panels
                panels = panels * self.sizes(self.p.axes[a].size)
        return panel * self.sizes(panel_depth(self.v.types, self.p.depth) * self.v.width)

    def _packed_steps(self) -> list[Scalar]:
        steps: list[Scalar] = []
        step: Scalar = self.v.width
        for axis in reversed(self.p.inner):
            steps = [step, *steps]
            step = step * self.sizes(axis.size)
        return steps

    def _each_tile(self, first: Scalar, chunk: Scalar, tile: Callable[[Scalar, int], None]) -> None:
        """Call `tile` for the rows of a chunk: as many tiles of most rows as there are, then smaller ones."""
        lo, end = first, self.b.minimum(first + chunk, self.sizes(self.p.row_axis.size))
        for rows in self.v.steps:
            hi = end - (end - lo) % rows
            with self.b.loop(lo, hi, rows) as loop:
                tile(loop.i, rows)
            lo = hi

    def _tile(self, row: Scalar, rows: int) -> None:
        b, width = self.b, self.v.width
        where = self._rows(self.row_at, row, rows)
        full = b.compare(">=", self.count, width)

        def whole() -> None:
            self._sums(where, rows, False, self.output, *self._place(row))

        def through_sums() -> None:
            fits, masked = (lambda m=m: self._sums(where, rows, m, self.sums, 0, width) for m in (False, True))
            if self.v.form == "stream":
                b.if_(full, fits, masked)
            else:
                fits()
            self.parts.epilogue(self.sizes, [self.sums], self.memory, self.batch, row, rows, self.col)

        if is_plain(self.p) and self.parts.tiles:
            b.if_(full, whole, through_sums)
        else:
            through_sums()

    def _place(self, row: Scalar) -> tuple[Scalar, Scalar]:
        """Where the tile lies in an output that is the dot's result, and its stride along the rows."""
        p = self.p
        strides = self.sizes.shape(row_major(tuple(axis.size for axis in p.axes)))
        at = self.col
        for i, a in zip(self.batch, p.batch, strict=True):
            at = at + i * strides[a]
        if p.row is None:
            return at, 0
        return at + row * strides[p.row], strides[p.row]

    def _sums(self, where: Sequence[Scalar], rows: int, masked: bool, sums: Val, at: Scalar, stride: Scalar) -> None:
        p, sizes = self.p, self.sizes
        if not self.parts.tiles:
            self._inner_sums(where[0], sums)
            return
        walk: list[Scalar] = []
        for axis, step in zip(p.inner, self.steps, strict=True):
            walk += [sizes(axis.size), sizes(axis.row_stride), step]
        walk += [0, self.count] if masked else [0]
        self.parts.tiles[rows, masked](self.rows, *where, self.panel, self.col_at, sums, at, stride, *walk)

    def _inner_sums(self, row_at: Scalar, sums: Val) -> None:
        b, p, sizes = self.b, self.p, self.sizes
        row = (self.rows, row_at, sizes(p.inner[0].row_stride))
        col_stride, last, size = sizes(p.col_axis.col_stride), self.count - 1, sizes(p.inner[0].size)
        with b.loop(0, b.minimum(self.count, self.v.width), self.v.lanes) as loop:
            col = (self.panel, self.col_at + loop.i * col_stride, col_stride)
            self.parts.inner(*row, *col, last - loop.i, sums, loop.i, size)


def _columns(size: Dim, lanes: int) -> int:
    """Columns that one call of the inner tile computes: a power of two, fewer when there never are more."""
    columns = lanes
    while size.is_const and columns >= 2 * max(size.value, 1):
        columns //= 2
    return columns
