"""Packing of the columns of a dot's operand: panels of `width` columns, one after another in memory.

    panel[k, c] = col[k, panel's first column + c]        for k < depth, c < width

A block does it in fast memory before it uses a panel; for a static operand it is done once and kept (`PanelPacking`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import DotTypes, Operand
from hlo_disc.stitch.schedules.dot.product import Axis, Product, position
from hlo_disc.stitch.schedules.dot.tiles.bf16_dot import copy_pairs, packed_depth, panel_depth
from hlo_disc.stitch.schedules.dot.tiles.micro_panels import copy_panel, run_panel, transpose_panel


class PanelPacker:
    """Packs micro-panels. Made before the kernel that uses it."""

    def __init__(self, b: Builder, inner: Sequence[Axis], col: Axis, types: DotTypes, lanes: int, vectors: int):
        self.b, self.inner, self.col, self.pairs = b, inner, col, types.pairs
        if col.col_stride == ONE or col.size == ONE:
            self.kind, self.pack = "copy", (copy_pairs if types.pairs else copy_panel)(b, types, lanes, vectors)
        elif inner[-1].col_stride == ONE:
            self.kind, self.pack = "transpose", transpose_panel(b, types, lanes, vectors)
        else:
            self.kind, self.pack = "gather", copy_panel(b, types, lanes, vectors, gathered=True)

    def block(self, sizes: Sizes, col: Operand, panel: Operand, depth: Scalar, count: Scalar) -> None:
        """Pack `depth` elements along the innermost K axis of the columns of `col`, `count` in all.

        panel: with the strides along K and from vector to vector.
        """
        step, stride = sizes(self.inner[-1].col_stride), sizes(self.col.col_stride)
        strides = {"copy": (step,), "transpose": (stride,), "gather": (stride, step)}[self.kind]
        self.pack(Operand(col.buffer, col.at, strides), panel, depth, count)

    def __call__(self, sizes: Sizes, col: Operand, panel: Operand, count: Scalar) -> None:
        """Pack a panel of the columns of `col`, of which `count` are left, over all of K."""
        *outer, last = self.inner
        depth, (along, _) = sizes(last.size), panel.strides
        block = sizes(panel_depth(self.pairs, last.size)) * along

        def nest(axes: Sequence[Axis], at: Scalar, rows: Scalar) -> None:
            if not axes:
                here = replace(panel, at=panel.at + rows * block)
                self.block(sizes, Operand(col.buffer, at), here, depth, count)
                return
            size = sizes(axes[0].size)
            inside = [sizes(axis.size) for axis in (*axes[1:], last)]
            with self.b.loop(0, self.b.turns(size, inside)) as loop:
                nest(axes[1:], at + loop.i * sizes(axes[0].col_stride), rows * size + loop.i)

        nest(outer, col.at, 0)


class WindowPacker:
    """Packs panels whose columns, or whose elements along K, have no one stride: the positions of windows.

    Columns that follow each other in memory are copied together. Where each k lies is listed before, when it must be.
    """

    def __init__(self, b: Builder, inner: Axis, col: Axis, types: DotTypes, lanes: int, vectors: int):
        self.b, self.inner, self.col = b, inner, col
        self.listed = bool(inner.digits)
        self.copy = run_panel(b, types, lanes, lanes * vectors, col.col_stride == ONE, self.listed)

    def list(self, sizes: Sizes, table: Val, first: Scalar, depth: Scalar) -> None:
        """List the positions of `depth` elements of K from `first` on."""
        b = self.b
        with b.loop(0, depth) as loop:
            at = position(self.inner, first + loop.i, "col", sizes)
            b.store(b.cast(arith.IndexCastOp, b.i64, b.index(at)), table, loop.i)

    def block(
        self, sizes: Sizes, col: Operand, first: Scalar, panel: Operand, table: Val, depth: Scalar, count: Scalar
    ) -> None:
        """Pack the columns from number `first` on, `count` in all; col: from column 0 and the block's first k on."""
        b, stride = self.b, sizes(self.col.col_stride)
        along = table if self.listed else sizes(self.inner.col_stride)
        length: Scalar = b.maximum(sizes(self.col.digits[-1].size), 1) if self.col.digits else first + count
        with b.loop(b.index(first) // length, b.ceil_div(first + count, length)) as run:
            lo, hi = b.maximum(first, run.i * length), b.minimum(first + count, (run.i + 1) * length)
            begin = Operand(col.buffer, col.at + position(self.col, lo, "col", sizes), (stride,))
            self.copy(begin, Operand(panel.buffer, lo - first), depth, hi - lo, along)


@frozen
class PanelPacking:
    """All panels of a static operand. `batch`: loops outside of the panels; `source` is in memory from `offset` on.

    The vectors of a panel lie one after another: a core that reads several lines side by side has more of them under
    way. Two of a Sapphire Rapids, which do 24 FMAs with 256 bytes, read 26 GB/s by four lines and 14 by one.
    """

    source: Value
    offset: int
    batch: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    col: Axis
    types: DotTypes
    lanes: int
    vectors: int

    @staticmethod
    def of(
        p: Product, source: Value, types: DotTypes, lanes: int, vectors: int, real: Callable[[Dim], Dim]
    ) -> PanelPacking:
        """Return a packing. source: the operand's memory, as the graph knows it. real: the number that a size is."""

        def axis(x: Axis) -> Axis:
            return Axis(real(x.size), ZERO, real(x.col_stride))

        batch = tuple(axis(p.axes[a]) for a in p.batch if p.axes[a].col_stride != ZERO)
        inner = tuple(map(axis, p.inner))
        types = types if types.pairs else DotTypes(types.sum, types.col, types.sum)
        return PanelPacking(source, real(p.cols.offset).value, batch, inner, axis(p.col_axis), types, lanes, vectors)

    def with_source(self, source: Value) -> PanelPacking:
        return replace(self, source=source)

    @property
    def name(self) -> str:
        return "pack"

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def panels(self) -> int:
        return -(-self.col.size.value // self.width)

    @property
    def panel(self) -> int:
        """Return the elements of a panel."""
        return packed_depth(self.types.pairs, self.inner).value * self.width

    @property
    def size(self) -> int:
        return (
            dim_product(x.size for x in self.batch).value * self.panels * self.panel * np.dtype(self.types.sum).itemsize
        )

    @cached_property
    def _open(self) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
        """The axes over arguments of the kernel, and what these are. 0 and 1 say how memory lies, and stay numbers."""
        numbers: list[int] = []

        def argument(d: Dim) -> Dim:
            if d.value in (0, 1):
                return d
            numbers.append(d.value)
            return Dim.symbol(f"%{len(numbers) - 1}")

        axes = [Axis(argument(x.size), ZERO, argument(x.col_stride)) for x in (*self.batch, *self.inner, self.col)]
        return tuple(axes), tuple(numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The sizes that the kernel takes."""
        return (self.offset, *self._open[1])

    def key(self) -> tuple[Hashable, ...]:
        return ("pack", self._open[0], len(self.batch), self.types, self.lanes, self.vectors)

    def build(self, b: Builder, name: str) -> None:
        """Build a block that fills one panel. Kernel arguments: source, target, offset, sizes."""
        axes, numbers = self._open
        batch, inner, col = axes[: len(self.batch)], axes[len(self.batch) : -1], axes[-1]
        pack = PanelPacker(b, inner, col, self.types, self.lanes, self.vectors)
        element = b.memory_type(self.types.sum)
        args = [(b.buffer_type(b.memory_type(self.types.col)), "r"), (b.buffer_type(element), "w")]
        args += [(b.index_type, "")] * (1 + len(numbers))
        with b.module.kernel(name, args, calls_only=True) as (source, target, offset, *symbols):
            sizes = Sizes(b, {f"%{i}": x for i, x in enumerate(symbols)}, ShapeFacts())
            block, panels = b.block_id(), b.ceil_div(sizes(col.size), self.width)
            first = block % panels * self.width
            at, rest = first * sizes(col.col_stride) + offset, block // panels
            for axis in reversed(batch):
                at = at + rest % sizes(axis.size) * sizes(axis.col_stride)
                rest = rest // sizes(axis.size)
            depth = sizes(packed_depth(self.types.pairs, inner))
            panel = Operand(target, block * (depth * self.width), (self.lanes, depth * self.lanes))
            pack(sizes, Operand(source, at), panel, b.index(sizes(col.size) - first))

    def launch(self, b: Builder, name: str, source: Val, target: Val) -> None:
        """Pack. target: a byte buffer of `size` bytes."""
        blocks = dim_product(x.size for x in self.batch).value * self.panels
        view = b.view(target, 0, b.memory_type(self.types.sum), self.size // np.dtype(self.types.sum).itemsize)
        b.launch(name, blocks, [source, view, *self.numbers])
