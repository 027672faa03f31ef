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

from hlo_disc.dynamic_hlo.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.device import Device
from hlo_disc.stitch.epilogue import Epilogue, is_plain
from hlo_disc.stitch.group import Group
from hlo_disc.stitch.microkernel import Types, inner_tile, outer_tile
from hlo_disc.stitch.pack import Filler, PanelPacking, panel_elements
from hlo_disc.stitch.product import Product, product
from hlo_disc.stitch.strided import ONE, row_major
from hlo_disc.stitch.variant import Choice

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
        wanted = b.maximum(b.minimum(_div(cost * items, self.device.grain_flops), MOST_BLOCKS), 1)
        per = b.maximum(_div(items, wanted), 1)
        chunks = b.ceil_div(b.minimum(wanted, ENOUGH_BLOCKS), b.maximum(items, 1))
        chunks = b.maximum(b.minimum(chunks, _div(rows, LEAST_ROWS)), 1)
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
        with b.kernel(name, args) as values:
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
        made = group.outputs[0]
        ops_read = {x for op in group.ops for x in op.operands}
        del ops_read
        self.output = memory[made]
        self.memory = [memory[x] for x in v.epilogue_inputs] + [self.output]
        self.packed = buffers[-1] if v.form == "packed" else None
        fast = b.fast()
        element = b.memory_type(v.types.sum)
        self.sums = b.generic(b.view(fast, 0, element, v.device.tile_rows * v.width))
        self.panel: Val | None = None
        if v.form == "copied":
            count = sizes(panel_elements(p, v.lanes, v.width))
            self.panel = b.generic(b.view(fast, v.sums_bytes, element, count))
