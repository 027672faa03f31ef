"""A tile of a dot as sums in the registers of a team's threads, one product after the other.

The threads stand in rows of `ACROSS`. Of the tile a thread has patches of PATCH x PATCH elements, as far apart as all
threads together reach, so that neighbours read and write neighbouring words of fast memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.device import Tile
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.val import Scalar, Val

ACROSS, PATCH = 16, 4
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
        self.b, self.dtype = b, dtype
        thread = b.thread_id()
        across, down = ACROSS * PATCH, tile.threads // ACROSS * PATCH
        self.rows = [thread // ACROSS * PATCH + i for i in range(0, tile.rows, down)]
        self.cols = [thread % ACROSS * PATCH + i for i in range(0, tile.cols, across)]
        self.depth = tile.depth

    def zeros(self) -> list[Val]:
        """Of each of the thread's rows its patches of columns."""
        zero = self.b.const(0, self.b.register_type(self.dtype), PATCH)
        return [zero] * (len(self.rows) * PATCH * len(self.cols))

    def add(self, sums: Sequence[Val], rows: FastMatrix, cols: FastMatrix) -> list[Val]:
        """The sums with the products of a block of K, whose matrices have a row for each k."""
        sums = list(sums)
        for k in range(self.depth):
            left = [self._load(rows, k, row) for row in self.rows]
            right = [self._load(cols, k, col) for col in self.cols]
            factors = [x for patch in left for x in self.b.lanes.elements(patch)]
            for i, x in enumerate(factors):
                for j, y in enumerate(right):
                    at = i * len(right) + j
                    sums[at] = self.b.fma(self.b.splat(x, PATCH), y, sums[at])
        return sums

    def _load(self, matrix: FastMatrix, k: int, col: Scalar) -> Val:
        return self.b.load(matrix.buffer, matrix.place(k, col), PATCH)

    def leave(self, sums: Sequence[Val], tile: FastMatrix) -> None:
        """Store the sums."""
        places = [tile.place(row + i, col) for row in self.rows for i in range(PATCH) for col in self.cols]
        for x, at in zip(sums, places, strict=True):
            self.b.store(x, tile.buffer, at)
