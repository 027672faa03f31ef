"""Groups that a library computes: no kernel, but a host call that is given the buffers and the sizes of all of them.

A custom call runs the handler that it names; a Fourier transform runs the runtime's own, under a name of ours.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hlo_disc.abi import LIBRARY_CALL
from hlo_disc.compiled.program import Alias, Attribute, BufferType, LibraryCall
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith, ir, memref
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.variant import Choice, Variant


@frozen
class LibraryVariant(Variant):
    """The only form of a group of kind "call". orders: for each buffer its axes as they lie in memory."""

    group: Group
    call: LibraryCall
    orders: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return self.call.target

    def key(self) -> tuple[Hashable, ...]:
        return ("call", self.call, self.orders, self.group.key)

    def build(self, b: Builder, name: str) -> None:
        """Do nothing: the handler is the library's."""

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        (op,) = self.group.ops
        at = dict(zip((*self.group.inputs, *self.group.outputs), buffers, strict=True))
        values = (*op.operands, *op.results)
        known: list[Scalar] = []
        for value, order in zip(values, self.orders, strict=True):
            seen = dict(zip(order, value.shape, strict=True))
            known += [sizes(seen[axis]) for axis in range(value.rank)]
        _emit(b, self.call, [at[value] for value in values], known)


def _emit(b: Builder, call: LibraryCall, buffers: Sequence[Val], sizes: Sequence[Scalar]) -> None:
    """Call a library function, in a host function that may fail; see ral.h. Equal calls get one number."""
    number = b.module.library.setdefault(call, len(b.module.library))
    addresses = [Val(b, memref.ExtractAlignedPointerAsIndexOp(x.v).result) for x in buffers]
    b.module.declare(LIBRARY_CALL, [b.pointer, b.i32, b.buffer_type(b.i64)], [b.i32])
    b.checked_call(LIBRARY_CALL, b.runtime, b.const(number, b.i32), record(b, [*addresses, *sizes]))


def record(b: Builder, words: Sequence[Scalar]) -> Val:
    """Store words one after another in host memory, as functions of the runtime take them."""
    made = memref.AllocaOp(ir.MemRefType.get([len(words)], b.i64), [], []).result
    for i, word in enumerate(words):
        memref.StoreOp(b.cast(arith.IndexCastOp, b.i64, b.index(word)).v, made, [b.index(i).v])
    return Val(b, memref.CastOp(b.buffer_type(b.i64), made).result)


def library_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return the call of a group of one op."""
    (op,) = group.ops
    target, config, aliases = _described(op)
    called = next((x.callback.name for x in config if x.callback is not None), f"custom_call @{target}")
    where = called if op.name == "custom_call" else op.name
    where += f" at {op.loc}" if op.loc else ""
    if not device.host_memory:
        raise UnsupportedOpError(f"{where}: library functions run on the CPU only; compile for the CPU")
    own = (tuple(range(x.rank)) for x in (*op.operands, *op.results))
    given = op.attrs["operand_orders"] + op.attrs["result_orders"] if op.name == "custom_call" else tuple(own)
    call = LibraryCall(target, where, config, _types(op.operands), _types(op.results), aliases)
    return [Choice(LibraryVariant(group, call, given))]


def _described(op: Op) -> tuple[str, tuple[Attribute, ...], tuple[Alias, ...]]:
    if op.name == "custom_call":
        return op.attrs["target"], _attributes(op.attrs["config"]), tuple(Alias(*x) for x in op.attrs["aliases"])
    axes = Attribute("axes", "scalar", "int64", np.array(len(op.attrs["length"]), np.int64).tobytes().hex())
    return FFT_CALL, (axes, Attribute("transform", "string", text=op.attrs["transform"])), ()


def _attributes(config: Sequence[tuple[str, str, str, Any]]) -> tuple[Attribute, ...]:
    """See import_/handlers/config.py."""
    made = []
    for name, kind, dtype, content in config:
        match kind:
            case "dictionary":
                made.append(Attribute(name, kind, dtype, entries=_attributes(content)))
            case "callable":
                made.append(Attribute(name, kind, dtype, callback=content))
            case _:
                made.append(Attribute(name, kind, dtype, content))
    return tuple(made)


def _types(values: Sequence[Value]) -> tuple[BufferType, ...]:
    return tuple(BufferType(x.dtype.name, x.rank) for x in values)
