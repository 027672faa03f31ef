"""The tile schedule: a dot and its epilogue as register tiles of rows x vectors.

    for each (batch, panel of columns, chunk of rows) of the block:
        bring the panel's columns together, unless they are packed or can be read in place
        for each tile of 6, 2 or 1 rows of the chunk:       sums over all of K in registers, then the epilogue

A static operand is packed once. Forms of an operand that is not: `copied` (each block packs its panel in fast memory),
`inplace` (few rows: read where it lies), `inner` (few rows, contiguous along K: lanes run along K).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts
from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.device import Device
from hlo_disc.stitch.epilogue import Epilogue, is_plain
from hlo_disc.stitch.group import Group
from hlo_disc.stitch.index import Index, IndexMath
from hlo_disc.stitch.microkernel import Types, inner_tile, outer_tile
from hlo_disc.stitch.pack import Filler, PanelPacking, panel_elements
from hlo_disc.stitch.product import Product, product
from hlo_disc.stitch.strided import ONE, ZERO, row_major
from hlo_disc.stitch.variant import Choice, decided

# Up to so many rows an operand that is not packed is read where it lies.
FEW_ROWS = 16
# Up to so many rows lanes run along K when the operand is contiguous there.
INNER_ROWS = 4
# Blocks that are enough for every core to have its share, and blocks that are too many.
ENOUGH_BLOCKS, MOST_BLOCKS = 16, 64
# A block of fewer rows would spend its time on bringing its panel together.
LEAST_ROWS = 48
ALIGNMENT = 64


@dataclass(frozen=True)
class TileVariant:
    """One compiled form of a dot group. Kernel arguments: buffers, symbols, items a block, rows a chunk, chunks."""

    group: Group
    product: Product
    form: str
    types: Types
    lanes: int
    vectors: int
    device: Device
    facts: ShapeFacts
    workspace: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return f"dot_{self.form}"

    def key(self) -> tuple:
        return (self.group.key(), self.form)

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def steps(self) -> tuple[int, ...]:
        return (1,) if self.form == "inner" else (self.device.tile_rows, *self.device.row_steps)

    @property
    def sums_bytes(self) -> int:
        size = self.device.tile_rows * self.width * np.dtype(self.types.sum).itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT

    def fast_bytes(self) -> Dim:
        """Fast memory of a block: the sums of a tile, and the panel that it packs."""
        if self.form != "copied":
            return Dim.const(self.sums_bytes)
        return (
            panel_elements(self.product, self.lanes, self.width) * np.dtype(self.types.sum).itemsize + self.sums_bytes
        )

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the panels, and the rows when panels are few, into blocks that are worth handing out."""
        p = self.product
        if self.form == "packed":
            *buffers, packed = buffers
            element = b.memory_type(self.types.sum)
            buffers = [*buffers, b.view(packed, 0, element, 1)]
        rows = sizes(p.row_axis.size)
        items = sizes.count([p.axes[a].size for a in p.batch]) * b.ceil_div(sizes(p.col_axis.size), self.width)
        # Reading the columns costs about as much as multiplying them by four rows.
        cost = sizes(p.depth) * (rows + 4) * (2 * self.width)
        wanted = b.maximum(b.minimum(cost * items // self.device.grain_flops, MOST_BLOCKS), 1)
        per = b.maximum(_div(b, items, wanted), 1)
        chunks = b.ceil_div(b.minimum(wanted, ENOUGH_BLOCKS), b.maximum(items, 1))
        chunks = b.maximum(b.minimum(chunks, rows // LEAST_ROWS), 1)
        chunk = b.ceil_div(b.ceil_div(rows, chunks), self.device.tile_rows) * self.device.tile_rows
        fast = sizes(self.fast_bytes())
        total = items * chunks
        b.launch(kernel, b.ceil_div(total, per), [*buffers, *symbols, total, per, chunk, chunks], fast)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel and the device functions that it calls to the module."""
        group = self.group
        parts = _Parts(b, self)
        memory = [b.memory_type(v.dtype) for v in (*group.inputs, *group.outputs)]
        args = [(b.buffer_type(t), "r") for t in memory]
        args[len(group.inputs)] = (args[len(group.inputs)][0], "w")
        if self.form == "packed":
            args.append((b.buffer_type(b.memory_type(self.types.sum)), "r"))
        buffers, names = len(args), group.symbols
        args += [(b.index_type, "")] * (len(names) + 4)
        with b.kernel(name, args, calls_only=True) as values:
            *symbols, total, per, chunk, chunks = values[buffers:]
            sizes = Sizes(b, dict(zip(names, symbols, strict=True)), self.facts)
            work = _Kernel(b, self, parts, sizes, values[:buffers])
            lo = b.block_id() * per
            with b.loop(lo, b.minimum(lo + per, total)) as item:
                work.item(item.i // chunks, (item.i % chunks) * chunk, chunk)


class _Parts:
    """The device functions of a variant."""

    def __init__(self, b: Builder, v: TileVariant):
        p = v.product
        self.epilogue = Epilogue(b, p, v.width, v.lanes, v.device, v.facts)
        types = v.types if v.form in ("inplace", "inner") else Types(v.types.row, v.types.sum, v.types.sum)
        self.fill = Filler(b, p.inner, p.col_axis, v.types, v.lanes, v.vectors) if v.form == "copied" else None
        self.tiles: dict[tuple[int, bool], Callable[..., None]] = {}
        if v.form == "inner":
            self.inner = inner_tile(b, v.types, v.lanes, _columns(p.col_axis.size, v.lanes))
            return
        for rows in v.steps:
            for masked in (False, True) if v.form == "inplace" else (False,):
                self.tiles[rows, masked] = outer_tile(b, types, v.lanes, rows, v.vectors, len(p.inner), masked)


class _Kernel:
    def __init__(self, b: Builder, v: TileVariant, parts: _Parts, sizes: Sizes, buffers: Sequence[Val]):
        self.b, self.v, self.p, self.parts, self.sizes = b, v, v.product, parts, sizes
        p, group = v.product, v.group
        memory = dict(zip((*group.inputs, *group.outputs), buffers, strict=False))
        self.rows, self.cols = memory[p.rows.source], memory[p.cols.source]
        self.output = memory[group.outputs[0]]
        self.memory = [memory[x] for x in p.reads] + [self.output]
        fast = b.fast()
        element = b.memory_type(v.types.sum)
        self.sums = b.generic(b.view(fast, 0, element, v.device.tile_rows * v.width))
        self.panel_size = panel_elements(p, v.lanes, v.width)
        if v.form == "copied":
            self.panel = b.generic(b.view(fast, v.sums_bytes, element, sizes(self.panel_size)))
        elif v.form == "packed":
            self.panel = buffers[-1]
        else:
            self.panel = self.cols

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """One panel of columns, and the rows from `first` on."""
        b, p, sizes, width = self.b, self.p, self.sizes, self.v.width
        cols = sizes(p.col_axis.size)
        panels = b.ceil_div(cols, width)
        panel = number % panels
        self.col = panel * width
        self.count = cols - self.col
        self.batch = [i.base for i in IndexMath(b, 1).delinear(
            Index(number // panels), sizes.shape([p.axes[a].size for a in p.batch])
        )]
        self.row_at = self._start(p.rows.offset, [p.axes[a].row_stride for a in p.batch])
        self.col_at = self._start(p.cols.offset, [p.axes[a].col_stride for a in p.batch])
        self.col_at = self.col_at + self.col * sizes(p.col_axis.col_stride)
        if self.parts.fill:
            self.parts.fill(sizes, self.cols, self.col_at, self.panel, 0, self.count)
            self.col_at = 0
        elif self.v.form == "packed":
            self.col_at = self._packed_panel(panel, panels)
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

    def _packed_panel(self, panel: Scalar, panels: Scalar) -> Scalar:
        for i, a in reversed(list(zip(self.batch, self.p.batch, strict=True))):
            if self.p.axes[a].col_stride != ZERO:
                panel = panel + i * panels
                panels = panels * self.sizes(self.p.axes[a].size)
        return panel * self.sizes(self.panel_size)

    def _tile(self, row: Scalar, rows: int) -> None:
        b, width = self.b, self.v.width
        row_at = self.row_at + row * self.sizes(self.p.row_axis.row_stride)

        def whole() -> None:
            at, stride = self._place(row)
            self._sums(row_at, rows, False, self.output, at, stride)

        def through_sums() -> None:
            if self.v.form == "inplace":
                full = b.compare(">=", b.index(self.count), width)
                fits, masked = (
                    lambda m=m: self._sums(row_at, rows, m, self.sums, 0, width) for m in (False, True)
                )
                b.if_(full, fits, masked)
            else:
                self._sums(row_at, rows, False, self.sums, 0, width)
            self.parts.epilogue(self.sizes, [self.sums], self.memory, self.batch, row, rows, self.col)

        if is_plain(self.p) and self.v.form != "inner":
            b.if_(b.compare(">=", b.index(self.count), width), whole, through_sums)
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
        if self.v.form == "inner":
            col_stride, last, size = sizes(p.col_axis.col_stride), self.count - 1, sizes(p.inner[0].size)
            with b.loop(0, b.minimum(self.count, self.v.width), self.v.lanes) as loop:
                col_at = self.col_at + loop.i * col_stride
                self.parts.inner(self.rows, row_at, self.panel, col_at, col_stride, last - loop.i, sums, loop.i, size)
            return
        walk: list[Scalar] = []
        step: Scalar = self.v.width
        for axis in reversed(p.inner):
            size = sizes(axis.size)
            walk = [size, sizes(axis.row_stride), sizes(axis.col_stride) if self.v.form == "inplace" else step, *walk]
            step = step * size
        if masked:
            walk.append(self.count)
        row_stride = sizes(p.row_axis.row_stride)
        self.parts.tiles[rows, masked](self.rows, row_at, row_stride, self.panel, self.col_at, sums, at, stride, *walk)


def dot_choices(
    group: Group, facts: ShapeFacts, device: Device, static: Callable[[Value], bool]
) -> list[Choice]:
    """The forms of a dot group: packed when the columns are static and packed, else by the number of rows."""
    p = product(group, facts)
    row, col = (x.source.dtype for x in (p.rows, p.cols))
    types = Types(row, col, p.dtype)
    lanes = min(device.lanes, device.simd_bytes // p.dtype.itemsize)
    vectors = tile_vectors(p, lanes, device)

    def form(name: str) -> TileVariant:
        return TileVariant(group, p, name, types, lanes, vectors, device, facts)

    choices = []
    if static(p.cols.source) and _is_static(p):
        packing = PanelPacking.of(p, p.cols.source, types, lanes, vectors)
        choices.append(Choice(form("packed"), packing=packing))
    rows = p.row_axis.size
    if p.col_axis.col_stride == ONE:
        choices.append(Choice(form("inplace"), ((rows, FEW_ROWS),)))
    elif len(p.inner) == 1 and p.inner[0].row_stride == p.inner[0].col_stride == ONE:
        choices.append(Choice(form("inner"), ((rows, INNER_ROWS),)))
    choices.append(Choice(form("copied")))
    return decided(choices, facts)


def tile_vectors(p: Product, lanes: int, device: Device) -> int:
    """Vectors of a tile: fewer when there never are more columns."""
    size = p.col_axis.size
    return max(1, min(device.tile_vectors, -(-size.value // lanes))) if size.is_const else device.tile_vectors


def _is_static(p: Product) -> bool:
    axes = [*p.inner, p.col_axis, *(p.axes[a] for a in p.batch if p.axes[a].col_stride != ZERO)]
    return p.cols.offset.is_const and all(axis.size.is_const for axis in axes)


def _columns(size: Dim, lanes: int) -> int:
    """Columns that one call of the inner tile computes: a power of two, fewer when there never are more."""
    columns = lanes
    while size.is_const and columns >= 2 * max(size.value, 1):
        columns //= 2
    return columns


def _div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return x // y if isinstance(x, int) and isinstance(y, int) else b.index(x) // y
