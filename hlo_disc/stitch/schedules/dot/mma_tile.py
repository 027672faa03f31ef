"""A tile of a dot as sums of products of small matrices, each of which a warp makes in one instruction.

The warps of a part stand in rows, as those of the tile: each has a rectangle of the result, made of `Mma`s. Operands
stay as memory has them, rows of neighbours along K or along the rows, or columns: parts are read turned, where needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.device import Mma, Tile
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.fma_tile import FastMatrix, leave_sums
from hlo_disc.stitch.schedules.dot.operand import DotTypes

WARP = 32
# Elements that are written, and lines of a part that are read, at once: 16 bytes. In fast memory they are a chunk.
CHUNK = 8


@dataclass(frozen=True)
class Chunks:
    """A matrix in fast memory, as lines of `width` elements, along K or across it.

    Chunks change places in each 128 bytes, by the number of the line: chunks of 8 lines below each other, and those of
    a line, then are in different banks.
    """

    buffer: Val
    at: Scalar
    width: int
    along_k: bool

    def place(self, line: Scalar, chunk: Scalar, below: int = 0) -> Scalar:
        """Where a chunk is of a line, or of the one so many below it, a multiple of 8."""
        chunks = self.width // CHUNK
        turn = line // max(CHUNK // chunks, 1) % min(chunks, CHUNK)
        b = self.buffer.b
        return self.at + ((line + below) * chunks + b.apply(arith.XOrIOp, b.index(chunk), b.index(turn))) * CHUNK


class MmaTile:
    """Builds what a thread does for its part of a tile of sums. Implements what `FmaTile` does."""

    # See there.
    VECTOR, NEXT, PAD, SUMS_PAD = CHUNK, CHUNK, 0, 8

    def __init__(self, b: Builder, tile: Tile, dtype: np.dtype, mma: Mma):
        self.b, self.tile, self.dtype, self.mma = b, tile, dtype, mma
        warps = tile.threads // tile.parts // WARP
        down = 1 << warps.bit_length() // 2 if warps > 1 else 1
        across = warps // down
        warp, self.lane = b.thread_id() // WARP, b.index(b.thread_id() % WARP)
        self.part: Scalar = warp // warps if tile.parts > 1 else 0
        place = b.index(warp % warps)
        self.size = tile.rows // down, tile.cols // across
        self.at = place // across * self.size[0], place % across * self.size[1]
        self.depth = tile.depth // tile.parts

    @staticmethod
    def staged(types: DotTypes) -> np.dtype:
        """What operands are in fast memory."""
        return types.row

    def block(self, buffer: Val, at: Scalar, size: int, along_k: bool) -> Chunks:
        """Where a block of an operand lies in fast memory."""
        return Chunks(buffer, at, self.tile.depth if along_k else size, along_k)

    def put(self, block: Chunks, x: Val, row: Scalar, k: Scalar) -> None:
        """Store neighbours of an operand."""
        line, first = (row, k) if block.along_k else (k, row)
        self.b.store(x, block.buffer, block.place(line, first // CHUNK))

    def zeros(self) -> list[Val]:
        """Of each row of `Mma`s its columns."""
        rows, cols = self.size
        held = len(self.mma.sum_parts) * 2
        zero = self.b.const(0, self.b.register_type(self.dtype), held)
        return [zero] * (rows // self.mma.rows * (cols // self.mma.cols))

    def add(self, sums: Sequence[Val], rows: Chunks, cols: Chunks) -> list[Val]:
        """The sums with the products of a block of K."""
        b, mma, (down, across) = self.b, self.mma, self.size
        sums, (row, col) = list(sums), self.at
        # What is read at once makes as many columns of `Mma`s side by side.
        beside = 4 // len(mma.col_parts)
        col_parts = [(c + i * mma.cols, k) for i in range(beside) for c, k in mma.col_parts]
        for k in range(0, self.depth, mma.depth):
            left = [self._read(rows, row, i, k, mma.row_parts) for i in range(0, down, mma.rows)]
            right = [self._read(cols, col, j, k, col_parts) for j in range(0, across, mma.cols * beside)]
            factors = [b.simd.shuffle(y, y, [2 * i, 2 * i + 1]) for y in right for i in range(beside)]
            for i, x in enumerate(left):
                for j, y in enumerate(factors):
                    at = i * len(factors) + j
                    sums[at] = b.mma(mma.name, sums[at], x, y)
        return sums

    def _read(self, block: Chunks, first: Scalar, row: int, k: int, parts: Sequence[tuple[int, int]]) -> Val:
        """Four parts of an operand, from row, or column, `first + row` and the part's `k` on.

        Each thread says where a line of one of them is.
        """
        b, number, below = self.b, self.lane // Mma.PART, self.lane % Mma.PART
        # Which of the four differ from the first in their row, and in their k.
        row_more, k_more = (self._chosen(number, [part[axis] // CHUNK for part in parts]) for axis in (0, 1))
        k_first = self.part * (self.depth // CHUNK)
        if block.along_k:
            at = block.place(first + row_more * CHUNK + below, k_first + k_more + k // CHUNK, row)
        else:
            line = (k_first + k_more) * CHUNK + below
            at = block.place(line, first // CHUNK + row_more + row // CHUNK, k)
        return b.parts(block.buffer, at, turned=not block.along_k)

    def _chosen(self, number: Val, values: Sequence[int]) -> Scalar:
        """`values[number]`, 0 or 1 as a bit of the number is."""
        for bit in range(2):
            if list(values) == [n >> bit & 1 for n in range(len(values))]:
                return number // (1 << bit) % 2
        raise AssertionError(f"parts at {values}")

    def leave(self, sums: Sequence[Val], matrix: FastMatrix) -> None:
        """Store the sums of all threads."""
        b, mma, (down, across), lane = self.b, self.mma, self.size, self.lane
        row, col = self.at[0] + lane // 4, self.at[1] + lane % 4 * 2
        corners = [(i, j) for i in range(0, down, mma.rows) for j in range(0, across, mma.cols)]
        pieces = []
        for x, (i, j) in zip(sums, corners, strict=True):
            for n, (r, c) in enumerate(mma.sum_parts):
                pieces.append((b.simd.shuffle(x, x, [2 * n, 2 * n + 1]), row + (i + r), col + (j + c)))
        leave_sums(b, self.tile, self.part, pieces, matrix)
