"""The inner loops of matrix multiplication, as device functions that every dot of a module shares.

`outer_tile`: rows x vectors of accumulators stay in registers over a chain of K; a column operand has unit stride along
its columns. `inner_tile`: one row, lanes along K, for a column operand that is contiguous along K and too little work
to transpose it. `copy_panel`, `transpose_panel` and `gather_panel` bring the columns of a tile together. Sums are left
in a buffer of accumulators: what follows from them is not this file's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.elements import convert, from_memory
from hlo_disc.stitch.codegen.val import Scalar, Val

Call = Callable[..., None]

# Products summed one after the other; longer sums are sums of such. The error of a sum grows with the longest chain.
CHAIN = 256


@dataclass(frozen=True)
class Types:
    """Element types of the row operand, the column operand and the accumulators.

    pairs: multiply pairs of bf16 (`bf16_dot.py`).
    """

    row: np.dtype
    col: np.dtype
    sum: np.dtype
    pairs: bool = False


def load(
    b: Builder, source: np.dtype, target: np.dtype, buffer: Val, i: Scalar, lanes: int, mask: Val | None = None
) -> Val:
    """Elements of `source` in memory as `target` in registers."""
    return convert(b, from_memory(b, b.load(buffer, i, lanes, mask), source), source, target)


def outer_tile(
    b: Builder, types: Types, lanes: int, rows: int, vectors: int, depth: int, masked: bool, apart: bool = False
) -> Call:
    """sums[r, c] = sum over k of row[r, k] * col[k, c], for a tile of rows x vectors*lanes.

    (row, at, stride of a row, or if apart: where each row starts; col, at; sums, at, stride; then for each of `depth`
    nested K axes, outermost first: size, stride in row, stride in col; 0, or 1 to add to what is in sums; if masked:
    how many columns may be read)
    """

    index = b.index_type
    heads = rows if apart else 2
    args = [buffer(b, types.row), *[index] * heads, buffer(b, types.col), index, buffer(b, types.sum)]
    args += [index] * (2 + 3 * depth + 1 + masked)

    def body(*values: Val) -> None:
        row, starts = values[0], list(values[1 : 1 + heads])
        col, col_at, sums, sums_at, sums_stride, *walk = values[1 + heads :]
        if not apart:
            row_at, row_stride = starts
            starts = [row_at + row_stride * r for r in range(rows)]
        masks: list[Val | None] = [None] * vectors
        if masked:
            masks = [b.lanes.first(walk[-1] - j * lanes, lanes) for j in range(vectors)]

        def nest(axis: int, lo: Scalar, hi: Scalar, x: Val, y: Val, acc: list[Val]) -> list[Val]:
            _, row_step, col_step = walk[3 * axis : 3 * axis + 3]
            with b.loop(lo, hi, 1, [x, y, *acc]) as loop:
                u, v, *inner = loop.args
                if axis + 1 < depth:
                    inner = nest(axis + 1, 0, walk[3 * axis + 3], u, v, inner)
                else:
                    inner = outer_product(u, v, inner)
                loop.yield_(u + row_step, v + col_step, *inner)
            return loop.results[2:]

        def outer_product(x: Val, y: Val, acc: list[Val]) -> list[Val]:
            cols = [load(b, types.col, types.sum, col, y + j * lanes, lanes, masks[j]) for j in range(vectors)]
            out = []
            for r in range(rows):
                one = b.splat(load(b, types.row, types.sum, row, starts[r] + x, 0), lanes)
                out += [b.fma(one, cols[j], acc[r * vectors + j]) for j in range(vectors)]
            return out

        zero = b.const(0, b.register_type(types.sum), lanes)
        size, row_step, col_step = walk[:3]
        chain = CHAIN if depth == 1 else 1
        with b.loop(0, b.maximum(size, 1), chain) as part:
            x, y = b.index(part.i * row_step), part.i * col_step + col_at
            acc = nest(0, part.i, b.minimum(part.i + chain, size), x, y, [zero] * (rows * vectors))
            leave_sums(b, acc, lanes, (rows, vectors), (sums, sums_at, sums_stride), part.i + walk[3 * depth])

    return b.module.shared(
        ("outer", types, lanes, rows, vectors, depth, masked, apart), f"outer{rows}x{vectors}_", args, body
    )


def leave_sums(
    b: Builder, acc: Sequence[Val], lanes: int, shape: tuple[int, int], to: tuple[Val, Val, Val], done: Scalar
) -> None:
    """Store a tile of (rows, vectors) to (buffer, at, stride of a row); what is there is added unless done is 0."""
    rows, vectors = shape
    sums, start, stride = to

    def leave(before: bool) -> None:
        for r in range(rows):
            for j in range(vectors):
                x, at = acc[r * vectors + j], start + stride * r + j * lanes
                b.store(x + b.load(sums, at, lanes) if before else x, sums, at)

    b.if_(b.compare("==", done, 0), lambda: leave(before=False), lambda: leave(before=True))


def inner_tile(b: Builder, types: Types, lanes: int, columns: int, contiguous: bool = True) -> Call:
    """sums[c] = sum over k of row[k] * col[c, k], for up to `columns` <= lanes columns; `lanes` elements are written.

    (row, at, stride along K, which is 1 when `contiguous`; col, at, stride of a column; the last column; sums, at; size
    of K). Columns after the last repeat it.
    """

    index = b.index_type
    args = [buffer(b, types.row), index, index, buffer(b, types.col), index, index, index]
    args += [buffer(b, types.sum), index, index]

    def body(*values: Val) -> None:
        row, row_at, row_step, col, col_at, col_stride, last, sums, sums_at, size = values
        offsets = b.binary("*", b.lanes.numbers(lanes), row_step)
        starts = [col_at + b.minimum(c, last) * col_stride for c in range(columns)]

        def step(k: Val, acc: Sequence[Val], mask: Val | None, together: bool) -> list[Val]:
            if together:
                x = load(b, types.row, types.sum, row, row_at + k, lanes, mask)
            else:
                found = b.gather(row, row_at + k * row_step, offsets, mask)
                x = convert(b, from_memory(b, found, types.row), types.row, types.sum)
            ys = [load(b, types.col, types.sum, col, start + k, lanes, mask) for start in starts]
            return [b.fma(x, y, a) for y, a in zip(ys, acc, strict=True)]

        def along(together: bool) -> list[Val]:
            with b.loop(0, whole, lanes, acc) as loop:
                loop.yield_(*step(loop.i, loop.args, None, together))
            with b.loop(whole, size, lanes, loop.results) as rest:
                rest.yield_(*step(rest.i, rest.args, b.lanes.first(size - rest.i, lanes), together))
            return rest.results

        acc = [b.const(0, b.register_type(types.sum), lanes)] * columns
        whole = size - size % lanes
        if contiguous:
            results = along(True)
        else:  # but it may turn out to be: one column of a matrix that has only one
            results = b.if_(b.compare("==", row_step, 1), lambda: along(True), lambda: along(False), acc)
        b.store(sums_of_lanes(b, results, lanes), sums, sums_at)

    return b.module.shared(("inner", types, lanes, columns, contiguous), f"inner{columns}_", args, body)


def sums_of_lanes(b: Builder, vectors: list[Val], lanes: int) -> Val:
    """Lane c of the result is the sum of vector c's lanes; a power of two of vectors, halved bit by bit of the lane."""
    bit = 1
    while bit < lanes:
        keep = [i if not i & bit else lanes + i for i in range(lanes)]
        swap = [i ^ bit if not i & bit else lanes + (i ^ bit) for i in range(lanes)]
        if len(vectors) > 1:
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        else:
            pairs = [(vectors[0], vectors[0])]
        vectors = [b.lanes.shuffle(x, y, keep) + b.lanes.shuffle(x, y, swap) for x, y in pairs]
        bit *= 2
    return vectors[0]


def copy_panel(b: Builder, types: Types, lanes: int, vectors: int) -> Call:
    """panel[k, c] = col[k, c] for a column operand that is contiguous along its columns; zero after the last column.

    (col, at, stride along K; panel, at; size of K; number of columns)
    """

    index = b.index_type
    args = [buffer(b, types.col), index, index, buffer(b, types.sum), index, index, index]

    def body(*values: Val) -> None:
        col, col_at, step, panel, panel_at, size, count = values
        masks = [b.lanes.first(count - j * lanes, lanes) for j in range(vectors)]
        with b.loop(0, size, 1, [col_at, panel_at]) as loop:
            x, y = loop.args
            for j, mask in enumerate(masks):
                b.store(load(b, types.col, types.sum, col, x + j * lanes, lanes, mask), panel, y + j * lanes)
            loop.yield_(x + step, y + vectors * lanes)

    return b.module.shared(("copy", types, lanes, vectors), f"copy{vectors}_", args, body)


def copy_blocks(b: Builder, types: Types, lanes: int, vectors: int) -> Call:
    """blocks[j, k, c] = row[k, j*vectors*lanes + c] for a row operand whose rows lie together, all blocks in one sweep.

    (row, at, stride along K; blocks, at; size of K; number of rows). What is behind the last row is zero.
    """

    index = b.index_type
    args = [buffer(b, types.row), index, index, buffer(b, types.sum), index, index, index]

    def body(*values: Val) -> None:
        row, row_at, step, blocks, blocks_at, size, count = values
        width = vectors * lanes
        whole, block_size = count - count % width, block_elements(size, lanes, vectors)
        masks = [b.lanes.first(count - whole - j * lanes, lanes) for j in range(vectors)]

        def copy(x: Val, y: Val, masks: Sequence[Val | None]) -> None:
            for j, mask in enumerate(masks):
                b.store(load(b, types.row, types.sum, row, x + j * lanes, lanes, mask), blocks, y + j * lanes)

        with b.loop(0, size) as k:
            x, y = row_at + k.i * step, blocks_at + k.i * width
            with b.loop(0, whole // width) as block:
                copy(x + block.i * width, y + block.i * block_size, [None] * vectors)
            rest = y + whole // width * block_size
            b.if_(b.compare("<", whole, count), lambda: copy(x + whole, rest, masks))

    return b.module.shared(("blocks", types, lanes, vectors), f"blocks{vectors}_", args, body)


def block_elements(size: Any, lanes: int, vectors: int) -> Any:
    """Elements from one block of `copy_blocks` to the next: a few lines more, to lie elsewhere in the cache."""
    return size * (vectors * lanes) + 5 * lanes


def transpose_panel(b: Builder, types: Types, lanes: int, vectors: int) -> Call:
    """panel[k, c] = col[c, k] for a column operand that is contiguous along K; nothing after the last column.

    Pairs along K are moved as one element.

    (col, at, stride of a column; panel, at; size of K; number of columns)
    """

    index = b.index_type
    args = [buffer(b, types.col), index, index, buffer(b, types.sum), index, index, index]

    def body(*values: Val) -> None:
        col, col_at, col_stride, panel, panel_at, size, count = values
        width, each = vectors * lanes, 2 if types.pairs else 1

        def along(at: Scalar, n: int, mask: Val | None = None) -> Val:
            """n rows of the panel from element `at` of a column on."""
            if not types.pairs:
                return load(b, types.col, types.sum, col, at, n)
            return b.reinterpret(b.load(col, at, 2 * n, mask), b.memory_type(types.sum), n)

        with b.loop(0, b.minimum(count, width), lanes) as group:
            first, to, left = col_at + group.i * col_stride, panel_at + group.i, count - group.i
            whole = b.select(b.compare(">=", left, lanes), size // each - size // each % 4, b.index(0))
            with b.loop(0, whole, 4) as loop:
                x = [along(first + loop.i * each + col_stride * c, 4) for c in range(lanes)]
                for k, y in enumerate(_transposed(b, x)):
                    b.store(y, panel, to + (loop.i + k) * width)
            with b.loop(0, b.minimum(left, lanes)) as rest:
                with b.loop(whole, b.ceil_div(size, each)) as loop:
                    at = first + rest.i * col_stride + loop.i * each
                    y = along(at, 1, b.lanes.first(size - loop.i * each, each))
                    b.store(b.lanes.take(y, 0), panel, to + loop.i * width + rest.i)

    return b.module.shared(("transpose", types, lanes, vectors), f"transpose{vectors}_", args, body)


def _transposed(b: Builder, rows: list[Val]) -> list[Val]:
    """Four columns of n rows with four elements each: blocks of 4 x 4, side by side in vectors of n lanes."""
    n = len(rows)
    joined = []
    for r in range(4):
        parts = rows[r::4]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [b.lanes.shuffle(x, y, range(2 * x.lanes)) for x, y in pairs]
        joined += parts

    def blocks(x: Val, y: Val, lanes: tuple[int, ...]) -> Val:
        return b.lanes.shuffle(x, y, [block + (i if i < 4 else n + i - 4) for block in range(0, n, 4) for i in lanes])

    x, y, z, w = joined
    halves = [(blocks(x, y, half), blocks(z, w, half)) for half in ((0, 4, 1, 5), (2, 6, 3, 7))]
    return [blocks(x, y, pair) for x, y in halves for pair in ((0, 1, 4, 5), (2, 3, 6, 7))]


def gather_panel(b: Builder, types: Types, lanes: int, vectors: int) -> Call:
    """panel[k, c] = col[k, c] for a column operand of any strides; zero after the last column.

    (col, at, stride of a column, stride along K; panel, at; size of K; number of columns)
    """

    index = b.index_type
    args = [buffer(b, types.col), index, index, index, buffer(b, types.sum), index, index, index]

    def body(*values: Val) -> None:
        col, col_at, col_stride, step, panel, panel_at, size, count = values
        offsets = b.binary("*", b.lanes.numbers(lanes), col_stride)
        masks = [b.lanes.first(count - j * lanes, lanes) for j in range(vectors)]
        with b.loop(0, size, 1, [col_at, panel_at]) as loop:
            x, y = loop.args
            for j, mask in enumerate(masks):
                found = b.gather(col, x + col_stride * (j * lanes), offsets, mask)
                found = convert(b, from_memory(b, found, types.col), types.col, types.sum)
                b.store(found, panel, y + j * lanes)
            loop.yield_(x + step, y + vectors * lanes)

    return b.module.shared(("gather", types, lanes, vectors), f"gather{vectors}_", args, body)


def run_panel(b: Builder, types: Types, lanes: int, width: int, contiguous: bool, listed: bool) -> Call:
    """panel[k, c] = col[k, c] for some neighbouring columns of a panel of `width`; the others stay as they are.

    (col, at, stride of a column, which is 1 when `contiguous`; panel, at; size of K; number of columns; stride along K,
    or if listed: an i64 buffer with each k's distance from `at`)
    """

    index = b.index_type
    args = [buffer(b, types.col), index, index, buffer(b, types.sum), index, index, index]
    args.append(b.buffer_type(b.i64) if listed else index)

    def body(*values: Val) -> None:
        col, col_at, col_stride, panel, panel_at, size, count, along = values
        offsets = None if contiguous else b.binary("*", b.lanes.numbers(lanes), col_stride)
        with b.loop(0, count, lanes) as part:
            first, to, mask = col_at + part.i * col_stride, panel_at + part.i, b.lanes.first(count - part.i, lanes)
            with b.loop(0, size) as loop:
                step = b.cast(arith.IndexCastOp, index, b.load(along, loop.i)) if listed else loop.i * along
                if offsets is None:
                    found = b.load(col, first + step, lanes, mask)
                else:
                    found = b.gather(col, first + step, offsets, mask)
                found = convert(b, from_memory(b, found, types.col), types.col, types.sum)
                b.store(found, panel, to + loop.i * width, mask)

    return b.module.shared(("run", types, lanes, width, contiguous, listed), f"run{width}_", args, body)


def buffer(b: Builder, dtype: np.dtype) -> object:
    return b.buffer_type(b.memory_type(dtype))
