"""The inner loops of bf16 matrix multiplication where the machine multiplies pairs: sum += x0 * y0 + x1 * y1 in f32.

The pairs run along K. A panel holds two elements of K of every column side by side, in the place of one f32; where K is
odd the last one is beside a zero. Otherwise these are the functions of `microkernel.py` and `micro_panels.py`, with the
same arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.kernel_ops import PairDot
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.matrix import apply
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import Call, DotTypes, KAxis, Operand, k_axis, matrix, routine, scalar
from hlo_disc.stitch.schedules.dot.product import Axis
from hlo_disc.stitch.schedules.dot.tiles.microkernel import CHAIN, leave_sums, sums_of_lanes


def panel_depth(pairs: bool, depth: Dim) -> Dim:
    """Return the rows of a panel with `depth` elements of K."""
    return (depth + 1) // 2 if pairs else depth


def packed_depth(pairs: bool, inner: Sequence[Axis]) -> Dim:
    """Return the rows of a panel over all axes of K: pairs are of the last one."""
    *outer, last = inner
    return dim_product(axis.size for axis in outer) * panel_depth(pairs, last.size)


def pair_tile(b: Builder, types: DotTypes, lanes: int, rows: int, vectors: int, packed: bool) -> Call:
    """Build `outer_tile` for one K axis that is contiguous in the row operand; its columns are a panel of pairs."""
    operands = [matrix(b, types.row, 1), matrix(b, types.sum, packed), matrix(b, types.sum, 1)]
    operands += [k_axis(b), scalar(b)]

    def body(row: Operand, panel: Operand, sums: Operand, axis: KAxis, done: Val) -> None:
        size, step = axis.size, axis.col_stride
        vector: Scalar = panel.strides[0] if packed else lanes
        starts = [row.at + row.strides[0] * r for r in range(rows)]

        def add(i: Val, acc: list[Val], mask: Val | None) -> list[Val]:
            """Add the products of pair number i, whose second element may be missing."""
            columns = (b.load(panel.buffer, panel.at + i * step + vector * j, lanes) for j in range(vectors))
            cols = [_split(b, x, types) for x in columns]
            out = []
            for r in range(rows):
                one = _splat(b, _joined(b, b.load(row.buffer, starts[r] + i * 2, 2, mask), types, 1), lanes, types)
                out += [apply(b, PairDot(), acc[r * vectors + j], one, cols[j]) for j in range(vectors)]
            return out

        zeros = [b.const(0, b.register_type(types.sum), lanes)] * (rows * vectors)
        with b.loop(0, b.maximum(size, 1), CHAIN) as part:
            end = b.minimum(part.i + CHAIN, size)
            with b.loop(part.i // 2, end // 2, 1, zeros) as loop:
                loop.yield_(*add(loop.i, loop.args, None))
            with b.loop(end // 2, b.ceil_div(end, 2), 1, loop.results) as rest:
                rest.yield_(*add(rest.i, rest.args, b.lanes.first(1, 2)))
            leave_sums(b, rest.results, lanes, (rows, vectors), sums, part.i + done)

    return routine(b, ("pairs", types, lanes, rows, vectors, packed), f"pairs{rows}x{vectors}_", operands, body)


def pair_inner(b: Builder, types: DotTypes, lanes: int, columns: int) -> Call:
    """Build `inner_tile` for operands contiguous along K: a vector has twice as many elements of K as lanes."""
    operands = [matrix(b, types.row, 1), matrix(b, types.col, 1), scalar(b), matrix(b, types.sum), scalar(b)]

    def body(row: Operand, col: Operand, last: Val, sums: Operand, size: Val) -> None:
        starts = [col.at + b.minimum(c, last) * col.strides[0] for c in range(columns)]

        def add(k: Val, acc: list[Val], mask: Val | None) -> list[Val]:
            x = b.load(row.buffer, row.at + k, 2 * lanes, mask)
            ys = [b.load(col.buffer, start + k, 2 * lanes, mask) for start in starts]
            return [apply(b, PairDot(), a, x, y) for y, a in zip(ys, acc, strict=True)]

        whole = size - size % (2 * lanes)
        zeros = [b.const(0, b.register_type(types.sum), lanes)] * columns
        with b.loop(0, whole, 2 * lanes, zeros) as loop:
            loop.yield_(*add(loop.i, loop.args, None))
        with b.loop(whole, size, 2 * lanes, loop.results) as rest:
            rest.yield_(*add(rest.i, rest.args, b.lanes.first(size - rest.i, 2 * lanes)))
        b.store(sums_of_lanes(b, rest.results, lanes), sums.buffer, sums.at)

    return routine(b, ("inner pairs", types, lanes, columns), f"inner_pairs{columns}_", operands, body)


def copy_pairs(b: Builder, types: DotTypes, lanes: int, vectors: int) -> Call:
    """Build `copy_panel` for two neighbouring rows of K at a time."""
    parameters = [matrix(b, types.col, 1), matrix(b, types.sum, 2), scalar(b), scalar(b)]

    def body(col: Operand, panel: Operand, size: Val, count: Val) -> None:
        (step,), (along, vector) = col.strides, panel.strides

        def copy(i: Val, second: Scalar) -> None:
            """second: how many columns the second row has."""
            x, to = col.at + i * 2 * step, panel.at + i * along
            for j in range(vectors):
                masks = [b.lanes.first(n - j * lanes, lanes) for n in (count, second)]
                one, two = (
                    b.load(col.buffer, at + j * lanes, lanes, m) for at, m in zip((x, x + step), masks, strict=True)
                )
                b.store(_joined(b, b.lanes.in_turn(one, two), types, lanes), panel.buffer, to + vector * j)

        with b.loop(0, size // 2) as loop:
            copy(loop.i, count)
        with b.loop(size // 2, b.ceil_div(size, 2)) as rest:
            copy(rest.i, b.index(0))

    return routine(b, ("copy pairs", types, lanes, vectors), f"copy_pairs{vectors}_", parameters, body)


def _joined(b: Builder, x: Val, types: DotTypes, lanes: int) -> Val:
    """Return pairs of bf16 as the f32 that stores them."""
    return b.reinterpret(x, b.memory_type(types.sum), lanes)


def _split(b: Builder, x: Val, types: DotTypes) -> Val:
    return b.reinterpret(x, b.memory_type(types.row), 2 * x.lanes)


def _splat(b: Builder, pair: Val, lanes: int, types: DotTypes) -> Val:
    return _split(b, b.splat(b.simd.take(pair, 0), lanes), types)
