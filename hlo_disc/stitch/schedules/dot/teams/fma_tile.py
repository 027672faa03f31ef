"""A tile of a dot as sums in the registers of a team's threads, one product after the other.

The threads form rows of up to `ACROSS`. A thread has patches of PATCH x PATCH elements of the tile, as far apart as all
threads together reach, so that neighbours access neighbouring words of fast memory. If parts of the team share the
depth, each has sums of the whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.device import Tile
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import DotTypes, Place, Staging, at_once

ACROSS, PATCH = 16, 4
# Elements behind each row.
PAD = 4
# Of K in one turn of the innermost loop. The assembler writes more of them out.
STEPS = 4


@frozen
class FastMatrix:
    """A matrix in fast memory, `stride` elements from one row to the next."""

    buffer: Val
    at: Scalar
    stride: int

    def place(self, row: Scalar, col: Scalar) -> Scalar:
        """Return the position of an element in the buffer."""
        return self.at + row * self.stride + col


@frozen
class Block(FastMatrix):
    """A block of an operand, with a row for each k. along_k: neighbours in memory are those along K."""

    along_k: bool


def fma_staging(types: DotTypes) -> Staging:
    """Describe how operands are brought to fast memory for `FmaTile`, and how sums leave it."""
    return Staging(types.sum, vector=4, next=2, pad=PAD, sums_pad=PAD)


class FmaTile:
    """Builds a thread's code for its part of a tile of sums of `dtype`."""

    def __init__(self, b: Builder, tile: Tile, dtype: np.dtype):
        self.b, self.dtype, self.tile = b, dtype, tile
        threads = tile.threads // tile.parts
        thread = b.index(b.thread_id() % threads if tile.parts > 1 else b.thread_id())
        self.part: Scalar = b.thread_id() // threads if tile.parts > 1 else 0
        across = min(ACROSS, tile.cols // PATCH)
        self.rows = [thread // across * PATCH + i for i in range(0, tile.rows, threads // across * PATCH)]
        self.cols = [thread % across * PATCH + i for i in range(0, tile.cols, across * PATCH)]
        self.depth = tile.depth // tile.parts

    def block(self, buffer: Val, at: Scalar, size: int, along_k: bool) -> Block:
        """Return the position of an operand's block in fast memory."""
        return Block(buffer, at, size + PAD, along_k)

    def put(self, block: Block, xs: Sequence[Val], first: Place, more: tuple[int, int]) -> None:
        """Store neighbours of an operand that are as many rows and k as `more` says from the first place.

        xs: one vector; or, where they are turned on their way, some that follow one another along K.
        """
        (x,), (row, k) = xs, (first[0] + more[0], first[1] + more[1])
        if not block.along_k:
            self.b.store(x, block.buffer, block.place(k, row))
            return
        for i, element in enumerate(self.b.lanes.elements(x)):
            self.b.store(element, block.buffer, block.place(k + i, row))

    def zeros(self) -> list[Val]:
        """Return zero sums: for each of the thread's rows its patches of columns."""
        zero = self.b.const(0, self.b.register_type(self.dtype), PATCH)
        return [zero] * (len(self.rows) * PATCH * len(self.cols))

    def add(self, sums: Sequence[Val], rows: FastMatrix, cols: FastMatrix) -> list[Val]:
        """Add the products of a block of K to the sums; its matrices have a row for each k."""
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
        places = [(row + i, col) for row in self.rows for i in range(PATCH) for col in self.cols]
        pieces = [(x, *place) for x, place in zip(sums, places, strict=True)]
        leave_sums(self.b, self.tile, self.part, pieces, matrix, at_once(self.dtype))


def leave_sums(
    b: Builder, tile: Tile, part: Scalar, pieces: Sequence[tuple[Val, Scalar, Scalar]], matrix: FastMatrix, vector: int
) -> None:
    """Store a thread's sums of a part, each with its row and column; then the parts are added up, by vectors."""
    first = part * tile.rows
    b.barrier()
    for x, row, col in pieces:
        b.store(x, matrix.buffer, matrix.place(first + row, col))
    b.barrier()
    if tile.parts > 1:
        _add_parts(b, tile, matrix, vector)
        b.barrier()


def _add_parts(b: Builder, tile: Tile, matrix: FastMatrix, vector: int) -> None:
    """Add the sums of the other parts to those of the first."""
    with b.loop(b.thread_id(), tile.rows * tile.cols // vector, tile.threads) as loop:
        row, col = loop.i // (tile.cols // vector), loop.i % (tile.cols // vector) * vector
        places = [matrix.place(row + part * tile.rows, col) for part in range(tile.parts)]
        parts = [b.load(matrix.buffer, at, vector) for at in places]
        while len(parts) > 1:
            parts = [b.binary("+", x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        b.store(parts[0], matrix.buffer, matrix.place(row, col))
