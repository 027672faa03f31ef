"""Ops on units that multiply small matrices, built from `kernel_ops`.

A `Device` says which of them there are; nothing else in `codegen` knows any.
"""

from __future__ import annotations

from hlo_disc.kernel_ops import Extension, TileAction
from hlo_disc.mlir import MlirValue, ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val


def apply(b: Builder, op: Extension, *operands: Val) -> Val:
    """Build an op. Its result has the lanes of the first operand, or its own type."""
    first = operands[0]

    def build() -> MlirValue:
        result: MlirValue = op.build(*(x.v for x in operands)).results[0]
        return result

    if op.pure:
        return b.pure(build, first.lanes, operands)
    made = build()
    return Val(b, made, first.lanes if made.type == first.type else ir.VectorType(made.type).shape[0])


def act(action: TileAction, *operands: Val) -> None:
    """Emit an action on registers of small matrices."""
    action.build(*(x.v for x in operands))


def address(b: Builder, buffer: Val, i: Scalar, itemsize: int) -> tuple[Val, Val]:
    """Return a buffer's pointer, and the byte offset of an element."""
    cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[b.pointer], operands=[buffer.v])
    return Val(b, cast.results[0]), b.wide(i * itemsize)
