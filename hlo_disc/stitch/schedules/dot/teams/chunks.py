"""Operands of small products in fast memory: 16 bytes of a line ("chunks") in an order without bank conflicts.

All banks together hold 128 bytes. Within them, chunks are permuted by the number of the line, so that chunks that
threads access at once lie in different banks. All sizes are powers of two. The position of a sum of numbers without
common bits is the exclusive or of their positions, and most of it is known in advance.
"""

from __future__ import annotations

from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val

# Chunks that all banks hold once.
ROUND = 8
# By what each bit of a line's number changes the places of chunks: of eight lines below each other a chunk lies in
# different banks; of two, those chunks that four threads read, neighbours or every second one.
BELOW = (5, 2, 4)
# The same for the numbers of lines as far apart as a chunk has elements: what vectors across lines are turned into. Of
# one, two and four such lines, as many neighbouring chunks besides as there are banks for.
APART = (4, 2, 1)


@frozen
class Layout:
    """The order of chunks. line: chunks of a line. chunk: elements of one. turns: see `turns`."""

    line: int
    chunk: int
    turns: tuple[int, ...]

    def place(self, b: Builder, line: Scalar, chunk: Scalar) -> Scalar:
        """Return the position of a chunk."""
        place, together = line * self.line + chunk, _together(self.line)
        for bit, by in enumerate(self.turns):
            place = _xor(b, place, line // (together << bit) % 2 * by)
        return place


def turns(line: int, chunk: int, across: bool) -> tuple[int, ...]:
    """Return how each bit of the number of 128 bytes permutes chunks. across: lines are written one below the other."""
    below = (chunk // _together(line)).bit_length() - 1
    return (*(*BELOW, *[0] * below)[:below], *APART) if across else BELOW


def _together(line: int) -> int:
    """Return how many lines lie in 128 bytes."""
    return max(ROUND // line, 1)


def _xor(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    if isinstance(x, int) and isinstance(y, int):
        return x ^ y
    return x if isinstance(y, int) and y == 0 else b.apply(arith.XOrIOp, b.index(x), b.index(y))


@frozen
class Chunks:
    """A matrix in fast memory. along_k: whether its lines are along K; turned: memory has it the other way."""

    buffer: Val
    layout: Layout
    along_k: bool
    turned: bool = False

    def place(self, line: Scalar, chunk: Scalar) -> Scalar:
        """See `Layout`."""
        return self.layout.place(self.buffer.b, line, chunk)

    def element(self, place: Scalar, line: int = 0, chunk: int = 0, inside: Scalar = 0) -> Scalar:
        """Return the position of an element of a chunk, so many lines and chunks, of bits of their own, from a
        position."""
        b = self.buffer.b
        more = self.layout.place(b, line, chunk)
        assert isinstance(more, int)
        near = more % ROUND
        return _xor(b, place, near) * self.layout.chunk + inside + (more - near) * self.layout.chunk
