"""The lane model of a GPU: the threads of a team share the lanes of a vector.

A vector of `chunks * threads * n` lanes has `chunks * n` elements in each thread. Thread t has n neighbours of each
chunk. The k-th of chunk j is lane j*threads*n + t*n + k of the vector, and element j*n + k in the thread. So a team
loads runs of neighbours side by side. All threads of a team have the same scalars, which decide about control flow. A
vector of fewer lanes than threads belongs to one thread.

Lanes are combined in the thread, then by shuffles within a warp, then through memory that all warps share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hlo_disc.abi import GPU_ALIGNMENT
from hlo_disc.device import EXCHANGE_BYTES, Team
from hlo_disc.kernel_ops import ALIGNMENT
from hlo_disc.mlir import MlirValue, arith, elements, gpu, ir, memref, vector
from hlo_disc.stitch.codegen.lanes import Join, Lanes, State
from hlo_disc.stitch.codegen.multiples import Multiples
from hlo_disc.stitch.codegen.values.val import Scalar, Val

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.build import Builder

T = TypeVar("T")

# What warps exchange values through: a value of up to 8 bytes for each of at most 32.
_EXCHANGE = "exchange"

_COMBINE: Mapping[str, Callable[[Builder, Val, Val], Val]] = {
    "add": lambda b, x, y: b.binary("+", x, y),
    "mul": lambda b, x, y: b.binary("*", x, y),
    "minsi": lambda b, x, y: b.apply(arith.MinSIOp, x, y),
    "maxsi": lambda b, x, y: b.apply(arith.MaxSIOp, x, y),
    "minui": lambda b, x, y: b.apply(arith.MinUIOp, x, y),
    "maxui": lambda b, x, y: b.apply(arith.MaxUIOp, x, y),
    "minimumf": lambda b, x, y: b.apply(arith.MinimumFOp, x, y),
    "maximumf": lambda b, x, y: b.apply(arith.MaximumFOp, x, y),
    "and": lambda b, x, y: b.apply(arith.AndIOp, x, y),
    "or": lambda b, x, y: b.apply(arith.OrIOp, x, y),
    "xor": lambda b, x, y: b.apply(arith.XOrIOp, x, y),
}


class ThreadLanes(Lanes):
    """The lane model of a team: its threads share the lanes of the vectors of one kernel."""

    def __init__(self, b: Builder, team: Team):
        super().__init__(b)
        self.team = team
        self.multiples = Multiples()
        self._counts: dict[MlirValue, Val] = {}  # of masks of the first lanes

    def type(self, lanes: int, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([self._held(lanes)], element)

    def _held(self, lanes: int) -> int:
        """Return how many of the lanes a thread has."""
        if lanes < self.team.threads:
            return lanes
        assert lanes % self.team.runs == 0, f"{lanes} lanes for {self.team}"
        return lanes // self.team.threads

    @property
    def thread(self) -> Val:
        """Return the number of the thread in its team."""
        return self.b.index(self.b.thread_id() % self.team.threads if self.team.count > 1 else self.b.thread_id())

    def block(self, number: Val) -> Val:
        if self.team.count == 1:
            return number
        return number * self.team.count + self.b.thread_id() // self.team.threads

    def once(self, build: Callable[[], object]) -> None:
        if self.team.threads == 1:
            build()
            return
        self.b.if_(self.b.compare("==", self.thread, 0), build)

    # Which lane is which.

    def numbers(self, lanes: int) -> Val:
        if lanes < self.team.threads:
            return self._private("numbers", range(lanes), lanes)
        at = [at + k for _, at in self._runs(lanes) for k in range(self._run(lanes))]
        return self.b.binary("+", self._private("numbers", at, lanes), self.thread * self._run(lanes))

    def _private(self, name: str, numbers: Sequence[int], lanes: int) -> Val:
        """Return a constant vector of indices that has the same elements in each thread."""
        type_ = self.type(lanes, self.b.index_type)
        attr = elements(np.array(numbers, np.int64), type_)
        return self.b.at_entry((name, lanes), lambda: arith.ConstantOp(type_, attr).result, lanes)

    def first(self, count: Scalar, lanes: int) -> Val:
        mask = self.b.compare("<", self.numbers(lanes), self.b.index(count))
        self._counts[mask.v] = self.b.index(count)
        return mask

    # All lanes as one: every thread of the team has the result.

    def reduce(self, kind: str, x: Val) -> Val:
        combine, elements = _COMBINE[kind], self.elements(x)
        while len(elements) > 1:
            elements = [combine(self.b, *pair) for pair in _pairs(elements)]
        return self._across([elements], lambda one, other: [[combine(self.b, one[0][0], other[0][0])]])[0][0]

    def fold(self, state: Sequence[State], join: Join) -> list[State]:
        run = self._run(state[0][0].lanes)
        elements = [[self.elements(x) for x in xs] for xs in state]
        chunks = []
        for j in range(self.team.chunks):
            held = [[[x[j * run + k] for x in xs] for xs in elements] for k in range(run)]
            while len(held) > 1:
                held = [join(left, right) for left, right in _pairs(held)]
            chunks.append(self._across(held[0], join, in_order=True))
        total = chunks[0]
        for chunk in chunks[1:]:
            total = join(total, chunk)
        return total

    def elements(self, x: Val) -> list[Val]:
        """Return a thread's elements of a vector, one by one."""

        def take(k: int) -> Val:
            return self.b.pure(lambda: vector.ExtractOp(x.v, [], [k]).result, 0, [x])

        return [take(k) for k in range(self._held(x.lanes))]

    def _across(self, state: list[State], join: Join, in_order: bool = False) -> list[State]:
        """Combine a state of scalars over all threads; in order: in the order of the threads."""
        state = self._by_swaps(state, join, in_order, min(self.team.threads, self.team.warp), self.thread)
        if self.team.warps > 1:
            warp, lane = self.thread // self.team.warp, self.b.index(self.thread % self.team.warp)
            state = [[self._from_warps(x, warp, lane) for x in xs] for xs in state]
            state = self._by_swaps(state, join, in_order, self.team.warps, lane)
        return state

    def _by_swaps(self, state: list[State], join: Join, in_order: bool, threads: int, number: Val) -> list[State]:
        distance = 1
        while distance < threads:
            other = [[self._of_thread(x, "xor", distance) for x in xs] for xs in state]
            if in_order:
                bit = self.b.apply(arith.AndIOp, number, self.b.const(distance, self.b.index_type))
                low = self.b.compare("==", bit, 0)
                sides = [list(zip(xs, ys, strict=True)) for xs, ys in zip(state, other, strict=True)]
                left = [[self.b.select(low, x, y) for x, y in pairs] for pairs in sides]
                right = [[self.b.select(low, y, x) for x, y in pairs] for pairs in sides]
                state = join(left, right)
            else:
                state = join(state, other)
            distance *= 2
        return state

    def _of_thread(self, x: Val, mode: str, distance: int) -> Val:
        """Return the scalar of another thread of the warp.

        mode: "xor", of the one whose number differs in the bit `distance`; "up", of the one so many before; "down", so
            many behind; "idx", of that one. A thread without such a one gets any value.
        """
        b = self.b
        word, back = self._as_word(x)
        width = b.const(min(self.team.threads, self.team.warp), b.i32)
        how = gpu.ShuffleMode[mode.upper()]
        return back(Val(b, gpu.ShuffleOp(word.v, b.const(distance, b.i32).v, width.v, how).results[0]))

    def _as_word(self, x: Val) -> tuple[Val, Callable[[Val], Val]]:
        """Return a scalar as a word that can be shuffled and stored, and the conversion back."""
        b, element = self.b, x.element
        if element == b.index_type:
            return b.cast(arith.IndexCastOp, b.i64, x), lambda y: b.cast(arith.IndexCastOp, element, y)
        if not b.is_float(x) and ir.IntegerType(element).width < 32:
            return b.cast(arith.ExtUIOp, b.i32, x), lambda y: b.cast(arith.TruncIOp, element, y)
        return x, lambda y: y

    def _from_warps(self, x: Val, warp: Val, lane: Val) -> Val:
        """Return, in lane i of every warp, the value of warp i modulo the number of warps."""
        return self._exchanged(x, warp, self.b.compare("==", lane, 0))(lane % self.team.warps)

    def _exchanged(self, x: Val, warp: Val, offers: Val) -> Callable[[Scalar], Val]:
        """Return a function from the number of a warp to the value that one thread of the warp offers."""
        b = self.b
        word, back = self._as_word(x)
        room = b.module.shared_memory(_EXCHANGE, EXCHANGE_BYTES)
        view = b.view(room, 0, word.element, EXCHANGE_BYTES // 8)
        b.barrier()  # what was exchanged before has been read
        b.if_(offers, lambda: memref.StoreOp(word.v, view.v, [warp.v]))
        b.barrier()
        return lambda number: back(Val(b, memref.LoadOp(view.v, [b.index(number).v]).result))

    # Each lane with those before it.

    def scan(
        self, xs: Sequence[Val], identities: Sequence[Val], combine: Callable[[State, State], State], reverse: bool
    ) -> State:
        """Scan each run of a thread, then the totals of a chunk's runs, then those of the chunks."""
        lanes, chunks = xs[0].lanes, self.team.chunks
        run = self._run(lanes)

        def over(xs: State, count: int, moved: Callable[[Val, Val, int], Val]) -> State:
            """Combine each of `count` neighbours with those before it, at distances of 1, 2, 4 …"""
            distance = 1
            while distance < count:
                xs = combine([moved(x, fill, distance) for x, fill in zip(xs, identities, strict=True)], xs)
                distance *= 2
            return xs

        def within(size: int, unit: int) -> Callable[[Val, Val, int], Val]:
            """Move `unit` elements times the distance, among each `size` elements of a thread."""

            def moved(x: Val, fill: Val, distance: int) -> Val:
                held, by = self._held(lanes), -unit * distance if reverse else unit * distance
                inside = [0 <= e % size - by < size for e in range(held)]
                elements = [e - by if here else held + e for e, here in enumerate(inside)]
                return self._shuffled(x, fill, elements, lanes)

            return moved

        def before(xs: State, moved: Callable[[Val, Val, int], Val]) -> State:
            return [moved(x, fill, 1) for x, fill in zip(xs, identities, strict=True)]

        xs = over(list(xs), run, within(run, 1))
        totals = [self._ends(x, run, reverse) for x in xs]
        by_threads = self._between_threads(reverse)
        totals = over(totals, min(self.team.threads, self.team.warp), by_threads)
        xs = combine(before(totals, by_threads), xs)
        if self.team.warps > 1:
            carried, totals = self._between_warps(totals, identities, combine, reverse)
            xs = combine(carried, xs)
        elif chunks > 1:
            totals = [self._of_last_thread(x, reverse) for x in totals]
        if chunks > 1:
            by_chunks = within(self._held(lanes), run)
            xs = combine(before(over(totals, chunks, by_chunks), by_chunks), xs)
        return xs

    def _ends(self, x: Val, run: int, reverse: bool) -> Val:
        """Return the last element of each run in scan order, in all of the run."""
        elements = [e - e % run + (0 if reverse else run - 1) for e in range(self._held(x.lanes))]
        return self._shuffled(x, x, elements, x.lanes)

    def _heads(self, x: Val) -> list[Val]:
        """Return one value for each chunk, from a vector whose values are equal within each run."""
        return self.elements(x)[:: self._run(x.lanes)]

    def _spread(self, heads: Sequence[Val], lanes: int) -> Val:
        """Spread one value for each chunk over the thread's runs."""
        values = [x for x in heads for _ in range(self._run(lanes))]
        type_ = self.type(lanes, heads[0].element)
        return self.b.pure(lambda: vector.FromElementsOp(type_, [x.v for x in values]).result, lanes, heads)

    def _between_threads(self, reverse: bool) -> Callable[[Val, Val, int], Val]:
        """Move values between threads of a warp."""

        def moved(x: Val, fill: Val, distance: int) -> Val:
            b, width = self.b, min(self.team.threads, self.team.warp)
            lane = b.index(self.thread % width)
            there = b.compare("<", lane, width - distance) if reverse else b.compare(">=", lane, distance)
            mode = "down" if reverse else "up"
            heads = [self._of_thread(head, mode, distance) for head in self._heads(x)]
            return b.select(there, self._spread(heads, x.lanes), fill)

        return moved

    def _between_warps(
        self, totals: State, identities: Sequence[Val], combine: Callable[[State, State], State], reverse: bool
    ) -> tuple[State, State]:
        """Return, for each chunk, the combined values of the warps before, and those of all warps.

        totals: the values combined up to each thread.
        """
        b, warps = self.b, self.team.warps
        warp, lane = self.thread // self.team.warp, b.index(self.thread % self.team.warp)
        offers = b.compare("==", lane, 0 if reverse else self.team.warp - 1)
        lanes = totals[0].lanes
        # The exchange has room for a chunk at a time, whose values are in registers before the next one's come.
        slots: list[list[list[Val]]] = []  # of each value, for each chunk, those of all warps
        for x in totals:
            slots.append([])
            for head in self._heads(x):
                of_warp = self._exchanged(head, warp, offers)
                slots[-1].append([of_warp(number) for number in range(warps)])
        carried, whole = list(identities), list(identities)
        *others, last = reversed(range(warps)) if reverse else range(warps)
        for number in (*others, last):
            new = [self._spread([of_chunk[number] for of_chunk in chunks], lanes) for chunks in slots]
            whole = combine(whole, new)
            if number != last:
                ahead = b.compare(">" if not reverse else "<", warp, number)
                carried = [b.select(ahead, x, y) for x, y in zip(whole, carried, strict=True)]
        return carried, whole

    def _of_last_thread(self, x: Val, reverse: bool) -> Val:
        """Return, in all threads, the value of the thread of a warp that a scan reaches last."""
        at = 0 if reverse else min(self.team.threads, self.team.warp) - 1
        return self._spread([self._of_thread(head, "idx", at) for head in self._heads(x)], x.lanes)

    def last(self, x: Val, reverse: bool) -> Val:
        b, team = self.b, self.team
        end = self.elements(x)[0 if reverse else -1]
        end = self._of_thread(end, "idx", 0 if reverse else min(team.threads, team.warp) - 1)
        if team.warps > 1:
            lane = b.index(self.thread % team.warp)
            of_warp = self._exchanged(end, self.thread // team.warp, b.compare("==", lane, 0))
            end = of_warp(0 if reverse else team.warps - 1)
        return b.splat(end, x.lanes)

    # Lanes in other places: neighbours of one thread.

    def every_second(self, x: Val, first: int) -> Val:
        held = self._held(x.lanes)
        if x.lanes == 2:
            return self.b.pure(lambda: vector.ExtractOp(x.v, [], [first]).result, 0, [x])
        return self._shuffled(x, x, range(first, held, 2), x.lanes // 2)

    def in_turn(self, x: Val, y: Val) -> Val:
        held = self._held(x.lanes)
        return self._shuffled(x, y, [k for i in range(held) for k in (i, held + i)], 2 * x.lanes)

    def _shuffled(self, x: Val, y: Val, elements: Sequence[int], lanes: int) -> Val:
        return self.b.pure(lambda: vector.ShuffleOp(x.v, y.v, list(elements)).result, lanes, [x, y])

    # Between lanes and memory.

    def is_multiple(self, x: Scalar, number: int) -> None:
        """Note a divisor: neighbours are read and written together if they start at a multiple of their number."""
        if isinstance(x, Val):
            self.multiples.add(x.v, number)

    def _alignment(self, buffer: Val, starts: Sequence[Val], run: int) -> int:
        """Return the alignment of a run in memory, in bytes; 0 for no more than that of an element."""
        element = ir.MemRefType(buffer.v.type).element_type
        if run == 1 or not hasattr(element, "width"):
            return 0
        aligned = all(self.multiples.of(x.v) % run == 0 for x in starts)
        return min(run * -(-element.width // 8), self._start(buffer.v)) if aligned else 0

    def _start(self, buffer: MlirValue) -> int:
        """Return the known alignment in bytes of a buffer, or of data in fast memory; 0 if unknown."""
        op = buffer.owner
        if isinstance(op, ir.Block):
            return GPU_ALIGNMENT
        if op.name != "memref.view":
            return 0
        memory, byte, *_ = op.operands
        if isinstance(memory.owner, ir.Block) or memory.owner.name != "gpu.dynamic_shared_memory":
            return 0
        return GPU_ALIGNMENT if self.multiples.of(byte) % GPU_ALIGNMENT == 0 else 0

    def _part(self, mask: Val, first: int, lane: int, run: int, alignment: int) -> MlirValue:
        """Return the part of a mask for a run. It is one condition if the first lanes are whole runs."""
        part = _cut(mask.v, first, run)
        count = self._counts.get(mask.v)
        if not alignment or count is None or self.multiples.of(count.v) % run:
            return part
        chosen = self.b.compare("<", self.thread * run + lane, count)
        made: MlirValue = vector.BroadcastOp(part.type, chosen.v).result
        return made

    def _run(self, lanes: int) -> int:
        """Return the neighbours of a chunk that a thread has."""
        return lanes // self.team.runs

    def _runs(self, lanes: int) -> list[tuple[int, int]]:
        """Return, for each chunk, the index of its first element in a thread and the lane of that in thread 0."""
        run = self._run(lanes)
        return [(j * run, j * run * self.team.threads) for j in range(self.team.chunks)]

    def load(self, buffer: Val, at: Val, lanes: int, mask: Val | None, fixed: bool) -> Val:
        if lanes < self.team.threads:
            return self.b.simd.load(buffer, at, lanes, mask, fixed)
        b, run, element = self.b, self._run(lanes), ir.MemRefType(buffer.v.type).element_type
        at = at + self.thread * run
        runs = [(first, lane, b.index(at + lane)) for first, lane in self._runs(lanes)]
        starts = [start for *_, start in runs]
        operands = [buffer, *starts]
        type_ = ir.VectorType.get([run], element)
        alignment = self._alignment(buffer, starts, run)
        if mask is not None:
            zero = b.const(0, element, lanes)
            operands.append(mask)

        def build() -> MlirValue:
            held: MlirValue | None = None
            for first, lane, start in runs:
                if mask is None:
                    op = vector.LoadOp(type_, buffer.v, [start.v])
                else:
                    lanes_here = self._part(mask, first, lane, run, alignment)
                    op = vector.MaskedLoadOp(type_, buffer.v, [start.v], lanes_here, _cut(zero.v, first, run))
                part = _aligned(op, alignment).result
                held = part if held is None else vector.ShuffleOp(held, part, list(range(first + run))).result
            assert held is not None
            return held

        return b.pure(build, lanes, operands, speculate=False) if fixed else Val(b, build(), lanes)

    def load_strided(
        self, buffer: Val, base: Scalar, stride: int, lanes: int, mask: Val | None = None, fixed: bool = False
    ) -> Val:
        return self.b.gather(buffer, base, self.b.binary("*", self.numbers(lanes), stride), mask, fixed)

    def store(self, x: Val, buffer: Val, at: Val, mask: Val | None) -> None:
        if x.lanes < self.team.threads:
            self.once(lambda: self.b.simd.store(x, buffer, at, mask))
            return
        run = self._run(x.lanes)
        at = at + self.thread * run
        for first, lane in self._runs(x.lanes):
            start, part = self.b.index(at + lane), _cut(x.v, first, run)
            alignment = self._alignment(buffer, [start], run)
            if mask is None:
                op = vector.StoreOp(part, buffer.v, [start.v])
            else:
                op = vector.MaskedStoreOp(buffer.v, [start.v], self._part(mask, first, lane, run, alignment), part)
            _aligned(op, alignment)


def _aligned(op: ir.OpView, alignment: int) -> ir.OpView:
    """Annotate a memory op with its alignment."""
    ALIGNMENT.set(op.operation, alignment)
    return op


def _pairs(xs: Sequence[T]) -> list[tuple[T, T]]:
    return list(zip(xs[::2], xs[1::2], strict=True))


def _cut(x: MlirValue, first: int, count: int) -> MlirValue:
    """Return some elements of a thread's part."""
    if ir.VectorType(x.type).shape[0] == count:
        return x
    part: MlirValue = vector.ShuffleOp(x, x, list(range(first, first + count))).result
    return part
