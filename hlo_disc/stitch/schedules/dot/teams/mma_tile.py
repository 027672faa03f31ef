"""A tile of a dot as sums of products of small matrices, each of which a warp makes in one instruction.

The warps of a part form rows, as those of the tile: each has a rectangle of the result, made of `Mma`s. `chunks.py` and
`mma_operands.py` have the layout of operands in fast memory, and their reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc import kernel_ops
from hlo_disc.device import Mma, Tile
from hlo_disc.mlir import ir, vector
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.matrix import apply
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import DotTypes, Place, Staging, at_once
from hlo_disc.stitch.schedules.dot.teams.chunks import ROUND, Chunks, Layout, turns
from hlo_disc.stitch.schedules.dot.teams.fma_tile import FastMatrix, leave_sums
from hlo_disc.stitch.schedules.dot.teams.mma_operands import ByParts, ByThreads, held_at


def mma_staging(types: DotTypes, mma: Mma) -> Staging:
    """Describe how operands are brought to fast memory for `MmaTile`, and how sums leave it."""
    held = mma.sums_held
    # A row further, sums are in the banks behind those that neighbouring threads write to.
    beside = 1 if held.below else mma.warp // held.lines
    pad = beside * held.run % (ROUND * at_once(types.sum))
    return Staging(types.row, at_once(types.row), ROUND, 0, pad, turned=not mma.by_parts)


class MmaTile:
    """Builds a thread's code for its part of a tile of sums. Implements the methods of `FmaTile`."""

    def __init__(self, b: Builder, tile: Tile, types: DotTypes, mma: Mma):
        self.b, self.tile, self.dtype, self.mma = b, tile, types.sum, mma
        self.itemsize = types.row.itemsize
        warps = tile.threads // tile.parts // mma.warp
        down = 1 << warps.bit_length() // 2 if warps > 1 else 1
        across = warps // down
        warp, self.lane = b.thread_id() // mma.warp, b.index(b.thread_id() % mma.warp)
        self.part: Scalar = warp // warps if tile.parts > 1 else 0
        place = b.index(warp % warps)
        self.size = tile.rows // down, tile.cols // across
        self.at = place // across * self.size[0], place % across * self.size[1]
        reader = ByParts if mma.by_parts else ByThreads
        self.reader = reader(b, mma, self.lane, types.row, self.part, tile.depth // tile.parts, self.at, self.size)

    def block(self, buffer: Val, at: Scalar, size: int, along_k: bool) -> Chunks:
        """Return the position of an operand's block in fast memory."""
        turned = not along_k and not self.mma.by_parts
        chunk = self.reader.chunk
        line = (self.tile.depth if along_k or turned else size) // chunk
        # A view of its own: of an address the rest is then the same for all blocks, in bytes too.
        b, element = self.b, ir.MemRefType(buffer.type).element_type
        buffer = b.view(b.fast(), at * self.itemsize, element, size * self.tile.depth)
        return Chunks(buffer, Layout(line, chunk, turns(line, chunk, turned)), along_k or turned, turned)

    def put(self, block: Chunks, xs: Sequence[Val], first: Place, more: tuple[int, int]) -> None:
        """See `FmaTile`."""
        b, chunk, (row, k), (row_more, k_more) = self.b, self.reader.chunk, first, more
        xs = [x if self.mma.exact else apply(b, kernel_ops.Tf32(), x) for x in xs]
        if not block.turned:
            line, number, others = row, k // chunk, (row_more, k_more // chunk)
            if not block.along_k:
                line, number, others = k, row // chunk, (k_more, row_more // chunk)
            b.store(xs[0], block.buffer, block.element(block.place(line, number), *others))
            return
        place, inside = block.place(row, k // chunk), k % chunk
        for j, elements in enumerate(zip(*map(b.simd.elements, xs), strict=True)):
            at = block.element(place, row_more + j, k_more // chunk, inside)
            b.store(self._joined(elements), block.buffer, at)

    def _joined(self, elements: Sequence[Val]) -> Val:
        """Join elements to a vector."""
        b, count = self.b, len(elements)
        type_ = b.vec(count, elements[0].element)
        return b.pure(lambda: vector.FromElementsOp(type_, [e.v for e in elements]).result, count, elements)

    def zeros(self) -> list[Val]:
        """Return zero sums: for each row of `Mma`s its columns."""
        rows, cols = self.size
        held = len(self.mma.sum_parts) * self.mma.sums_held.run
        zero = self.b.const(0, self.b.register_type(self.dtype), held)
        return [zero] * (rows // self.mma.rows * (cols // self.mma.cols))

    def add(self, sums: Sequence[Val], rows: Chunks, cols: Chunks) -> list[Val]:
        """Add the products of a block of K to the sums."""
        sums = list(sums)
        for left, right in self.reader.factors(rows, cols):
            for i, x in enumerate(left):
                for j, y in enumerate(right):
                    at = i * len(right) + j
                    sums[at] = apply(self.b, kernel_ops.Mma(self.mma.name), sums[at], x, y)
        return sums

    def leave(self, sums: Sequence[Val], matrix: FastMatrix) -> None:
        """Store the sums of all threads."""
        b, mma, (down, across) = self.b, self.mma, self.size
        line, first = held_at(b, mma.sums_held, mma.warp, self.lane)
        row, col, run = self.at[0] + line, self.at[1] + first, mma.sums_held.run
        corners = [(i, j) for i in range(0, down, mma.rows) for j in range(0, across, mma.cols)]
        pieces = []
        for x, (i, j) in zip(sums, corners, strict=True):
            for n, (r, c) in enumerate(mma.sum_parts):
                piece = b.simd.shuffle(x, x, range(n * run, (n + 1) * run))
                pieces.append((piece, row + (i + r), col + (j + c)))
        leave_sums(b, self.tile, self.part, pieces, matrix, at_once(self.dtype))
