"""The kernel of the tile schedule: panels of columns, tiles of rows, and which device functions they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts
from hlo_disc.mlir import arith
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.device import Device
from hlo_disc.stitch.epilogue import Epilogue, is_plain
from hlo_disc.stitch.group import Group
from hlo_disc.stitch.index import Index, IndexMath
from hlo_disc.stitch.microkernel import Types, inner_tile, outer_tile
from hlo_disc.stitch.pack import Filler, panel_elements
from hlo_disc.stitch.product import Product
from hlo_disc.stitch.strided import ONE, ZERO, row_major

# From so many rows on a block copies its panel: rows read it from fast memory, in order.
MANY_ROWS = 96
ALIGNMENT = 64


@dataclass(frozen=True)
class Tiling:
    """How a dot group is tiled: its form, element types, lanes and vectors of a tile."""

    group: Group
    product: Product
    form: str
    types: Types
    lanes: int
    vectors: int
    device: Device
    facts: ShapeFacts

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
        return self.product.col_axis.col_stride == ONE and self.types.col == self.types.sum

    @property
    def sums_bytes(self) -> int:
        """Fast memory of a tile's sums, which the panel follows."""
        size = self.steps[0] * self.width * np.dtype(self.types.sum).itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT


class TileParts:
    """The device functions of a variant."""

    def __init__(self, b: Builder, v: Tiling):
        p = v.product
        self.epilogue = Epilogue(b, p, v.width, v.lanes, v.device, v.facts)
        self.fill = Filler(b, p.inner, p.col_axis, v.types, v.lanes, v.vectors) if v.form == "open" else None
        self.tiles: dict[tuple[int, bool], Callable[..., None]] = {}
        if v.form in ("inner", "narrow"):
            contiguous = p.inner[0].row_stride == ONE
            self.inner = inner_tile(b, v.types, v.lanes, _columns(p.col_axis.size, v.lanes), contiguous)
            return
        types = Types(v.types.row, v.types.sum, v.types.sum)
        for rows in v.steps:
            for masked in (False, True) if v.form == "stream" else (False,):
                self.tiles[rows, masked] = outer_tile(b, types, v.lanes, rows, v.vectors, len(p.inner), masked)


class TileKernel:
    """The body of a kernel: `item` builds one panel of columns."""

    def __init__(self, b: Builder, v: Tiling, parts: TileParts, sizes: Sizes, buffers: Sequence[Val]):
        self.b, self.v, self.p, self.parts, self.sizes = b, v, v.product, parts, sizes
        p, group = v.product, v.group
        memory = dict(zip((*group.inputs, *group.outputs), buffers, strict=False))
        self.rows, self.cols = memory[p.rows.source], memory[p.cols.source]
        self.output = memory[group.outputs[0]]
        self.memory = [memory[x] for x in p.reads] + [self.output]
        element = b.memory_type(v.types.sum)
        fast = b.fast()
        self.sums = b.generic(b.view(fast, 0, element, v.steps[0] * v.width))
        self.panel_size = panel_elements(p, v.width)
        if v.form == "open":
            self.room = b.generic(b.view(fast, v.sums_bytes, element, sizes(self.panel_size)))
        self.packed = buffers[-1]

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """One panel of columns, and the rows from `first` on."""
        b, p, sizes, width = self.b, self.p, self.sizes, self.v.width
        cols = sizes(p.col_axis.size)
        panels = b.ceil_div(cols, width)
        panel = number % panels
        self.col = panel * width
        self.count = cols - self.col
        sizes_of_batch = sizes.shape([p.axes[a].size for a in p.batch])
        self.batch = [i.base for i in IndexMath(b, 1).delinear(Index(number // panels), sizes_of_batch)]
        self.row_at = self._start(p.rows.offset, [p.axes[a].row_stride for a in p.batch])
        self._take_panel(panel, panels)
        lo = first
        end = b.minimum(first + chunk, sizes(p.row_axis.size))
        for rows in self.v.steps:
            hi = end - (end - lo) % rows
            with b.loop(lo, hi, rows) as loop:
                self._tile(loop.i, rows)
            lo = hi

    def _start(self, offset: Dim, strides: Sequence[Dim]) -> Scalar:
        at = self.sizes(offset)
        for i, stride in zip(self.batch, strides, strict=True):
            at = at + i * self.sizes(stride)
        return at

    def _take_panel(self, panel: Scalar, panels: Scalar) -> None:
        """Decide where the tiles read the columns: `panel` from `col_at` on, `steps` apart along each K axis."""
        b, p, sizes = self.b, self.p, self.sizes
        in_panel: list[Scalar] = []
        step: Scalar = self.v.width
        for axis in reversed(p.inner):
            in_panel = [step, *in_panel]
            step = step * sizes(axis.size)
        in_place = sizes.shape([axis.col_stride for axis in p.inner])
        col_at = self._start(p.cols.offset, [p.axes[a].col_stride for a in p.batch])
        col_at = col_at + self.col * sizes(p.col_axis.col_stride)
        if self.v.form == "packed":
            self.panel, self.col_at, self.steps = self.packed, self._packed_panel(panel, panels), in_panel
        elif self.parts.fill is None:
            self.panel, self.col_at, self.steps = self.cols, col_at, in_place
        elif not self.v.in_place:
            self.parts.fill(sizes, self.cols, col_at, self.room, 0, self.count)
            self.panel, self.col_at, self.steps = self.room, 0, in_panel
        else:
            fill = self.parts.fill
            many = b.compare(">=", b.index(sizes(p.row_axis.size)), MANY_ROWS)
            copied = b.apply(arith.OrIOp, many, b.compare("<", b.index(self.count), self.v.width))
            b.if_(copied, lambda: fill(sizes, self.cols, col_at, self.room, 0, self.count))
            self.panel = b.select(copied, self.room, self.cols)
            self.col_at = b.select(copied, b.index(0), b.index(col_at))
            pairs = zip(in_panel, in_place, strict=True)
            self.steps = [b.select(copied, b.index(x), b.index(y)) for x, y in pairs]

    def _packed_panel(self, panel: Scalar, panels: Scalar) -> Scalar:
        for i, a in reversed(list(zip(self.batch, self.p.batch, strict=True))):
            if self.p.axes[a].col_stride != ZERO:
                panel = panel + i * panels
                panels = panels * self.sizes(self.p.axes[a].size)
        return panel * self.sizes(self.panel_size)

    def _tile(self, row: Scalar, rows: int) -> None:
        b, width = self.b, self.v.width
        row_at = self.row_at + row * self.sizes(self.p.row_axis.row_stride)
        full = b.compare(">=", b.index(self.count), width)

        def whole() -> None:
            at, stride = self._place(row)
            self._sums(row_at, rows, False, self.output, at, stride)

        def through_sums() -> None:
            fits, masked = (lambda m=m: self._sums(row_at, rows, m, self.sums, 0, width) for m in (False, True))
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

    def _sums(self, row_at: Scalar, rows: int, masked: bool, sums: Val, at: Scalar, stride: Scalar) -> None:
        b, p, sizes = self.b, self.p, self.sizes
        if not self.parts.tiles:
            row = (self.rows, row_at, sizes(p.inner[0].row_stride))
            col_stride, last, size = sizes(p.col_axis.col_stride), self.count - 1, sizes(p.inner[0].size)
            with b.loop(0, b.minimum(self.count, self.v.width), self.v.lanes) as loop:
                col = (self.panel, self.col_at + loop.i * col_stride, col_stride)
                self.parts.inner(*row, *col, last - loop.i, sums, loop.i, size)
            return
        walk: list[Scalar] = []
        for axis, step in zip(p.inner, self.steps, strict=True):
            walk += [sizes(axis.size), sizes(axis.row_stride), step]
        if masked:
            walk.append(self.count)
        row_stride = sizes(p.row_axis.row_stride)
        self.parts.tiles[rows, masked](self.rows, row_at, row_stride, self.panel, self.col_at, sums, at, stride, *walk)


def _columns(size: Dim, lanes: int) -> int:
    """Columns that one call of the inner tile computes: a power of two, fewer when there never are more."""
    columns = lanes
    while size.is_const and columns >= 2 * max(size.value, 1):
        columns //= 2
    return columns
