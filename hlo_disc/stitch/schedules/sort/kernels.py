"""The kernels of a sort: one that makes sorted runs, and one that merges runs to longer ones. See `choices.py`."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.mlir import arith, math
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.kernel import each_item
from hlo_disc.stitch.schedules.sort.merge import PARTS
from hlo_disc.stitch.schedules.sort.sorter import Layout, Sorter, sort_kernel

# Elements that are sorted in fast memory, and outputs of a merge that a block makes at once.
RUN = 1 << 10
TILE = 1 << 12


def build_runs(b: Builder, layout: Layout, name: str) -> None:
    """Build the kernel (inputs, outputs, workspace, symbols, items, items a block) that sorts runs."""
    with sort_kernel(b, layout, name, 1, 2) as (sorter, (work,), (items, per)):
        with each_item(b, items, per) as item:
            _run(sorter, item, work)


def build_merges(b: Builder, layout: Layout, name: str) -> None:
    """Build the kernel (inputs, outputs, source, target, symbols, length of a run, is this the last pass, items, items
    a block) that merges runs."""
    with sort_kernel(b, layout, name, 2, 4) as (sorter, (source, target), (run, last, items, per)):
        with each_item(b, items, per) as item:
            _tile(sorter, item, source, target, run, last)


def _run(s: Sorter, item: Val, work: Sequence[Val]) -> None:
    """Sort a part of a row, in fast memory."""
    b = s.b
    row, first, count = s.place(item, s.layout.room)

    def load(i: Val) -> None:
        for word, tile in zip(s.load(row, first + i), s.tiles, strict=True):
            b.store(word, tile, i)

    s.vectors(count, load)
    source = s.sort(count)
    whole = b.compare("<=", s.n, s.layout.room)
    b.if_(whole, lambda: s.results(row, first, source, count), lambda: s.keep(work, row * s.n + first, source, count))


def _tile(s: Sorter, item: Val, source: Sequence[Val], target: Sequence[Val], run: Val, last: Val) -> None:
    """Compute as many outputs of the merged runs as a tile has."""
    b = s.b
    row, first, count = s.place(item, s.layout.tile)
    # A power of two, of which PARTS cover the count.
    q = b.apply(arith.ShLIOp, b.index(1), log2_ceil(b, b.ceil_div(count, PARTS)))
    begin = b.index(0)
    s.merge_runs(source, s.tiles, row * s.n, begin, first, run, s.n, q)
    b.if_(
        b.compare("!=", last, 0),
        lambda: s.results(row, first, begin, count),
        lambda: s.keep(target, row * s.n + first, begin, count),
    )


def log2_ceil(b: Builder, x: Scalar) -> Val:
    """Return the least k with 2**k >= x, for x >= 1."""
    wide = b.cast(arith.IndexCastOp, b.i64, b.index(x) - 1)
    zeros = b.apply(math.CountLeadingZerosOp, wide)
    return b.binary("-", 64, b.cast(arith.IndexCastOp, b.index_type, zeros))
