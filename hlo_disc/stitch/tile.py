"""The tile schedule: a dot and its epilogue as register tiles of rows x vectors.

    for each (batch, panel of columns, chunk of rows) of the block:
        bring the panel's columns together, unless they are packed or can be read in place
        for each tile of 6, 2 or 1 rows of the chunk:       sums over all of K in registers, then the epilogue

Forms: `packed` (a static operand, packed once), `open` (columns are read in place, or by many rows from a copy of
the panel in fast memory), `inner` (few rows, columns contiguous along K: lanes run along K), `narrow` (the same with
rows and columns exchanged, for few columns), `stream` (one row, wide tiles).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.device import Device
from hlo_disc.stitch.group import Group
from hlo_disc.stitch.microkernel import Types
from hlo_disc.stitch.pack import PanelPacking
from hlo_disc.stitch.product import Product, product, swapped
from hlo_disc.stitch.strided import ONE, ZERO
from hlo_disc.stitch.tile_kernel import MOST_ROWS, SlabKernel, TileKernel, TileParts, Tiling
from hlo_disc.stitch.variant import Choice, decided

BF16 = np.dtype(ml_dtypes.bfloat16)
# Up to so many rows lanes run along K when the operand is contiguous there.
INNER_ROWS = 3
# Up to so many columns lanes run along K, and the rows' operand is the one in vectors.
NARROW_COLUMNS = 4
# Vectors of a tile of one row, in tiles of many rows: what memory gives at once.
STREAM = 4
# Blocks that every call should have, as long as each has so many rows that bringing its panel together costs little.
ENOUGH_BLOCKS, LEAST_ROWS = 16, 48
# Blocks that are worth having on many cores, if each has enough rows to cost nothing.
MOST_BLOCKS, MANY_ROWS = 64, 256


@dataclass(frozen=True)
class TileVariant(Tiling):
    """One compiled form of a dot group. Kernel arguments: buffers, symbols, items a block, rows a chunk, chunks."""

    workspace: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return f"dot_{self.form}"

    def key(self) -> tuple:
        return (self.group.key(), self.form)

    def fast_bytes(self) -> Dim:
        """Fast memory of a block: sums, and what it copies of its panel."""
        return (self.sums_elements + self.slab_elements) * np.dtype(self.types.sum).itemsize + self.table_bytes

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
        chunks = row_chunks(b, wanted, items, rows, LEAST_ROWS)
        chunk = b.ceil_div(b.ceil_div(rows, chunks), self.device.tile_rows) * self.device.tile_rows
        if self.form == "open":
            chunk = b.maximum(b.minimum(chunk, MOST_ROWS), 1)
            chunks = b.ceil_div(rows, chunk)
        fast = sizes(self.fast_bytes())
        total = items * chunks
        b.launch(kernel, b.ceil_div(total, per), [*buffers, *symbols, total, per, chunk, chunks], fast)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel and the device functions that it calls to the module."""
        group = self.group
        parts = TileParts(b, self)
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
            work = (SlabKernel if self.form == "open" else TileKernel)(b, self, parts, sizes, values[:buffers])
            lo = b.block_id() * per
            with b.loop(lo, b.minimum(lo + per, total)) as item:
                work.item(item.i // chunks, (item.i % chunks) * chunk, chunk)


def dot_choices(group: Group, facts: ShapeFacts, device: Device, static: Callable[[Value], bool]) -> list[Choice]:
    """The forms of a dot group: packed when the columns are static and packed, else by the number of rows."""
    p = product(group, facts)
    if _is_narrow(p, facts):
        p, few = swapped(p), "narrow"
    elif _is_inner(p):
        few = "inner"
    else:
        few = ""
    row, col = (x.source.dtype for x in (p.rows, p.cols))
    types = Types(row, col, p.dtype, device.pair_dot if _is_paired(p, few) else "")
    lanes = min(device.lanes, device.simd_bytes // p.dtype.itemsize)
    vectors = tile_vectors(p, lanes, device)

    def form(name: str, vectors: int = vectors) -> TileVariant:
        return TileVariant(group, p, name, types, lanes, vectors, device, facts)

    if few == "narrow":
        return [Choice(form(few))]
    columns = form("open")
    last = Choice(columns)
    if static(p.cols.source) and _is_static(p) and not p.gathered:
        packing = PanelPacking.of(p, p.cols.source, types, lanes, vectors)
        return [Choice(form("packed"), packing=packing), last]
    rows, size = p.row_axis.size, p.col_axis.size
    if columns.in_place:
        wide = STREAM * vectors
        least = STREAM * wide * lanes
        return decided([Choice(form("stream", wide), ((rows, 1), (least - size, 0))), last], facts)
    if few:
        return decided([Choice(form(few), ((rows, INNER_ROWS),)), last], facts)
    return [last]


def _is_paired(p: Product, form: str) -> bool:
    """Can the machine multiply pairs of bf16 along K? Rows are read as they lie, columns brought together in pairs."""
    if {p.rows.source.dtype, p.cols.source.dtype} != {BF16} or p.dtype != np.float32:
        return False
    if p.gathered or p.row_axis.digits or len(p.inner) > 1 or p.inner[0].row_stride != ONE:
        return False
    inside = p.inner[0].col_stride == ONE
    return inside or (not form and ONE in (p.col_axis.col_stride, p.col_axis.size))


def _is_inner(p: Product) -> bool:
    """Can lanes run along K of both operands?"""
    return not p.gathered and len(p.inner) == 1 and p.inner[0].row_stride == p.inner[0].col_stride == ONE


def _is_narrow(p: Product, facts: ShapeFacts) -> bool:
    """Are there so few columns, and rows contiguous along K, that vectors along K serve better?"""
    if p.gathered or p.row_axis.digits:
        return False
    few = p.col is not None and facts.at_most(p.col_axis.size, Dim.const(NARROW_COLUMNS)) is Truth.YES
    return few and p.row is not None and len(p.inner) == 1 and p.inner[0].row_stride == ONE


def row_chunks(b: Builder, wanted: Scalar, items: Scalar, rows: Scalar, least: int) -> Scalar:
    """Into how many chunks the rows of each item are divided, so that there are blocks for all cores."""
    chunks: Scalar = 1
    for blocks, size in ((ENOUGH_BLOCKS, least), (MOST_BLOCKS, MANY_ROWS)):
        more = b.ceil_div(b.minimum(wanted, blocks), b.maximum(items, 1))
        chunks = b.maximum(chunks, b.minimum(more, rows // size))
    return chunks


def tile_vectors(p: Product, lanes: int, device: Device) -> int:
    """Vectors of a tile: fewer when there never are more columns."""
    size = p.col_axis.size
    return max(1, min(device.tile_vectors, -(-size.value // lanes))) if size.is_const else device.tile_vectors


def _is_static(p: Product) -> bool:
    axes = [*p.inner, p.col_axis, *(p.axes[a] for a in p.batch if p.axes[a].col_stride != ZERO)]
    return p.cols.offset.is_const and all(axis.size.is_const for axis in axes)


def _div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return x // y if isinstance(x, int) and isinstance(y, int) else b.index(x) // y
