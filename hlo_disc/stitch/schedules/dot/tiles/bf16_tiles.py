"""The inner loop of bf16 matrix multiplication where the machine has registers of small matrices.

Of eight registers each has 16 lines of 64 bytes: sums are 16 x 16 of f32, rows 16 x 32 of bf16 along K, and columns 16
pairs of K x 16, as panels hold them (`bf16_dot.py`). One instruction adds the product of rows and columns to sums:

    sums 0 to 3 of two by two blocks; rows 4 and 5, columns 6 and 7

Four sums are apart, so that the instruction need not wait for itself; where there is one block of rows or of columns
memory is what it waits for. Actions are those of `kernel_ops.TileAction`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hlo_disc.kernel_ops import TileConfig, TileDot, TileLoad, TileRelease, TileStore, TileZero
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.matrix import act, address
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import Call, DotTypes, KAxis, Operand, k_axis, matrix, routine, scalar

# Lines of a register; words of 4 bytes of a line, f32 or pairs of bf16; elements of K of a line.
LINES, WORDS, DEPTH = 16, 16, 32
# Rows of a tile, and its vectors of columns.
ROWS, VECTORS = 2 * LINES, 2
_WORD, _BF16 = 4, 2
_FIRST_ROWS, _FIRST_COLUMNS = 4, 6


def rest_elements(vectors: int) -> int:
    """Words of fast memory for the end of K: a tile's rows, and its columns."""
    return (ROWS + LINES * vectors) * WORDS


def register_tile(b: Builder, types: DotTypes, vectors: int, packed: bool = False) -> Call:
    """sums[r, c] = sum over k of row[r, k] * panel[k, c], for up to ROWS rows of a tile of `vectors` of columns.

    The registers must be as `tiles_of_registers` makes them for so many rows.

    (row with the stride of a row, contiguous along K; panel of pairs, if packed with the stride from vector
    to vector; sums with the stride of a row; the K axis; 0, or 1 to add to what is in sums; the number of rows;
    `rest_elements` in fast memory)
    """
    operands = [matrix(b, types.row, 1), matrix(b, types.sum, packed), matrix(b, types.sum, 1), k_axis(b)]
    operands += [scalar(b), scalar(b), matrix(b, types.sum)]

    def body(row: Operand, panel: Operand, sums: Operand, axis: KAxis, done: Val, rows: Val, rest: Operand) -> None:
        whole, left = axis.size // DEPTH, axis.size % DEPTH
        has_rest = b.compare("!=", left, 0)
        row_rest = Operand(b.retyped(rest.buffer, b.memory_type(types.row)), rest.at * 2, (DEPTH,))
        panel_rest = Operand(rest.buffer, rest.at + ROWS * WORDS, (LINES * WORDS,))
        step = axis.col_stride
        columns = Operand(panel.buffer, panel.at, panel.strides or (WORDS,))

        def copy_rest() -> None:
            to = row_rest, panel_rest
            _copy_rest(b, b.memory_type(types.sum), vectors, rows, (row, columns), to, step, (whole, left))

        def blocks(high: int) -> None:
            """Compute the sums over K of so many blocks of rows."""
            (stride,) = sums.strides
            bytes_ = b.wide(stride * _WORD)
            places = {2 * r + c: (r, c) for r in range(high) for c in range(vectors)}

            def at(r: int, c: int) -> tuple[Val, Val]:
                return address(b, sums.buffer, sums.at + stride * (r * LINES) + c * WORDS, _WORD)

            def clear() -> None:
                for number in places:
                    act(TileZero(number))

            def take() -> None:
                for number, place in places.items():
                    act(TileLoad(number), *at(*place), bytes_)

            b.if_(b.compare("==", done, 0), clear, take)
            with b.loop(0, whole) as loop:
                x = Operand(row.buffer, row.at + loop.i * DEPTH, row.strides)
                y = replace(columns, at=panel.at + loop.i * LINES * step)
                _add_products(b, high, vectors, x, y, step)
            b.if_(has_rest, lambda: _add_products(b, high, vectors, row_rest, panel_rest, WORDS))
            for number, place in places.items():
                act(TileStore(number), *at(*place), bytes_)

        b.if_(has_rest, copy_rest)
        b.if_(b.compare(">", rows, LINES), partial(blocks, 2), partial(blocks, 1))

    return routine(b, ("register tile", types, vectors, packed), f"register_tile{vectors}_", operands, body)


def _copy_rest(
    b: Builder,
    word: ir.Type,
    vectors: int,
    rows: Val,
    operands: tuple[Operand, Operand],
    rest: tuple[Operand, Operand],
    step: Scalar,
    axis: tuple[Scalar, Scalar],
) -> None:
    """Copy the end of K to fast memory: what is beside it belongs to other rows, and may be NaN.

    operands, rest: of rows and of columns, whose lines are `step` apart. axis: K in whole lines, and what is left.
    """
    (row, columns), (row_rest, panel_rest), (whole, left) = operands, rest, axis
    mask, at = b.lanes.first(left, DEPTH), whole * DEPTH
    with b.loop(0, rows) as loop:
        x = b.load(row.buffer, row.at + loop.i * row.strides[0] + at, DEPTH, mask)
        b.store(x, row_rest.buffer, row_rest.at + loop.i * DEPTH)
    pairs, first = b.ceil_div(left, 2), columns.at + whole * LINES * step
    for j in range(vectors):
        to = panel_rest.at + j * LINES * WORDS
        with b.loop(0, pairs) as loop:
            y = b.load(columns.buffer, first + loop.i * step + columns.strides[0] * j, WORDS)
            b.store(y, panel_rest.buffer, to + loop.i * WORDS)
        with b.loop(pairs, LINES) as loop:
            b.store(b.const(0, word, WORDS), panel_rest.buffer, to + loop.i * WORDS)


def _add_products(b: Builder, high: int, vectors: int, x: Operand, y: Operand, y_stride: Scalar) -> None:
    """Add the products of `high` blocks of rows and `vectors` of columns to the sums."""
    (x_stride,), (y_vector,) = x.strides, y.strides
    x_bytes, y_bytes = b.wide(x_stride * _BF16), b.wide(y_stride * _WORD)
    for r in range(high):
        where = address(b, x.buffer, x.at + x_stride * (r * LINES), _BF16)
        act(TileLoad(_FIRST_ROWS + r), *where, x_bytes)
    for c in range(vectors):
        where = address(b, y.buffer, y.at + y_vector * c, _WORD)
        act(TileLoad(_FIRST_COLUMNS + c), *where, y_bytes)
    for r, c in itertools.product(range(high), range(vectors)):
        act(TileDot(2 * r + c, _FIRST_ROWS + r, _FIRST_COLUMNS + c))


def tiles_of_registers(b: Builder, first: Scalar, end: Scalar, tile: Callable[[Scalar, Scalar], None]) -> None:
    """Call `tile` for the rows from `first` on, with the first one and how many; the registers are ready for it."""
    whole = end - (end - first) % ROWS

    def rest() -> None:
        _configure(b, end - whole)
        tile(whole, end - whole)

    _configure(b, ROWS)
    with b.loop(first, whole, ROWS) as loop:
        tile(loop.i, ROWS)
    b.if_(b.compare("<", b.index(whole), end), rest)
    act(TileRelease())


def _configure(b: Builder, rows: Scalar) -> None:
    """Configure the registers for tiles of so many rows, of two blocks or one."""

    def word(full: Sequence[int], partly: Sequence[int], count: Scalar) -> Val:
        """Return the configuration word: LINES for some registers, `count` for others."""
        return b.index(count * _bytes(partly) + LINES * _bytes(full))

    both = word((0, 1, 4, 6, 7), (2, 3, 5), rows - LINES)
    alone = word((6, 7), (0, 1, 2, 3, 4, 5), rows)
    act(TileConfig(), b.wide(b.select(b.compare(">", b.index(rows), LINES), both, alone)))


def _bytes(registers: Sequence[int]) -> int:
    """Return a 1 in each of these bytes."""
    return sum(1 << 8 * i for i in registers)
