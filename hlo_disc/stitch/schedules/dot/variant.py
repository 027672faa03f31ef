"""The common part of all compiled forms of a dot: their tiles, and how their work is divided among blocks.

A form is a class: it says how the columns of a tile are read, and which kernel does it. See `choices.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.dot.operand import DotTypes
from hlo_disc.stitch.schedules.dot.product import Product
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import ROWS, rest_elements
from hlo_disc.stitch.schedules.kernel import each_item, group_kernel
from hlo_disc.stitch.variant import Variant

if TYPE_CHECKING:
    from hlo_disc.stitch.schedules.dot.tiles.kernel import TileKernel

# Blocks that every call should have, as long as each has so many rows that bringing its panel together costs little,
# or reading it where it is packed.
ENOUGH_BLOCKS, LEAST_ROWS, LEAST_PACKED_ROWS = 16, 48, 24
# The same where an item copies its rows: less blocks copy less.
FEW_BLOCKS = 8
# Blocks that are worth having on many cores, if each has enough rows to cost nothing.
MOST_BLOCKS, MANY_ROWS = 64, 256


@frozen
class DotVariant(Variant):
    """One compiled form of a dot group. Kernel arguments: buffers, symbols, items, items a block, rows a chunk, chunks.

    types, lanes, vectors: the element types, and lanes and vectors of a tile. slices: into how many parts K is divided;
    more than one are the product's first axis.
    form: what `explain` calls it. kernel: what builds its kernel. spans: how many more scalars that takes.
    packed: tiles read the panels of a `PanelPacking`.
    """

    group: Group
    product: Product
    types: DotTypes
    lanes: int
    vectors: int
    device: Device
    facts: ShapeFacts
    slices: int = 1

    form: ClassVar[str]
    kernel: ClassVar[type[TileKernel]]
    spans: ClassVar[int] = 0
    packed: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"dot_{self.form}"

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, self.form, self.slices, self.types, self.lanes, self.vectors)

    @property
    def width(self) -> int:
        """Return the columns of a tile."""
        return self.lanes * self.vectors

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the rows of the tiles, largest first; those of `register_tile` may have fewer."""
        if self.types.tiles:
            return (ROWS,)
        return (self.device.tile_rows, *self.device.row_steps)

    @property
    def in_place(self) -> bool:
        """Whether a tile can read the columns in place."""
        contiguous = self.product.col_axis.col_stride is ONE and not self.product.gathered
        return contiguous and self.types.col == self.types.sum

    @property
    def sums_elements(self) -> Dim:
        """Return the elements for sums in fast memory."""
        return Dim.const(self.steps[0]) * self.width

    @property
    def rest_elements(self) -> int:
        """Return the elements for the end of K, after the sums."""
        return rest_elements(self.vectors) if self.types.tiles else 0

    @property
    def itemsize(self) -> int:
        """Return the bytes of a sum."""
        return np.dtype(self.types.sum).itemsize

    def fast_bytes(self) -> Dim:
        """Return the fast memory of a block."""
        return (self.sums_elements + self.rest_elements) * self.itemsize

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the panels, and the rows when panels are few, into blocks that are worth handing out."""
        p = self.product
        rows = sizes(p.row_axis.size)
        batch, panels = sizes.count([p.axes[a].size for a in p.batch]), b.ceil_div(sizes(p.col_axis.size), self.width)
        items = batch * panels
        # Reading the columns costs about as much as multiplying them by four rows.
        cost = sizes(p.depth) * (rows + 4) * (2 * self.width)
        wanted = b.maximum(b.minimum(cost * items // self.device.grain_flops, MOST_BLOCKS), 1)
        per = b.maximum(_div(b, items, wanted), 1)
        chunks = row_chunks(b, wanted, items, rows, LEAST_PACKED_ROWS if self.packed else LEAST_ROWS)
        step = self.steps[0] if self.types.tiles else self.device.tile_rows
        chunk = b.ceil_div(b.ceil_div(rows, chunks), step) * step
        chunk, chunks = self.chunked(b, rows, chunk, chunks)
        more = []
        span = self.span(b, batch, panels, chunks, wanted)
        if span is not None:
            items = batch * b.ceil_div(panels, span)
            per = b.maximum(_div(b, items, wanted), 1)
            more = [span]
        fast = sizes(self.fast_bytes())
        total = items * chunks
        b.launch(kernel, b.ceil_div(total, per), [*buffers, *symbols, total, per, chunk, chunks, *more], fast)

    def chunked(self, b: Builder, rows: Scalar, chunk: Scalar, chunks: Scalar) -> tuple[Scalar, Scalar]:
        """Return the rows of a chunk, and the number of chunks, given the number that keeps all cores busy."""
        return chunk, chunks

    def span(self, b: Builder, batch: Scalar, panels: Scalar, chunks: Scalar, wanted: Scalar) -> Scalar | None:
        """Return the number of panels of an item, or None for one."""
        return None

    def more(self, b: Builder) -> list[tuple[ir.Type, str]]:
        """Return buffers that the kernel takes besides the group's, with their access."""
        return []

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel and the device functions that it calls to the module."""
        kernel = self.kernel(b, self)
        with group_kernel(b, name, self.group, self.facts, 4 + self.spans, (), self.more(b), calls_only=True) as opened:
            sizes, buffers, (total, per, chunk, chunks, *more) = opened
            kernel.open(sizes, buffers, *more)
            with each_item(b, total, per) as item:
                kernel.item(*self.place(total, item, chunks, chunk), chunk)

    def place(self, total: Scalar, item: Scalar, chunks: Scalar, chunk: Scalar) -> tuple[Scalar, Scalar]:
        """Return the panel and the first row of an item: all rows of a panel are consecutive."""
        return item // chunks, (item % chunks) * chunk


def row_chunks(b: Builder, wanted: Scalar, items: Scalar, rows: Scalar, least: int) -> Scalar:
    """Return into how many chunks the rows of each item are divided, so that there are blocks for all cores."""
    chunks: Scalar = 1
    for blocks, size in ((ENOUGH_BLOCKS, least), (MOST_BLOCKS, MANY_ROWS)):
        more = b.ceil_div(b.minimum(wanted, blocks), b.maximum(items, 1))
        chunks = b.maximum(chunks, b.minimum(more, rows // size))
    return chunks


def panels_together(b: Builder, batch: Scalar, panels: Scalar, chunks: Scalar, wanted: Scalar) -> Scalar:
    """Return how many panels share a copy of their rows: as many as leave blocks for all cores."""
    groups = b.ceil_div(b.minimum(wanted, FEW_BLOCKS), b.maximum(batch * chunks, 1))
    return b.maximum(b.ceil_div(b.index(panels), groups), 1)


def _div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return x // y if isinstance(x, int) and isinstance(y, int) else b.index(x) // y
