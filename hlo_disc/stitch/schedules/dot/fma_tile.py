"""A tile of a dot as sums in the registers of a team's threads, one product after the other.

The threads stand in rows of up to `ACROSS`. Of the tile a thread has patches of PATCH x PATCH elements, as far apart as
all threads together reach, so that neighbours read and write neighbouring words of fast memory. Where parts of the team
share the depth, each has sums of the whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.device import Tile
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.val import Scalar, Val

ACROSS, PATCH = 16, 4
# Of K in one turn of the innermost loop. The assembler writes more of them out.
STEPS = 4
# Elements behind each row of fast memory: neighbours that are written one below the other lie in other banks.
PAD = 4


@dataclass(frozen=True)
class FastMatrix:
    """A matrix in fast memory, `stride` elements from one row to the next."""

    buffer: Val
    at: Scalar
    stride: int

    def place(self, row: Scalar, col: Scalar) -> Scalar:
        """Where an element is in the buffer."""
        return self.at + row * self.stride + col


class FmaTile:
    """Builds what a thread does for its part of a tile of sums of `dtype`."""

    def __init__(self, b: Builder, tile: Tile, dtype: np.dtype):
        self.b, self.dtype, self.tile = b, dtype, tile
        threads = tile.threads // tile.parts
        thread = b.index(b.thread_id() % threads if tile.parts > 1 else b.thread_id())
        self.part: Scalar = b.thread_id() // threads if tile.parts > 1 else 0
        across = min(ACROSS, tile.cols // PATCH)
        self.rows = [thread // across * PATCH + i for i in range(0, tile.rows, threads // across * PATCH)]
        self.cols = [thread % across * PATCH + i for i in range(0, tile.cols, across * PATCH)]
        self.depth = tile.depth // tile.parts

    def zeros(self) -> list[Val]:
        """Of each of the thread's rows its patches of columns."""
        zero = self.b.const(0, self.b.register_type(self.dtype), PATCH)
        return [zero] * (len(self.rows) * PATCH * len(self.cols))

    def add(self, sums: Sequence[Val], rows: FastMatrix, cols: FastMatrix) -> list[Val]:
        """The sums with the products of a block of K, whose matrices have a row for each k."""
        b, first = self.b, self.part * self.depth
        with b.loop(0, self.depth, STEPS, sums) as loop:
            sums = list(loop.args)
            for k in range(STEPS):
                left = [self._load(rows, first + loop.i + k, row) for row in self.rows]
                right = [self._load(cols, first + loop.i + k, col) for col in self.cols]
                factors = [x for patch in left for x in b.lanes.elements(patch)]
                for i, x in enumerate(factors):
                    for j, y in enumerate(right):
                        at = i * len(right) + j
                        sums[at] = b.fma(b.splat(x, PATCH), y, sums[at])
            loop.yield_(*sums)
        return loop.results

    def _load(self, matrix: FastMatrix, k: Scalar, col: Scalar) -> Val:
        return self.b.load(matrix.buffer, matrix.place(k, col), PATCH)

    def leave(self, sums: Sequence[Val], matrix: FastMatrix) -> None:
        """Store the sums of all threads."""
        b, tile = self.b, self.tile
        first = self.part * tile.rows
        places = [matrix.place(first + row + i, col) for row in self.rows for i in range(PATCH) for col in self.cols]
        b.barrier()
        for x, at in zip(sums, places, strict=True):
            b.store(x, matrix.buffer, at)
        b.barrier()
        if tile.parts > 1:
            self._add_parts(matrix)
            b.barrier()

    def _add_parts(self, matrix: FastMatrix) -> None:
        """To the sums of the first part those of the others."""
        b, tile = self.b, self.tile
        with b.loop(b.thread_id(), tile.rows * tile.cols // PATCH, tile.threads) as loop:
            row, col = loop.i // (tile.cols // PATCH), loop.i % (tile.cols // PATCH) * PATCH
            parts = [self._load(matrix, row + part * tile.rows, col) for part in range(tile.parts)]
            while len(parts) > 1:
                parts = [b.binary("+", x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            b.store(parts[0], matrix.buffer, matrix.place(row, col))
