"""The inner loops of matrix multiplication, as device functions that every dot of a module shares.

`outer_tile`: rows x vectors of accumulators stay in registers over a chain of K; a column operand has unit stride along
its columns. `inner_tile`: one row, lanes along K, for a column operand that is contiguous along K and too little work
to transpose it. Sums are left in a buffer of accumulators: what follows from them is not this file's business.

The words are those of BLIS (F. Van Zee, R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS
functionality", 2015): a tile is a micro-tile, its packed columns are a micro-panel (`micro_panels.py`), and K is walked
in blocks (`blocked_kernel.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.operand import (
    Call,
    DotTypes,
    KAxis,
    Operand,
    Rows,
    gather,
    k_axis,
    load,
    matrix,
    matrix_rows,
    routine,
    scalar,
)

# Products summed one after the other; longer sums are sums of such. The error of a sum grows with the longest chain.
CHAIN = 256


def outer_tile(
    b: Builder,
    types: DotTypes,
    lanes: int,
    rows: int,
    vectors: int,
    depth: int,
    masked: bool,
    apart: bool = False,
    packed: bool = False,
    prefetch: int = 0,
) -> Call:
    """sums[r, c] = sum over k of row[r, k] * col[k, c], for a tile of rows x vectors*lanes.

    (row with the stride of a row, or if apart `Rows`; col, if packed with the stride from vector to vector; sums with
    the stride of a row; each of `depth` nested K axes, outermost first; 0, or 1 to add to what is in sums; if masked:
    how many columns may be read)
    packed: col is a panel of a `PanelPacking`, whose vectors lie one after another; if not, they are neighbours.
    prefetch: ask for columns so many bytes ahead.
    """
    first = matrix_rows(b, types.row, rows) if apart else matrix(b, types.row, 1)
    parameters = [first, matrix(b, types.col, packed), matrix(b, types.sum, 1)]
    parameters += [k_axis(b)] * depth + [scalar(b)] * (1 + masked)
    ahead = prefetch // (vectors * lanes * types.col.itemsize)

    def body(row: Operand | Rows, col: Operand, sums: Operand, *rest: KAxis | Val) -> None:
        axes = [x for x in rest if isinstance(x, KAxis)]
        done, *count = (x for x in rest if isinstance(x, Val))
        if isinstance(row, Operand):
            row = Rows(row.buffer, tuple(row.at + row.strides[0] * r for r in range(rows)))
        vector: Scalar = col.strides[0] if packed else lanes
        masks: list[Val | None] = [None] * vectors
        if masked:
            masks = [b.lanes.first(count[0] - j * lanes, lanes) for j in range(vectors)]

        def nest(axis: int, lo: Scalar, hi: Scalar, x: Val, y: Val, acc: list[Val]) -> list[Val]:
            with b.loop(lo, hi, 1, [x, y, *acc]) as loop:
                u, v, *inner = loop.args
                step: Scalar = lanes if packed and axis + 1 == depth else axes[axis].col_stride
                if axis + 1 < depth:
                    inner = nest(axis + 1, 0, axes[axis + 1].size, u, v, inner)
                else:
                    for j in range(vectors if ahead else 0):
                        b.prefetch(col.buffer, v + step * ahead + vector * j)
                    places = [v + vector * j for j in range(vectors)]
                    inner = _outer_product(b, types, lanes, row, u, Rows(col.buffer, tuple(places)), masks, inner)
                loop.yield_(u + axes[axis].row_stride, v + step, *inner)
            return loop.results[2:]

        zero = b.const(0, b.register_type(types.sum), lanes)
        outermost = axes[0]
        chain = CHAIN if depth == 1 else 1
        with b.loop(0, b.maximum(outermost.size, 1), chain) as part:
            x, y = b.index(part.i * outermost.row_stride), b.index(part.i * outermost.col_stride + col.at)
            acc = nest(0, part.i, b.minimum(part.i + chain, outermost.size), x, y, [zero] * (rows * vectors))
            leave_sums(b, acc, lanes, (rows, vectors), sums, part.i + done)

    key = ("outer", types, lanes, rows, vectors, depth, masked, apart, packed, ahead)
    return routine(b, key, f"outer{rows}x{vectors}_", parameters, body)


def _outer_product(
    b: Builder,
    types: DotTypes,
    lanes: int,
    row: Rows,
    x: Scalar,
    col: Rows,
    masks: Sequence[Val | None],
    acc: Sequence[Val],
) -> list[Val]:
    """Add the product of an element of each row, x behind its start, and of vectors of columns to the accumulators."""
    places = zip(col.starts, masks, strict=True)
    cols = [load(b, types.col, types.sum, col.buffer, at, lanes, mask) for at, mask in places]
    out = []
    for r, start in enumerate(row.starts):
        one = b.splat(load(b, types.row, types.sum, row.buffer, start + x, 0), lanes)
        out += [b.fma(one, y, acc[r * len(cols) + j]) for j, y in enumerate(cols)]
    return out


def leave_sums(b: Builder, acc: Sequence[Val], lanes: int, shape: tuple[int, int], to: Operand, done: Scalar) -> None:
    """Store a tile of (rows, vectors) at `to`, with the stride of a row; the old sums are added unless done is 0."""
    rows, vectors = shape
    (stride,) = to.strides

    def leave(before: bool) -> None:
        for r in range(rows):
            for j in range(vectors):
                x, at = acc[r * vectors + j], to.at + stride * r + j * lanes
                b.store(x + b.load(to.buffer, at, lanes) if before else x, to.buffer, at)

    b.if_(b.compare("==", done, 0), lambda: leave(before=False), lambda: leave(before=True))


def inner_tile(b: Builder, types: DotTypes, lanes: int, columns: int, contiguous: bool = True) -> Call:
    """sums[c] = sum over k of row[k] * col[c, k], for up to `columns` <= lanes columns; `lanes` elements are written.

    (row with the stride along K, which is 1 when `contiguous`; col with the stride of a column; the number of the last
    column; sums; size of K). Columns after the last repeat it.
    """
    operands = [matrix(b, types.row, 1), matrix(b, types.col, 1), scalar(b), matrix(b, types.sum), scalar(b)]

    def body(row: Operand, col: Operand, last: Val, sums: Operand, size: Val) -> None:
        (row_step,), (col_stride,) = row.strides, col.strides
        offsets = b.binary("*", b.lanes.numbers(lanes), row_step)
        starts = [col.at + b.minimum(c, last) * col_stride for c in range(columns)]

        def step(k: Val, acc: Sequence[Val], mask: Val | None, together: bool) -> list[Val]:
            if together:
                x = load(b, types.row, types.sum, row.buffer, row.at + k, lanes, mask)
            else:
                x = gather(b, types.row, types.sum, row.buffer, row.at + k * row_step, offsets, mask)
            ys = [load(b, types.col, types.sum, col.buffer, start + k, lanes, mask) for start in starts]
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
        b.store(sums_of_lanes(b, results, lanes), sums.buffer, sums.at)

    return routine(b, ("inner", types, lanes, columns, contiguous), f"inner{columns}_", operands, body)


def sums_of_lanes(b: Builder, vectors: list[Val], lanes: int) -> Val:
    """Sum vector c's lanes to lane c of the result; the number of vectors, a power of two, is halved bit by bit of the
    lane."""
    bit = 1
    while bit < lanes:
        keep = [i if not i & bit else lanes + i for i in range(lanes)]
        swap = [i ^ bit if not i & bit else lanes + (i ^ bit) for i in range(lanes)]
        if len(vectors) > 1:
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        else:
            pairs = [(vectors[0], vectors[0])]
        vectors = [b.simd.shuffle(x, y, keep) + b.simd.shuffle(x, y, swap) for x, y in pairs]
        bit *= 2
    return vectors[0]
