"""Operands of small products in fast memory: 16 bytes of a line ("chunks") in an order in which no bank is asked twice.

All banks together hold 128 bytes, in which chunks change places by the number of the line, so that those lie in
different banks that threads read or write at once. All sizes are powers of two: of numbers that have no bit in common
the place of the sum is the exclusive or of their places, and most of it is known in advance.
"""

from __future__ import annotations

from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val

# Of a chunk, and chunks that all banks hold once.
BYTES = 16
ROUND = 8
# By what each bit of a line's number changes the places of chunks: of eight lines below each other a chunk lies in
# different banks; of two, those chunks that four threads read, neighbours or every second one.
BELOW = (5, 2, 4)
# The same for the numbers of lines as far apart as a chunk has elements: what vectors across lines are turned into. Of
# one, two and four such lines, as many neighbouring chunks besides as there are banks for.
APART = (4, 2, 1)


@frozen
class Layout:
    """How chunks lie. line: of how many chunks a line is. chunk: elements of one. turns: see `turns`."""

    line: int
    chunk: int
    turns: tuple[int, ...]

    def place(self, b: Builder, line: Scalar, chunk: Scalar) -> Scalar:
        """The number of a chunk's place."""
        place, together = line * self.line + chunk, _together(self.line)
        for bit, by in enumerate(self.turns):
            place = _xor(b, place, line // (together << bit) % 2 * by)
        return place


def turns(line: int, chunk: int, across: bool) -> tuple[int, ...]:
    """By what each bit of the number of 128 bytes changes places. across: lines are written to one below the other."""
    below = (chunk // _together(line)).bit_length() - 1
    return (*(*BELOW, *[0] * below)[:below], *APART) if across else BELOW


def _together(line: int) -> int:
    """How many lines lie in 128 bytes."""
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
        """Where an element of a chunk is, so many lines and chunks, of bits of their own, from one at a place."""
        b = self.buffer.b
        more = self.layout.place(b, line, chunk)
        assert isinstance(more, int)
        near = more % ROUND
        return _xor(b, place, near) * self.layout.chunk + inside + (more - near) * self.layout.chunk
