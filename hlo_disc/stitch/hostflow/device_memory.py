"""Elements of a device's memory in host code: the runtime copies them, one at a time.

The host flow computes conditions, counters and sizes in registers. What such scalars start from, and what kernels read
of them, lies in memory; a lane model of its own says how the host gets there.
"""

from __future__ import annotations

from hlo_disc.abi import READ, WRITE
from hlo_disc.mlir import ir, memref
from hlo_disc.stitch.codegen.lanes import SimdLanes
from hlo_disc.stitch.codegen.values.val import Val


class DeviceMemory(SimdLanes):
    """A lane model for scalars in buffers that the host cannot access."""

    def load_one(self, buffer: Val, at: Val, fixed: bool) -> Val:
        held = self._held(buffer)
        self._copy(READ, self.b.retyped(held, self.b.i8), self._address(buffer, at), buffer)
        return Val(self.b, memref.LoadOp(held.v, [self.b.index(0).v]).result)

    def store_one(self, x: Val, buffer: Val, at: Val) -> None:
        held = self._held(buffer)
        memref.StoreOp(x.v, held.v, [self.b.index(0).v])
        self._copy(WRITE, self._address(buffer, at), self.b.retyped(held, self.b.i8), buffer)

    def _held(self, buffer: Val) -> Val:
        """Return an element on the host's stack."""
        element = ir.MemRefType(buffer.v.type).element_type
        made = memref.AllocaOp(ir.MemRefType.get([1], element), [], []).result
        return Val(self.b, memref.CastOp(self.b.buffer_type(element), made).result)

    def _address(self, buffer: Val, at: Val) -> Val:
        size = _size(buffer)
        return self.b.view(self.b.retyped(buffer, self.b.i8), at * size, self.b.i8, size)

    def _copy(self, function: str, to: Val, source: Val, buffer: Val) -> None:
        b = self.b
        types = [b.pointer, to.v.type, source.v.type, b.i64]
        b.module.declare(function, types, [b.i32])
        b.checked_call(function, b.runtime, to, source, b.const(_size(buffer), b.i64))


def _size(buffer: Val) -> int:
    """Return the bytes of an element."""
    element = ir.MemRefType(buffer.v.type).element_type
    assert isinstance(element, (ir.FloatType, ir.IntegerType))
    return element.width // 8
