"""Operands of small products in fast memory: as memory has them, 16 bytes of a line ("chunks") in an order in which no
bank is asked twice.

Lines are along K, or across it. Chunks of 128 bytes change places by the number of the line, so that those lie in
different banks that threads read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.val import Scalar, Val

# Of a chunk, and chunks that all banks hold once.
BYTES = 16
ROUND = 8


@dataclass(frozen=True)
class Turns:
    """By how many places chunks are turned: line // every % count * by, whose bits are changed in a chunk's place."""

    every: int
    count: int
    by: int = 1


@dataclass(frozen=True)
class Chunks:
    """A matrix in fast memory, as lines of `width` elements, `chunk` of which are a chunk."""

    buffer: Val
    at: Scalar
    width: int
    chunk: int
    along_k: bool
    turns: Turns

    def place(self, line: Scalar, chunk: Scalar, below: int = 0, inside: Scalar = 0) -> Scalar:
        """Where an element of a chunk is, of a line or of the one so many below it that is turned as far."""
        b, chunks = self.buffer.b, self.width // self.chunk
        near = below % max(ROUND // chunks, 1)  # lines that share 128 bytes
        turn = b.index(line // self.turns.every % self.turns.count * self.turns.by)
        place = b.apply(arith.XOrIOp, b.index((line + near) * chunks + chunk), turn)
        return self.at + place * self.chunk + inside + (below - near) * self.width


def by_lines(chunks: int) -> Turns:
    """For lines of so many chunks: those of ROUND lines below each other are in different banks."""
    return Turns(max(ROUND // chunks, 1), min(chunks, ROUND))
