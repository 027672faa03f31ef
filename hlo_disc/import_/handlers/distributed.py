"""Collectives and device numbers, which have one meaning on a single device, and communication, which has none.

A program runs on replica 0, partition 0, which is alone in its group. A group with further devices is refused; so is
communication with a host process that does not exist here. Source of the meanings: the StableHLO specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.handlers.arrays import Array, filled
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import ints
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


def _alone(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    """Return every operand of a collective over a group of one."""
    groups = _groups(r, op)
    others = sorted({number for number in groups if number > 0})
    if others:
        r.unsupported(f"its replica groups name the devices {others}, but a program runs on one device, number 0")
    return _typed(r, op, [r.data(x) for x in operands])


def _groups(r: Reader, op: ir.OpView) -> tuple[int, ...]:
    if "replica_groups" not in op.attributes:
        return ()
    if not isinstance(op.attributes["replica_groups"], ir.DenseElementsAttr):
        r.unsupported("its replica groups are axes of a mesh, but a program runs on one device")
    return r.attr(op, "replica_groups", ints)


def _typed(r: Reader, op: ir.OpView, values: list[Value]) -> list[Value]:
    """Convert values to the types that the module writes: a reduction's may be wider than its operand's."""
    dtypes = [r.decoder.tensor(result.type)[0] for result in op.results]
    if len(values) == len(dtypes):
        values = [Array(r, x).cast(t).value for x, t in zip(values, dtypes, strict=True)]
    r.need_types(op, values)
    return values


def _permute(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    """Return what device 0 sends to itself; zeros when nothing is sent to it."""
    pairs = r.attr(op, "source_target_pairs", ints)
    if any(number > 0 for number in pairs):
        r.unsupported("it sends between several devices, but a program runs on one device, number 0")
    values = [r.data(x) for x in operands]
    return _typed(r, op, values if pairs else [filled(r, 0, x.dtype, x.shape).value for x in values])


def _number(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return r.constant(np.zeros((), np.uint32))


def _host(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    r.unsupported("there is no host program that a compiled function could talk to")


def _quantized(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    r.unsupported("quantized types are not supported: stablehlo-legalize-quant-to-math rewrites them to plain integers")


# What is known and has no meaning here.
UNSUPPORTED = (_host, _quantized)

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        (
            "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter",
            "stablehlo.collective_broadcast", "stablehlo.cross-replica-sum",
        ),
        _alone,
    ),
    "stablehlo.collective_permute": _permute,
    **dict.fromkeys(("stablehlo.partition_id", "stablehlo.replica_id"), _number),
    **dict.fromkeys((f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv")), _host),
    **dict.fromkeys((f"stablehlo.uniform_{name}" for name in ("quantize", "dequantize")), _quantized),
}  # fmt: skip
