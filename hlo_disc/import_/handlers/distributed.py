"""Collectives and device numbers, which have one meaning on a single device, and what has none.

A program runs on replica 0, partition 0, which is alone in its group. A group with further devices is refused; so is
communication with a host process that does not exist here. Source of the meanings: the StableHLO specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.import_.decode import ints
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader


def _alone(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """A collective over a group of one gives every operand back."""
    groups = r.attr(op, "replica_groups", ints) if "replica_groups" in op.attributes else ()
    others = sorted({number for number in groups if number > 0})
    if others:
        r.unsupported(f"its replica groups name the devices {others}, but a program runs on one device, number 0")
    return operands


def _permute(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """What device 0 sends to itself; zeros when nothing is sent to it."""
    pairs = r.attr(op, "source_target_pairs", ints)
    if any(number > 0 for number in pairs):
        r.unsupported("it sends between several devices, but a program runs on one device, number 0")
    return operands if pairs else [_zeros(r, r.data(x)) for x in operands]


def _zeros(r: Reader, x: Value) -> Value:
    return r.emit("broadcast", (r.constant(np.zeros((), x.dtype)),), shape=x.shape, dims=())


def _number(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return r.constant(np.zeros((), np.uint32))


def _host(r: Reader, op: Any, operands: list[Operand]) -> Result:
    r.unsupported("there is no host program that a compiled function could talk to")


def _quantized(r: Reader, op: Any, operands: list[Operand]) -> Result:
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
