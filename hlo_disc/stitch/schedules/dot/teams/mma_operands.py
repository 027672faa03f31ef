"""Reads of small products' operands from fast memory, by the threads of a warp.

`ByParts`: by instructions for that, which read parts of matrices, and turn them where they lie the other way.
`ByThreads`: each thread reads what it multiplies, whole chunks along K, to which operands were turned on their way to
fast memory. What is k to the instruction is any order of K that both operands have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hlo_disc.device import Held, Mma
from hlo_disc.kernel_ops import Parts
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.matrix import address, apply
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import at_once
from hlo_disc.stitch.schedules.dot.teams.chunks import ROUND, Chunks

# The operands of a step: of a warp's rows, and of its columns.
Factors = tuple[list[Val], list[Val]]


def held_at(b: Builder, held: Held, warp: int, lane: Val) -> tuple[Val, Val]:
    """Return the line of which a thread has elements, and the first of them."""
    across = warp // held.lines
    line, number = (lane % held.lines, lane // held.lines) if held.below else (lane // across, lane % across)
    return b.index(line), b.index(number * held.run)


class Reader:
    """Reads for a warp: of the tile `size` rows and columns from `at` on, of each block of K the part's `depth`."""

    def __init__(
        self, b: Builder, mma: Mma, lane: Val, dtype: np.dtype, part: Scalar, depth: int, at: tuple[Scalar, Scalar],
        size: tuple[int, int],
    ):  # fmt: skip
        self.b, self.mma, self.lane, self.dtype, self.part, self.depth = b, mma, lane, dtype, part, depth
        self.at, self.size, self.chunk = at, size, at_once(dtype)


class ByParts(Reader):
    """Reads elements of 16 bits by instructions that read parts: a part is a square of a chunk's elements."""

    def factors(self, rows: Chunks, cols: Chunks) -> Iterator[Factors]:
        """Yield the operands of one step after the other."""
        b, mma, (row, col), (down, across) = self.b, self.mma, self.at, self.size
        # What is read at once makes as many columns of `Mma`s side by side.
        beside = 4 // len(mma.col_parts)
        col_parts = [(c + i * mma.cols, k) for i in range(beside) for c, k in mma.col_parts]
        row, col = self._first(rows, row, mma.row_parts), self._first(cols, col, col_parts)
        for k in range(0, self.depth, mma.depth):
            left = [self._read(rows, row, i, k) for i in range(0, down, mma.rows)]
            right = [self._read(cols, col, j, k) for j in range(0, across, mma.cols * beside)]
            yield left, [b.simd.shuffle(y, y, [2 * i, 2 * i + 1]) for y in right for i in range(beside)]

    def _first(self, block: Chunks, first: Scalar, parts: Sequence[tuple[int, int]]) -> Scalar:
        """Return the position of a line of the first four parts, a different one for each thread."""
        chunk, number, below = self.chunk, self.lane // self.chunk, self.lane % self.chunk
        # Which of the four differ from the first in their row, and in their k.
        row_more, k_more = (self._chosen(number, [part[axis] // chunk for part in parts]) for axis in (0, 1))
        k_first = self.part * (self.depth // chunk)
        if block.along_k:
            return block.place(first + row_more * chunk + below, k_first + k_more)
        return block.place((k_first + k_more) * chunk + below, first // chunk + row_more)

    def _read(self, block: Chunks, place: Scalar, row: int, k: int) -> Val:
        """Read four parts of an operand, so many rows, or columns, and k from the first ones."""
        more = (row, k // self.chunk) if block.along_k else (k, row // self.chunk)
        where = address(self.b, block.buffer, block.element(place, *more), 1)
        return apply(self.b, Parts(turned=not block.along_k), *where)

    def _chosen(self, number: Val, values: Sequence[int]) -> Scalar:
        """Return `values[number]`, each 0 or 1, as the bit of the number that it equals."""
        for bit in range(2):
            if list(values) == [n >> bit & 1 for n in range(len(values))]:
                return number // (1 << bit) % 2
        raise AssertionError(f"parts at {values}")


class ByThreads(Reader):
    """Reads chunks along K, divided among the threads of a line of a part.

    Each of `across` threads has as many chunks of neighbours as fit into ROUND, then the next thread.
    Chunks of neighbours are read one after the other, each for as many steps as it has elements for.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        held = self.mma.held
        self.across = self.mma.warp // held.lines
        self.line, first = held_at(self.b, held, self.mma.warp, self.lane)
        self.beside = max(min(self.depth // self.chunk, ROUND) // self.across, 1)
        self.first = self.part * (self.depth // self.chunk) + first // held.run * self.beside
        self.ks = sorted({k for _, k in self.mma.col_parts})
        # A thread's neighbours in a part, as words of 32 bits, or of 64.
        self.words = held.run * self.dtype.itemsize // max(self.dtype.itemsize, 4)

    def factors(self, rows: Chunks, cols: Chunks) -> Iterator[Factors]:
        """See `ByParts`."""
        mma, chunks = self.mma, self.depth // self.chunk
        sides = [
            (block, block.place(at + self.line, self.first), range(0, size, step), parts)
            for block, at, size, step, parts in zip(
                (rows, cols), self.at, self.size, (mma.rows, mma.cols), (mma.row_parts, mma.col_parts), strict=True
            )
        ]
        for number in range(chunks // self.across):
            more = number // self.beside * self.beside * self.across + number % self.beside
            left, right = (
                [[self._read(block, place, i + line, more) for line in _lines(parts)] for i in starts]
                for block, place, starts, parts in sides
            )
            for step in range(self.chunk // (mma.held.run * len(self.ks))):
                xs = [self._fragment(x, step, mma.row_parts) for x in left]
                yield xs, [self._fragment(y, step, mma.col_parts) for y in right]

    def _fragment(self, lines: Sequence[Val], step: int, parts: Sequence[tuple[int, int]]) -> Val:
        """Return a step's operand from a thread's chunks of the lines of its parts."""
        words: list[int] = []
        for line, k in parts:
            at = (step * len(self.ks) + self.ks.index(k)) * self.words
            words += [_lines(parts).index(line) * lines[0].lanes + at + n for n in range(self.words)]
        return self.b.simd.shuffle(lines[0], lines[-1], words)

    def _read(self, block: Chunks, place: Scalar, row: int, more: int) -> Val:
        """Read a chunk of the thread: so many rows, or columns, and chunks along K from its first one."""
        b, chunk = self.b, self.chunk
        x = b.load(block.buffer, block.element(place, row, more), chunk)
        return x if self.dtype.itemsize > 4 else b.reinterpret(x, b.i32, chunk * self.dtype.itemsize // 4)


def _lines(parts: Sequence[tuple[int, int]]) -> list[int]:
    """Return the lines in which parts begin."""
    return sorted({line for line, _ in parts})
