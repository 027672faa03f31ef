"""Copies of a tile's columns, or rows, to contiguous memory: the device functions that pack micro-panels.

    panel[k, j, c] = col[k, j*lanes + c]        for k < size of K, j < vectors, c < lanes

A micro-panel holds the columns of one tile; what is behind the last column is zero. It has strides along K and from
vector to vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import Call, DotTypes, Operand, gather, load, matrix, routine, scalar

N = TypeVar("N", Scalar, Dim)


def copy_panel(b: Builder, types: DotTypes, lanes: int, vectors: int, gathered: bool = False) -> Call:
    """Pack a column operand that is contiguous along its columns, or has any stride there.

    (col with the stride of a column, if gathered, and along K; panel; size of K; number of columns)
    """
    parameters = [matrix(b, types.col, 1 + gathered), matrix(b, types.sum, 2), scalar(b), scalar(b)]

    def body(col: Operand, panel: Operand, size: Val, count: Val) -> None:
        (*of_column, step), (along, vector) = col.strides, panel.strides
        stride: Scalar = of_column[0] if gathered else 1
        offsets = b.binary("*", b.lanes.numbers(lanes), stride) if gathered else None
        masks = [b.lanes.first(count - j * lanes, lanes) for j in range(vectors)]
        with b.loop(0, size, 1, [b.index(col.at), b.index(panel.at)]) as loop:
            x, y = loop.args
            for j, mask in enumerate(masks):
                at = x + stride * (j * lanes)
                if offsets is None:
                    found = load(b, types.col, types.sum, col.buffer, at, lanes, mask)
                else:
                    found = gather(b, types.col, types.sum, col.buffer, at, offsets, mask)
                b.store(found, panel.buffer, y + vector * j)
            loop.yield_(x + step, y + along)

    name = "gather" if gathered else "copy"
    return routine(b, (name, types, lanes, vectors), f"{name}{vectors}_", parameters, body)


def copy_rows(b: Builder, types: DotTypes, lanes: int, vectors: int) -> Call:
    """panels[j, k, c] = row[k, j*vectors*lanes + c] for a row operand whose rows lie together, in one sweep.

    (row with the stride along K; panels; size of K; number of rows). What is behind the last row is zero.
    """
    parameters = [matrix(b, types.row, 1), matrix(b, types.sum), scalar(b), scalar(b)]

    def body(row: Operand, panels: Operand, size: Val, count: Val) -> None:
        (step,) = row.strides
        width = vectors * lanes
        whole, panel_size = count - count % width, row_panel_elements(size, lanes, vectors)
        masks = [b.lanes.first(count - whole - j * lanes, lanes) for j in range(vectors)]

        def copy(x: Val, y: Val, masks: Sequence[Val | None]) -> None:
            for j, mask in enumerate(masks):
                found = load(b, types.row, types.sum, row.buffer, x + j * lanes, lanes, mask)
                b.store(found, panels.buffer, y + j * lanes)

        with b.loop(0, size) as k:
            x, y = b.index(row.at + k.i * step), b.index(panels.at + k.i * width)
            with b.loop(0, whole // width) as panel:
                copy(x + panel.i * width, y + panel.i * panel_size, [None] * vectors)
            rest = y + whole // width * panel_size
            b.if_(b.compare("<", whole, count), lambda: copy(x + whole, rest, masks))

    return routine(b, ("blocks", types, lanes, vectors), f"blocks{vectors}_", parameters, body)


def row_panel_elements(size: N, lanes: int, vectors: int) -> N:
    """Return the elements between panels of `copy_rows`: a few lines more, so that they differ in cache sets."""
    return size * (vectors * lanes) + 5 * lanes


def transpose_panel(b: Builder, types: DotTypes, lanes: int, vectors: int) -> Call:
    """Pack a column operand that is contiguous along K. Pairs along K are moved as one element.

    (col with the stride of a column; panel; size of K; number of columns)
    """
    parameters = [matrix(b, types.col, 1), matrix(b, types.sum, 2), scalar(b), scalar(b)]

    def body(col: Operand, panel: Operand, size: Val, count: Val) -> None:
        (stride,), (step, vector) = col.strides, panel.strides
        width, each = vectors * lanes, 2 if types.pairs else 1

        def along(at: Scalar, n: int, mask: Val | None = None) -> Val:
            """Copy n rows of the panel from element `at` of a column on."""
            if not types.pairs:
                return load(b, types.col, types.sum, col.buffer, at, n)
            return b.reinterpret(b.load(col.buffer, at, 2 * n, mask), b.memory_type(types.sum), n)

        def clear() -> None:  # what happens to lie there may be denormal, and takes fifty times as long to multiply
            zeros = b.const(0, b.memory_type(types.sum), lanes)
            with b.loop(0, b.ceil_div(size, each)) as loop:
                for j in range(vectors):
                    b.store(zeros, panel.buffer, panel.at + loop.i * step + vector * j)

        b.if_(b.compare("<", count, width), clear)
        with b.loop(0, b.minimum(count, width), lanes) as group:
            first, to, left = col.at + group.i * stride, panel.at + group.i // lanes * vector, count - group.i
            whole = b.select(b.compare(">=", left, lanes), size // each - size // each % 4, b.index(0))
            with b.loop(0, whole, 4) as loop:
                x = [along(first + loop.i * each + stride * c, 4) for c in range(lanes)]
                for k, y in enumerate(_transposed(b, x)):
                    b.store(y, panel.buffer, to + (loop.i + k) * step)
            with b.loop(0, b.minimum(left, lanes)) as rest:
                with b.loop(whole, b.ceil_div(size, each)) as loop:
                    at = first + rest.i * stride + loop.i * each
                    y = along(at, 1, b.lanes.first(size - loop.i * each, each))
                    b.store(b.simd.take(y, 0), panel.buffer, to + loop.i * step + rest.i)

    return routine(b, ("transpose", types, lanes, vectors), f"transpose{vectors}_", parameters, body)


def _transposed(b: Builder, rows: list[Val]) -> list[Val]:
    """Transpose four columns of n rows of four elements each: of two rows, or 4 x 4 blocks in vectors of n lanes."""
    n = len(rows)
    if n == 2:
        return [b.simd.shuffle(rows[0], rows[1], (k, 4 + k)) for k in range(4)]
    joined = []
    for r in range(4):
        parts = rows[r::4]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [b.simd.shuffle(x, y, range(2 * x.lanes)) for x, y in pairs]
        joined += parts

    def blocks(x: Val, y: Val, lanes: tuple[int, ...]) -> Val:
        return b.simd.shuffle(x, y, [block + (i if i < 4 else n + i - 4) for block in range(0, n, 4) for i in lanes])

    x, y, z, w = joined
    halves = [(blocks(x, y, half), blocks(z, w, half)) for half in ((0, 4, 1, 5), (2, 6, 3, 7))]
    return [blocks(x, y, pair) for x, y in halves for pair in ((0, 1, 4, 5), (2, 3, 6, 7))]


def run_panel(b: Builder, types: DotTypes, lanes: int, width: int, contiguous: bool, listed: bool) -> Call:
    """Pack some neighbouring columns of a panel of `width`; the others stay as they are.

    (col with the stride of a column, which is 1 when `contiguous`; panel; size of K; number of columns; stride along K,
    or if listed: an i64 buffer with each k's distance from the first element)
    """
    along_type = b.buffer_type(b.i64) if listed else b.index_type
    parameters = [matrix(b, types.col, 1), matrix(b, types.sum), scalar(b), scalar(b), scalar(b, along_type)]

    def body(col: Operand, panel: Operand, size: Val, count: Val, along: Val) -> None:
        (stride,) = col.strides
        offsets = None if contiguous else b.binary("*", b.lanes.numbers(lanes), stride)
        with b.loop(0, count, lanes) as part:
            first, to = col.at + part.i * stride, panel.at + part.i
            mask = b.lanes.first(count - part.i, lanes)
            with b.loop(0, size) as loop:
                step = b.cast(arith.IndexCastOp, b.index_type, b.load(along, loop.i)) if listed else loop.i * along
                if offsets is None:
                    found = load(b, types.col, types.sum, col.buffer, first + step, lanes, mask)
                else:
                    found = gather(b, types.col, types.sum, col.buffer, first + step, offsets, mask)
                b.store(found, panel.buffer, to + loop.i * width, mask)

    return routine(b, ("run", types, lanes, width, contiguous, listed), f"run{width}_", parameters, body)
