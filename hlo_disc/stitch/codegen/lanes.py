"""The interface of lane models, and the model of a SIMD machine: all operations across the lanes of vectors.

A `Val` of n lanes is one vector of n elements in one thread, so lanes are combined by shuffles and LLVM's reductions.
Schedules name an operation (a fold, a scan, the first few lanes, those of a mask) and not how it is done. Micro-kernels
are an exception, because they are written for registers of this kind. If lanes are threads, `Builder.lanes` is another
class with these methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_disc import mlir
from hlo_disc.kernel_ops import Compress
from hlo_disc.mlir import MlirValue, arith, ir, memref, vector
from hlo_disc.stitch.codegen.values.val import Scalar, Val

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.build import Builder

State = list[Val]
Join = Callable[[list[State], list[State]], list[State]]


class Lanes(ABC):
    """A lane model: how the lanes of vectors are held, combined, moved and counted."""

    def __init__(self, b: Builder):
        self.b = b

    @abstractmethod
    def type(self, lanes: int, element: ir.Type) -> ir.Type:
        """Return the type of a thread's part of a vector of so many lanes."""

    @abstractmethod
    def block(self, number: Val) -> Val:
        """Return the block that a thread works on, among those launched under one number."""

    @abstractmethod
    def once(self, build: Callable[[], object]) -> None:
        """Build code that one thread runs for the block."""

    @abstractmethod
    def numbers(self, lanes: int) -> Val:
        """Return the vector 0, 1, … lanes-1 of type index."""

    @abstractmethod
    def first(self, count: Scalar, lanes: int) -> Val:
        """Return the mask of the first `count` lanes."""

    @abstractmethod
    def reduce(self, kind: str, x: Val) -> Val:
        """Combine the lanes in any order, to a scalar; `kind` is a vector.kind."""

    @abstractmethod
    def fold(self, state: Sequence[State], join: Join) -> list[State]:
        """Combine the lanes in their order, to scalars: neighbours are joined, left and right, until one is left.

        state: lists of vectors, as `join` wants them.
        """

    def any(self, mask: Val) -> Val:
        """Whether the mask has a lane."""
        return self.reduce("or", mask)

    def count(self, mask: Val) -> Val:
        """Count the lanes of a mask."""
        ones = self.b.cast(arith.ExtUIOp, self.b.i32, mask)
        return self.b.cast(arith.IndexCastOp, self.b.index_type, self.reduce("add", ones))

    @abstractmethod
    def scan(
        self, xs: Sequence[Val], identities: Sequence[Val], combine: Callable[[State, State], State], reverse: bool
    ) -> State:
        """Combine in each lane all lanes up to it, or in reverse all from it on. `combine`: (before, after)."""

    @abstractmethod
    def last(self, x: Val, reverse: bool) -> Val:
        """Return the last lane of a scan, in all lanes."""

    @abstractmethod
    def elements(self, x: Val) -> list[Val]:
        """Return a thread's elements of a vector, one by one."""

    @abstractmethod
    def every_second(self, x: Val, first: int) -> Val:
        """Return the lanes `first`, `first` + 2, …; a scalar if there are two."""

    @abstractmethod
    def in_turn(self, x: Val, y: Val) -> Val:
        """Interleave the lanes of x and y."""

    @abstractmethod
    def is_multiple(self, x: Scalar, number: int) -> None:
        """Note that a size is a multiple of a number, for models that make use of it."""

    def load_one(self, buffer: Val, at: Val, fixed: bool) -> Val:
        """Load an element, see `Builder.load`."""

        def build() -> MlirValue:
            element: MlirValue = memref.LoadOp(buffer.v, [at.v]).result
            return element

        return self.b.pure(build, 0, [buffer, at], speculate=False, key="load") if fixed else Val(self.b, build())

    def store_one(self, x: Val, buffer: Val, at: Val) -> None:
        """Store a scalar as an element."""
        self.once(lambda: memref.StoreOp(x.v, buffer.v, [at.v]))

    @abstractmethod
    def load(self, buffer: Val, at: Val, lanes: int, mask: Val | None, fixed: bool) -> Val:
        """Load consecutive elements, see `Builder.load`."""

    @abstractmethod
    def load_strided(
        self, buffer: Val, base: Scalar, stride: int, lanes: int, mask: Val | None = None, fixed: bool = False
    ) -> Val:
        """Load every `stride`th element from `base` on."""

    @abstractmethod
    def store(self, x: Val, buffer: Val, at: Val, mask: Val | None) -> None:
        """Store the lanes of x to consecutive elements."""


class SimdLanes(Lanes):
    """The lane model of a SIMD machine: the lanes of one vector."""

    def __init__(self, b: Builder):
        super().__init__(b)
        self._types: dict[tuple[int, ir.Type], ir.Type] = {}
        self._reassoc = mlir.attribute("#arith.fastmath<reassoc,nsz>")

    def type(self, lanes: int, element: ir.Type) -> ir.Type:
        key = (lanes, element)
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = ir.VectorType.get([lanes], element)
        return found

    # A block is one thread's.

    def block(self, number: Val) -> Val:
        return number

    def once(self, build: Callable[[], object]) -> None:
        build()

    # Which lane is which.

    def numbers(self, lanes: int) -> Val:
        type_ = self.b.vec(lanes, self.b.index_type)
        return self.b.pure(lambda: vector.StepOp(type_).result, lanes, [])

    def first(self, count: Scalar, lanes: int) -> Val:
        type_, n = self.b.vec(lanes, self.b.i1), self.b.index(count)
        return self.b.pure(lambda: vector.CreateMaskOp(type_, [n.v]).result, lanes, [n])

    # All lanes as one.

    def reduce(self, kind: str, x: Val) -> Val:
        flags = {"fastmath": self._reassoc} if self.b.is_float(x) else {}
        attr, element = ir.Attribute.parse(f"#vector.kind<{kind}>"), x.element
        return self.b.pure(lambda: vector.ReductionOp(element, attr, x.v, **flags).result, 0, [x])

    def fold(self, state: Sequence[State], join: Join) -> list[State]:
        state = list(state)
        while state[0][0].lanes:
            halves = [[[self.every_second(x, k) for x in xs] for k in (0, 1)] for xs in state]
            state = join([left for left, _ in halves], [right for _, right in halves])
        return state

    # Each lane with those before it.

    def scan(
        self, xs: Sequence[Val], identities: Sequence[Val], combine: Callable[[State, State], State], reverse: bool
    ) -> State:
        """Scan at distances of 1, 2, 4 …: log2(lanes) combinations."""
        xs, distance = list(xs), 1
        while distance < xs[0].lanes:
            before = [self._moved(x, fill, distance, reverse) for x, fill in zip(xs, identities, strict=True)]
            xs = combine(before, xs)
            distance *= 2
        return xs

    def _moved(self, x: Val, fill: Val, distance: int, reverse: bool) -> Val:
        """Move the lanes by `distance`, towards where the scan comes later."""
        n = x.lanes
        if reverse:
            return self.shuffle(x, fill, range(distance, n + distance))
        return self.shuffle(fill, x, range(n - distance, 2 * n - distance))

    def last(self, x: Val, reverse: bool) -> Val:
        return self.shuffle(x, x, [0 if reverse else x.lanes - 1] * x.lanes)

    # Lanes in other places.

    def shuffle(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        """Shuffle the lanes of x ++ y."""
        return self.b.pure(lambda: vector.ShuffleOp(x.v, y.v, list(lanes)).result, len(lanes), [x, y])

    def take(self, x: Val, k: int) -> Val:
        """Return one lane as a scalar."""
        return self.b.pure(lambda: vector.ExtractOp(x.v, [], [k]).result, 0, [x])

    def elements(self, x: Val) -> list[Val]:
        return [self.take(x, k) for k in range(x.lanes)]

    def every_second(self, x: Val, first: int) -> Val:
        return self.take(x, first) if x.lanes == 2 else self.shuffle(x, x, range(first, x.lanes, 2))

    def in_turn(self, x: Val, y: Val) -> Val:
        return self.shuffle(x, y, [k for i in range(x.lanes) for k in (i, x.lanes + i)])

    def reversed(self, x: Val) -> Val:
        return self.shuffle(x, x, range(x.lanes - 1, -1, -1))

    # Between lanes and memory.

    def is_multiple(self, x: Scalar, number: int) -> None:
        """Do nothing: a vector in one register needs no more alignment than an element."""

    def load(self, buffer: Val, at: Val, lanes: int, mask: Val | None, fixed: bool) -> Val:
        element = ir.MemRefType(buffer.v.type).element_type
        type_, operands = self.type(lanes, element), [buffer, at]
        if mask is not None:
            zero = self.b.const(0, element, lanes)
            operands.append(mask)

        def build() -> MlirValue:
            if mask is None:
                op = vector.LoadOp(type_, buffer.v, [at.v])
            else:
                op = vector.MaskedLoadOp(type_, buffer.v, [at.v], mask.v, zero.v)
            part: MlirValue = op.result
            return part

        return self.b.pure(build, lanes, operands, speculate=False) if fixed else Val(self.b, build(), lanes)

    def store(self, x: Val, buffer: Val, at: Val, mask: Val | None) -> None:
        if mask is None:
            vector.StoreOp(x.v, buffer.v, [at.v])
        else:
            vector.MaskedStoreOp(buffer.v, [at.v], mask.v, x.v)

    def load_strided(
        self, buffer: Val, base: Scalar, stride: int, lanes: int, mask: Val | None = None, fixed: bool = False
    ) -> Val:
        """Load every `stride`th element from `base` on, by the vectors with them, all of whose elements exist."""
        step = abs(stride)
        if stride < 0:
            base = base + stride * (lanes - 1)
            mask = mask and self.reversed(mask)
        x: Val | None = None
        for k in range(step):
            # The last vector ends with the last element.
            start = min(k * lanes, (step - 1) * (lanes - 1))
            here = {lane: lane * step - start for lane in range(lanes) if k * lanes <= lane * step < (k + 1) * lanes}
            part = self.b.load(buffer, base + start, lanes, mask and self._at(mask, here), fixed)
            if x is None:
                x = part
            x = self.shuffle(x, part, [lanes + here[lane] if lane in here else lane for lane in range(lanes)])
        assert x is not None
        return x if stride > 0 else self.reversed(x)

    def _at(self, mask: Val, places: Mapping[int, int]) -> Val:
        """Move the mask's lanes to other positions."""
        n = mask.lanes
        lanes = {place: lane for lane, place in places.items()}
        none = self.b.const(0, self.b.i1, n)
        return self.shuffle(mask, none, [lanes.get(place, n) for place in range(n)])

    def append(self, xs: Sequence[Val], chosen: Val, buffers: Sequence[Val], end: Val, register_bits: int) -> Val:
        """Store the chosen lanes of each x to its buffer from `end` on; returns where they end.

        Up to `lanes` elements behind the end may be overwritten. register_bits: the size of a register whose lanes the
        machine moves together; 0 for none.
        """
        if not register_bits:
            for k, bit in enumerate(self.elements(chosen)):
                for x, buffer in zip(xs, buffers, strict=True):
                    self.b.store(self.take(x, k), buffer, end)
                end = end + self.b.cast(arith.IndexCastUIOp, self.b.index_type, bit)
            return end
        # Register by register: of wider vectors LLVM stores the rest to addresses that are not as aligned as it says.
        lanes = min(chosen.lanes, *(register_bits // ir.IntegerType(x.element).width for x in xs))
        for begin in range(0, chosen.lanes, lanes):
            part = range(begin, begin + lanes)
            mask = self.shuffle(chosen, chosen, part)
            for x, buffer in zip(xs, buffers, strict=True):
                self.b.store(self._compress(self.shuffle(x, x, part), mask), buffer, end)
            end = end + self.count(mask)
        return end

    def _compress(self, x: Val, mask: Val) -> Val:
        """Move the lanes of x that the mask has to the front; the others are undefined. x fits a register."""
        return Val(self.b, Compress().build(x.v, mask.v).results[0], x.lanes)
