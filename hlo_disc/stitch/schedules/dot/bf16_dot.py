"""The inner loops of bf16 matrix multiplication where the machine multiplies pairs: sum += x0 * y0 + x1 * y1 in f32.

The pairs run along K. A panel holds two elements of K of every column side by side, in the place of one f32; where K is
odd the last one is beside a zero. Otherwise these are the functions of `microkernel.py`, with the same arguments.
"""

from __future__ import annotations

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.microkernel import CHAIN, Call, Types, buffer, leave_sums, sums_of_lanes


def panel_depth(types: Types, depth: Dim) -> Dim:
    """Rows of a panel with `depth` elements of K."""
    return (depth + 1) // 2 if types.pairs else depth


def pair_tile(b: Builder, types: Types, lanes: int, rows: int, vectors: int) -> Call:
    """`outer_tile` for one K axis that is contiguous in the row operand; its column operand is a panel of pairs."""

    index = b.index_type
    args = [buffer(b, types.row), index, index, buffer(b, types.sum), index, buffer(b, types.sum), *[index] * 6]

    def body(*values: Val) -> None:
        row, row_at, row_stride, panel, panel_at, sums, sums_at, sums_stride, size, _, step, done = values
        starts = [row_at + row_stride * r for r in range(rows)]

        def add(i: Val, acc: list[Val], mask: Val | None) -> list[Val]:
            """The products of pair number i, whose second element may be missing."""
            cols = [_split(b, b.load(panel, panel_at + i * step + j * lanes, lanes), types) for j in range(vectors)]
            out = []
            for r in range(rows):
                one = _splat(b, _joined(b, b.load(row, starts[r] + i * 2, 2, mask), types, 1), lanes, types)
                out += [_dot(b, types, acc[r * vectors + j], one, cols[j]) for j in range(vectors)]
            return out

        zeros = [b.const(0, b.register_type(types.sum), lanes)] * (rows * vectors)
        with b.loop(0, b.maximum(size, 1), CHAIN) as part:
            end = b.minimum(part.i + CHAIN, size)
            with b.loop(part.i // 2, end // 2, 1, zeros) as loop:
                loop.yield_(*add(loop.i, loop.args, None))
            with b.loop(end // 2, b.ceil_div(end, 2), 1, loop.results) as rest:
                rest.yield_(*add(rest.i, rest.args, b.lanes.first(1, 2)))
            leave_sums(b, rest.results, lanes, (rows, vectors), (sums, sums_at, sums_stride), part.i + done)

    return b.module.shared(("pairs", types, lanes, rows, vectors), f"pairs{rows}x{vectors}_", args, body)


def pair_inner(b: Builder, types: Types, lanes: int, columns: int) -> Call:
    """`inner_tile` for operands that are both contiguous along K: a vector has twice as many elements of K as lanes."""

    index = b.index_type
    args = [buffer(b, types.row), index, index, buffer(b, types.col), index, index, index]
    args += [buffer(b, types.sum), index, index]

    def body(*values: Val) -> None:
        row, row_at, _, col, col_at, col_stride, last, sums, sums_at, size = values
        starts = [col_at + b.minimum(c, last) * col_stride for c in range(columns)]

        def add(k: Val, acc: list[Val], mask: Val | None) -> list[Val]:
            x = b.load(row, row_at + k, 2 * lanes, mask)
            ys = [b.load(col, start + k, 2 * lanes, mask) for start in starts]
            return [_dot(b, types, a, x, y) for y, a in zip(ys, acc, strict=True)]

        whole = size - size % (2 * lanes)
        zeros = [b.const(0, b.register_type(types.sum), lanes)] * columns
        with b.loop(0, whole, 2 * lanes, zeros) as loop:
            loop.yield_(*add(loop.i, loop.args, None))
        with b.loop(whole, size, 2 * lanes, loop.results) as rest:
            rest.yield_(*add(rest.i, rest.args, b.lanes.first(size - rest.i, 2 * lanes)))
        b.store(sums_of_lanes(b, rest.results, lanes), sums, sums_at)

    return b.module.shared(("inner pairs", types, lanes, columns), f"inner_pairs{columns}_", args, body)


def copy_pairs(b: Builder, types: Types, lanes: int, vectors: int) -> Call:
    """`copy_panel`: two neighbouring rows of K at a time."""

    index = b.index_type
    args = [buffer(b, types.col), index, index, buffer(b, types.sum), index, index, index]

    def body(*values: Val) -> None:
        col, col_at, step, panel, panel_at, size, count = values
        turns = [k for i in range(lanes) for k in (i, lanes + i)]

        def copy(i: Val, second: Scalar) -> None:
            """second: how many columns the second row has."""
            x, to = col_at + i * 2 * step, panel_at + i * (vectors * lanes)
            for j in range(vectors):
                masks = [b.lanes.first(n - j * lanes, lanes) for n in (count, second)]
                one, two = (b.load(col, at + j * lanes, lanes, m) for at, m in zip((x, x + step), masks, strict=True))
                b.store(_joined(b, b.lanes.shuffle(one, two, turns), types, lanes), panel, to + j * lanes)

        with b.loop(0, size // 2) as loop:
            copy(loop.i, count)
        with b.loop(size // 2, b.ceil_div(size, 2)) as rest:
            copy(rest.i, b.index(0))

    return b.module.shared(("copy pairs", types, lanes, vectors), f"copy_pairs{vectors}_", args, body)


def _dot(b: Builder, types: Types, acc: Val, x: Val, y: Val) -> Val:
    return b.pair_dot(acc, x, y)


def _joined(b: Builder, x: Val, types: Types, lanes: int) -> Val:
    """Pairs of bf16 as the f32 in whose place they are kept."""
    return b.reinterpret(x, b.memory_type(types.sum), lanes)


def _split(b: Builder, x: Val, types: Types) -> Val:
    return b.reinterpret(x, b.memory_type(types.row), 2 * x.lanes)


def _splat(b: Builder, pair: Val, lanes: int, types: Types) -> Val:
    return _split(b, b.splat(b.lanes.take(pair, 0), lanes), types)
