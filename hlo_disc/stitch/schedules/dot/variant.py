"""A compiled form of a dot: how its work is divided among blocks, and its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.epilogue import is_plain
from hlo_disc.stitch.schedules.dot.kernel import MOST_ROWS, TileKernel, TileParts, Tiling
from hlo_disc.stitch.schedules.dot.slab_kernel import SlabKernel
from hlo_disc.stitch.schedules.dot.transposed_lhs import TurnedKernel

# Blocks that every call should have, as long as each has so many rows that bringing its panel together costs little.
ENOUGH_BLOCKS, LEAST_ROWS = 16, 48
# The same where blocks copy rows that lie apart in memory: less blocks copy less.
FEW_BLOCKS = 8
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
        return (self.group.key(), self.form, self.slices)

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
        batch, panels = sizes.count([p.axes[a].size for a in p.batch]), b.ceil_div(sizes(p.col_axis.size), self.width)
        items = batch * panels
        # Reading the columns costs about as much as multiplying them by four rows.
        cost = sizes(p.depth) * (rows + 4) * (2 * self.width)
        wanted = b.maximum(b.minimum(cost * items // self.device.grain_flops, MOST_BLOCKS), 1)
        per = b.maximum(_div(b, items, wanted), 1)
        chunks = row_chunks(b, wanted, items, rows, LEAST_ROWS)
        chunk = b.ceil_div(b.ceil_div(rows, chunks), self.device.tile_rows) * self.device.tile_rows
        if self.form == "open":
            chunk = b.maximum(b.minimum(chunk, MOST_ROWS), 1)
            chunks = b.ceil_div(rows, chunk)
        more = []
        if self.turned:
            span = self._span(b, batch, panels, chunks, wanted)
            items = batch * b.ceil_div(panels, span)
            per = b.maximum(_div(b, items, wanted), 1)
            more = [span]
        fast = sizes(self.fast_bytes())
        total = items * chunks
        b.launch(kernel, b.ceil_div(total, per), [*buffers, *symbols, total, per, chunk, chunks, *more], fast)

    def _span(self, b: Builder, batch: Scalar, panels: Scalar, chunks: Scalar, wanted: Scalar) -> Scalar:
        """How many panels share a copy of their rows: as many as leave blocks for all cores."""
        if not is_plain(self.product):
            return 1
        if self.slices > 1:
            return b.maximum(panels, 1)
        groups = b.ceil_div(b.minimum(wanted, FEW_BLOCKS), b.maximum(batch * chunks, 1))
        return b.maximum(b.ceil_div(b.index(panels), groups), 1)

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
        args += [(b.index_type, "")] * (len(names) + 4 + self.turned)
        with b.module.kernel(name, args, calls_only=True) as values:
            symbols, (total, per, chunk, chunks, *more) = values[buffers:][: len(names)], values[buffers + len(names) :]
            sizes = Sizes(b, dict(zip(names, symbols, strict=True)), self.facts)
            kind = TurnedKernel if self.turned else SlabKernel if self.form == "open" else TileKernel
            work = kind(b, self, parts, sizes, values[:buffers], *more)
            lo = b.block_id() * per
            with b.loop(lo, b.minimum(lo + per, total)) as item:
                work.item(item.i // chunks, (item.i % chunks) * chunk, chunk)


def row_chunks(b: Builder, wanted: Scalar, items: Scalar, rows: Scalar, least: int) -> Scalar:
    """Into how many chunks the rows of each item are divided, so that there are blocks for all cores."""
    chunks: Scalar = 1
    for blocks, size in ((ENOUGH_BLOCKS, least), (MOST_BLOCKS, MANY_ROWS)):
        more = b.ceil_div(b.minimum(wanted, blocks), b.maximum(items, 1))
        chunks = b.maximum(chunks, b.minimum(more, rows // size))
    return chunks


def _div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return x // y if isinstance(x, int) and isinstance(y, int) else b.index(x) // y
