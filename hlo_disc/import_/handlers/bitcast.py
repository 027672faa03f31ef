"""`bitcast_convert`, between elements of any two widths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _bitcast_convert(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, dtype = r.data(operands[0]), r.result_type(op)[0]
    source, target = bit_width(x.dtype), bit_width(dtype)
    if max(source, target) % min(source, target):
        r.unsupported(f"of {x.dtype} and {dtype} neither is a whole number of the other")
    if source < target:
        if not x.shape:
            r.unsupported(f"a scalar of {source} bits is no element of {target}")
        r.equal(x.shape[-1], Dim.const(target // source), "the last dimension and the parts of an element")
    return r.emit("bitcast_convert", (x,), dtype=dtype)


HANDLERS: dict[str, Handler] = {"stablehlo.bitcast_convert": _bitcast_convert}
