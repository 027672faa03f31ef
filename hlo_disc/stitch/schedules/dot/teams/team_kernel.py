"""The kernel of a dot whose tiles are shared by teams of threads.

    for each block of K:        the team brings its rows and columns to fast memory, where all threads find them,
                                and each thread adds to its sums while the next block is on its way
    then:                       sums go to fast memory, and from there through the epilogue, row by row

What lies outside of the matrices is read as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hlo_disc.device import Team
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.threads import ThreadLanes
from hlo_disc.stitch.codegen.values.elements import convert, from_memory
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.dot.epilogue import Stores
from hlo_disc.stitch.schedules.dot.operand import at_once
from hlo_disc.stitch.schedules.dot.product import Axis, Product, position
from hlo_disc.stitch.schedules.dot.teams.fma_tile import FastMatrix, FmaTile
from hlo_disc.stitch.schedules.dot.teams.mma_tile import MmaTile
from hlo_disc.stitch.schedules.dot.tiles.kernel import ProductKernel

if TYPE_CHECKING:
    from hlo_disc.stitch.schedules.dot.teams.team_dot import TeamDot

# An index, and what it is below.
Bounded = tuple[Scalar, Scalar]
N = TypeVar("N", Scalar, int)


def along_k(p: Product, side: str) -> bool:
    """Whether threads read neighbours along K; otherwise along the contiguous rows or columns."""
    axis = p.row_axis if side == "row" else p.col_axis
    return getattr(axis, f"{side}_stride") is not ONE or bool(axis.digits)


class Loader:
    """Brings a part of an operand to fast memory: `size` rows, or columns, from `first` on, by blocks of K."""

    def __init__(self, k: TeamKernel, side: str, buffer: Val, size: int, first: Scalar):
        b, p, tile, types = k.b, k.p, k.v.tile, k.v.types
        self.b, self.sizes, self.side, self.buffer, self.size, self.first = b, k.sizes, side, buffer, size, first
        self.axis, self.source = (p.row_axis, types.row) if side == "row" else (p.col_axis, types.col)
        self.inner, self.staged = p.inner[-1], k.v.staging.dtype
        self.along_k, self.vector, self.next = along_k(p, side), k.v.staging.vector, k.v.staging.next
        vectors = size * tile.depth // self.vector
        turned = k.v.staging.turned and not self.along_k
        # Vectors of a thread that follow each other along K.
        self.group = min(self.vector, vectors // tile.threads) if turned else 1
        place = self._along_k if self.along_k else self._turned if turned else self._along_rows
        # The thread's first place; and how far others are from there, since their numbers have bits of their own.
        self.place = place(b.thread_id())
        self.others = [place(more) for more in range(0, vectors // self.group, tile.threads)]

    @property
    def count(self) -> int:
        """The number of vectors of a thread."""
        return len(self.others) * self.group

    def _along_rows(self, number: N) -> tuple[N, N]:
        """Return the row and the k of a vector, or of a group."""
        vectors = self.size // self.vector
        return number % vectors * self.vector, number // vectors

    def _along_k(self, number: N) -> tuple[N, N]:
        """Let neighbouring threads read `next` vectors of a row, then of the next: they write to different banks."""
        across = self.next
        return number // across % self.size, (number // (across * self.size) * across + number % across) * self.vector

    def _turned(self, number: N) -> tuple[N, N]:
        """Let neighbouring threads read `next` vectors side by side, then others of the same chunks along K."""
        across = min(self.next, self.size // self.vector)
        groups, rows = self.vector // self.group, self.size // self.vector // across
        near, number = number % across, number // across
        row = (number // groups % rows * across + near) * self.vector
        return row, (number // (groups * rows) * groups + number % groups) * self.group

    def load(self, at: Scalar, k: Scalar, end: Scalar) -> list[Val]:
        """Load a thread's elements of the block of K from `k` on, 0 for those that do not exist.

        at: where row 0 and k 0 are. end: of K.
        """
        (row, more), rows = self.place, self.sizes(self.axis.size)
        row, k = self.first + row, k + more
        places = [(r, m + i) for r, m in self.others for i in range(self.group)]
        if self.along_k:
            return self._vectors(at, self.axis, (row, rows), (k, end), places)
        return self._vectors(at, self.inner, (k, end), (row, rows), [(k, row) for row, k in places])

    def _vectors(
        self, at: Scalar, axis: Axis, line: Bounded, element: Bounded, places: Sequence[tuple[int, int]]
    ) -> list[Val]:
        """Load vectors. axis: of the lines. places: how many lines and elements each vector is from the first ones."""
        b, sizes = self.b, self.sizes
        inner = self.inner if self.along_k else self.axis
        whole = not self.along_k or (getattr(inner, f"{self.side}_stride") is ONE and not inner.digits)
        lines, elements = (sorted(set(more)) for more in zip(*places, strict=True))
        inside = {n: b.compare("<", b.index(line[0] + n), b.index(line[1])) for n in lines}
        left = {n: b.index(element[1] - (element[0] + n)) for n in elements}
        # Of an address first what is the same for all blocks of K. What is known comes last: it is a part of the
        # instruction, or the same for all threads.
        at = at if self.along_k else at + element[0]
        starts = {n: at + position(axis, line[0] + n, self.side, sizes) for n in (lines if axis.digits else [0])}
        further = {n: 0 if axis.digits else position(axis, n, self.side, sizes) for n in lines}
        vectors = []
        for n, i in places:
            mask = b.lanes.first(b.select(inside[n], left[i], b.index(0)), self.vector)
            start = starts[n if axis.digits else 0]
            if whole:
                start = start + element[0] if self.along_k else start
                vectors.append(self._loaded(start + (further[n] + i), mask))
                continue
            offsets = position(inner, b.lanes.numbers(self.vector) + (element[0] + i), self.side, sizes)
            if isinstance(offsets, int):
                offsets = b.const(offsets, b.index_type, self.vector)
            vectors.append(self._loaded(start + further[n], mask, offsets))
        return vectors

    def _loaded(self, at: Scalar, mask: Val, offsets: Val | None = None) -> Val:
        """Convert elements in memory to those of fast memory."""
        b, buffer, kept = self.b, self.buffer, self.source == self.staged
        if offsets is None:
            x = b.load(buffer, at, self.vector, mask)
        else:
            x = b.gather(buffer, at, offsets, mask)
        return x if kept else convert(b, from_memory(b, x, self.source), self.source, self.staged)

    def store(self, vectors: Sequence[Val], tile: FmaTile | MmaTile, block: Any) -> None:
        """Store the loaded vectors in fast memory."""
        for number, more in enumerate(self.others):
            group = vectors[number * self.group : (number + 1) * self.group]
            tile.put(block, group, self.place, more)


class TeamKernel(ProductKernel):
    """Builds the kernel of a `TeamDot`: a tile a block."""

    def __init__(self, b: Builder, v: TeamDot, sizes: Sizes, buffers: Sequence[Val]):
        super().__init__(b, v.product)
        self.v = v
        self.open_memory(sizes, v.group, buffers)

    def item(self, number: Scalar) -> None:
        """Compute one tile of one matrix of the batch."""
        b, p, tile, sizes = self.b, self.p, self.v.tile, self.sizes
        down = b.ceil_div(sizes(p.row_axis.size), tile.rows)
        across = b.ceil_div(sizes(p.col_axis.size), tile.cols)
        self.locate_batch(number // (down * across))
        number = number % (down * across)
        self.at = (number // across * tile.rows, number % across * tile.cols)
        # From here on each thread is a team of its own: scalars and control flow may differ, but for barriers.
        with b.over(ThreadLanes(b, Team(1, count=tile.threads))):
            self._tile()

    def _tile(self) -> None:
        b, v, tile, sizes = self.b, self.v, self.v.tile, self.sizes
        for size in v.multiples:
            b.lanes.is_multiple(sizes(size), v.staging.vector)
        row, col = self.at
        self.loaders = (
            Loader(self, "row", self.rows, tile.rows, row),
            Loader(self, "col", self.cols, tile.cols, col),
        )
        self.sums = v.sums(b)
        self.fast = b.view(b.fast(), 0, b.memory_type(v.staging.dtype), 2 * v.block_elements)
        sums = self._over(list(self.p.inner), self.row_at, self.batch_at, self.part(v.slices), self.sums.zeros())
        room = b.view(b.fast(), 0, b.memory_type(v.types.sum), v.sums_elements)
        left = FastMatrix(room, 0, tile.cols + v.staging.sums_pad)
        self.sums.leave(sums, left)
        self._store(left)

    def _over(
        self, axes: list[Axis], row_at: Scalar, col_at: Scalar, part: tuple[Scalar, Scalar], sums: Sequence[Val]
    ) -> list[Val]:
        """Add all products of a part of the first of these axes of K to the sums."""
        b, sizes = self.b, self.sizes
        axis, *others = axes
        if not others:
            return self._blocks(row_at, col_at, part, sums)
        lo, hi = part
        with b.loop(lo, lo + b.turns(hi - lo, (sizes(other.size) for other in others)), 1, sums) as loop:
            row_at = row_at + position(axis, loop.i, "row", sizes)
            col_at = col_at + position(axis, loop.i, "col", sizes)
            loop.yield_(*self._over(others, row_at, col_at, (0, b.index(sizes(others[0].size))), loop.args))
        return loop.results

    def _blocks(self, row_at: Scalar, col_at: Scalar, part: tuple[Scalar, Scalar], sums: Sequence[Val]) -> list[Val]:
        """Add the products of a part of the last axis of K, block by block. Two blocks alternate in fast memory."""
        b, v, depth = self.b, self.v, self.v.tile.depth
        (rows, cols), (lo, hi) = self.loaders, part

        def loaded(first: Scalar) -> list[Val]:
            return [*rows.load(row_at, first, hi), *cols.load(col_at, first, hi)]

        b.barrier()  # of the loop before, all have read the last block
        ahead = loaded(lo)
        with b.loop(lo, hi, depth, [*sums, *ahead]) as loop:
            at = (loop.i - lo) // depth % 2 * v.block_elements
            sums, staged = loop.args[: len(sums)], loop.args[len(sums) :]
            starts = (at, at + v.rows_elements)
            blocks: list[Any] = [
                self.sums.block(self.fast, start, x.size, x.along_k)
                for x, start in zip(self.loaders, starts, strict=True)
            ]
            rows.store(staged[: rows.count], self.sums, blocks[0])
            cols.store(staged[rows.count :], self.sums, blocks[1])
            b.barrier()
            ahead = loaded(loop.i + depth)
            loop.yield_(*self.sums.add(sums, *blocks), *ahead)
        return loop.results[: len(sums)]

    def _store(self, sums: FastMatrix) -> None:
        """Apply the epilogue: each thread has some columns of every so many rows."""
        b, p, tile = self.b, self.p, self.v.tile
        vector = at_once(self.v.types.sum)
        stores = Stores(b, p, sums.stride, vector, self.v.facts)
        end = b.minimum(self.sizes(p.row_axis.size) - self.at[0], tile.rows)
        thread = b.thread_id()
        across = 1 if p.col is None else tile.cols // vector
        first = b.index(thread % across * vector)
        rows = (thread // across, end, tile.threads // across)
        stores.build(self.sizes, [sums.buffer], self.memory, self.batch, self.at, rows, (first, first + vector))
