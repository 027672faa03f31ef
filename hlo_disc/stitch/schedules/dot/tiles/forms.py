"""The variants of a dot that read columns in place, or packed: one class for each, and one for its kernel."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.frozen import frozen
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import Operand, Rows
from hlo_disc.stitch.schedules.dot.tiles.bf16_dot import packed_depth, pair_inner
from hlo_disc.stitch.schedules.dot.tiles.kernel import TileKernel, panel_steps
from hlo_disc.stitch.schedules.dot.tiles.microkernel import inner_tile
from hlo_disc.stitch.schedules.dot.variant import DotVariant


class PackedKernel(TileKernel):
    """The kernel whose tiles read the micro-panels of a packed operand."""

    def prepare(self) -> None:
        self.make_tiles(len(self.p.inner))

    def open(self, sizes: Sizes, buffers: Sequence[Val], *more: Scalar) -> None:
        super().open(sizes, buffers)
        self.packed = buffers[-1]

    def take_panel(self, number: Scalar, panels: Scalar) -> None:
        depth = self.sizes(packed_depth(self.v.types.pairs, self.p.inner))
        self.k_steps = panel_steps(self.p, self.sizes, self.v.lanes)
        panel = number % panels
        for i, a in reversed(list(zip(self.batch, self.p.batch, strict=True))):
            if self.p.axes[a].col_stride is not ZERO:
                panel = panel + i * panels
                panels = panels * self.sizes(self.p.axes[a].size)
        self.panel = Operand(self.packed, panel * (depth * self.v.width), (depth * self.v.lanes,))

    def sum(self, where: Operand | Rows, rows: Scalar, sums: Operand, masked: bool = False) -> None:
        self.multiply(rows, where, self.panel, sums, self.walk(), 0)


@frozen
class PackedDot(DotVariant):
    """The variant for a static operand, packed once: its packed form is an extra buffer."""

    form = "packed"
    kernel = PackedKernel
    packed = True

    def more(self, b: Builder) -> list[tuple[ir.Type, str]]:
        return [(b.buffer_type(b.memory_type(self.types.sum)), "r")]

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        *buffers, packed = buffers
        view = b.view(packed, 0, b.memory_type(self.types.sum), 1)
        super().launch(b, sizes, kernel, [*buffers, view], symbols)


class StreamKernel(TileKernel):
    """The kernel whose tiles read columns in place, the last ones masked."""

    def prepare(self) -> None:
        self.make_tiles(len(self.p.inner), (False, True))

    def leave_sums(self, where: Operand | Rows, rows: Scalar, full: Val) -> None:
        sums = Operand(self.sums, 0, (self.v.width,))
        self.b.if_(full, lambda: self.sum(where, rows, sums), lambda: self.sum(where, rows, sums, masked=True))

    def sum(self, where: Operand | Rows, rows: Scalar, sums: Operand, masked: bool = False) -> None:
        self.multiply(rows, where, self.panel, sums, self.walk(), 0, self.count if masked else None)


class OneRow(DotVariant):
    """The base of variants whose tiles have one row."""

    @property
    def steps(self) -> tuple[int, ...]:
        return (1,)


@frozen
class StreamDot(OneRow):
    """The variant for one row, in wide tiles."""

    form = "stream"
    kernel = StreamKernel


class InnerKernel(TileKernel):
    """The kernel whose lanes run along K."""

    writes_tiles = False

    def prepare(self) -> None:
        b, v, p = self.b, self.v, self.p
        columns = _columns(p.col_axis.size, v.lanes)
        if v.types.pairs:
            self.inner = pair_inner(b, v.types, v.lanes, columns)
        else:
            self.inner = inner_tile(b, v.types, v.lanes, columns, p.inner[0].row_stride is ONE)

    def sum(self, where: Operand | Rows, rows: Scalar, sums: Operand, masked: bool = False) -> None:
        b, p, sizes = self.b, self.p, self.sizes
        start = where.at if isinstance(where, Operand) else where.starts[0]
        row = Operand(self.rows, start, (sizes(p.inner[0].row_stride),))
        col_stride, last, size = sizes(p.col_axis.col_stride), self.count - 1, sizes(p.inner[0].size)
        with b.loop(0, b.minimum(self.count, self.v.width), self.v.lanes) as loop:
            col = Operand(self.cols, self.col_at + loop.i * col_stride, (col_stride,))
            self.inner(row, col, last - loop.i, Operand(sums.buffer, loop.i), size)


@frozen
class InnerDot(OneRow):
    """The variant for few rows, with columns that are contiguous along K."""

    form = "inner"
    kernel = InnerKernel


@frozen
class NarrowDot(InnerDot):
    """The variant for few columns, with rows contiguous along K: `InnerDot` with rows and columns exchanged."""

    form = "narrow"


def _columns(size: Dim, lanes: int) -> int:
    """Return the columns that one call of the inner tile computes: a power of two, fewer if there never are more."""
    columns = lanes
    while size.is_const and columns >= 2 * max(size.value, 1):
        columns //= 2
    return columns
