"""Memory of sizes known only at run time (`prepare/definitions.py`): `main` allocates it through the runtime, before
the first group that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hlo_disc.abi import ALLOCATE, BEYOND_MEMORY, FAILED, SCRATCH, TEMPORARY
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.mlir import arith, func, ir, memref
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.hostflow.memory import Slot


class LateMemory:
    """The memory that `main` allocates while it runs.

    places: the slot of each value. needs: fast memory of a group's blocks.
    outputs: values whose memory is an output of a late size, by its number and shape, which may not be the value's.
    counts: what a group's kernels count of such sizes.
    """

    def __init__(
        self,
        b: Builder,
        sizes: Sizes,
        places: Mapping[Value, Slot],
        outputs: Mapping[Value, tuple[int, Shape]],
        needs: Callable[[Group], Iterable[Dim]],
        counts: Callable[[Group], Iterable[Dim]],
    ):
        self.b, self.sizes, self.places, self.outputs = b, sizes, places, outputs
        self.needs, self.counts = needs, counts
        self._fail: Callable[..., None] | None = None
        self._slots: dict[Slot, Val] = {}
        self._had: set[Dim] = set()

    def prepare(self, group: Group, touched: Iterable[Value], memory: dict[Value, Val]) -> None:
        """Allocate memory that a group of the outermost scope needs and that does not exist yet."""
        for value in touched:
            if value in memory:
                continue
            if value in self.outputs:
                number, shape = self.outputs[value]
                memory[value] = self._allocate(number, self.sizes.shape(shape), self.b.memory_type(value.dtype))
            elif value in self.places:
                slot = self.places[value]
                if slot not in self._slots:
                    self._slots[slot] = self._allocate(TEMPORARY, [self._bytes(slot.size)], self.b.i8)
                memory[value] = self.b.retyped(self._slots[slot], self.b.memory_type(value.dtype))
        for need in self.needs(group):
            if need not in self._had:
                self._had.add(need)
                self._allocate(SCRATCH, [self._bytes(need)], self.b.i8)
        for size in self.counts(group):
            if size not in self._had:
                self._had.add(size)
                self._allocate(TEMPORARY, [self._or_beyond(size, 0)], self.b.i8)

    def _bytes(self, size: Dim) -> Scalar:
        return self._or_beyond(size, self.sizes(size))

    def _or_beyond(self, size: Dim, otherwise: Scalar) -> Scalar:
        """Return more bytes than any memory has if 64 bits do not hold the size."""
        fits = self.b.compare("<", self.sizes.bound(size), float(BEYOND_MEMORY))
        return self.b.select(fits, self.b.index(otherwise), self.b.index(BEYOND_MEMORY))

    def _allocate(self, what: int, sizes: Iterable[Scalar], element: ir.Type) -> Val:
        b = self.b
        words = [b.cast(arith.IndexCastOp, b.i64, b.index(x)) for x in sizes]
        record = memref.AllocaOp(ir.MemRefType.get([max(len(words), 1)], b.i64), [], []).result
        for i, word in enumerate(words):
            memref.StoreOp(word.v, record, [b.index(i).v])
        pointer = b.buffer_type(b.i64)
        b.module.declare(ALLOCATE, [b.pointer, b.i32, pointer], [b.pointer])
        given = [b.runtime.v, b.const(what, b.i32).v, memref.CastOp(pointer, record).result]
        made = func.CallOp([b.pointer], ALLOCATE, given).results[0]
        cast = ir.Operation.create(
            "builtin.unrealized_conversion_cast", results=[b.buffer_type(element)], operands=[made]
        )
        buffer = Val(b, cast.results[0])
        b.if_(b.is_null(buffer), lambda: self._no_memory()(b.runtime))
        return buffer

    def _no_memory(self) -> Callable[..., None]:
        """Build (call): let `main` return FAILED."""
        if self._fail is None:
            with self.b.module.private_function("no_memory", [self.b.pointer], may_fail=True, status=FAILED) as (
                _,
                call,
            ):
                self._fail = call
        return self._fail
