"""CHLO's `broadcast_*` ops: the operands are broadcast to one shape, then StableHLO's op is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.import_.handlers import elementwise
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.handlers.views import make_broadcast
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import ints

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

_OPS = (
    "add and atan2 compare complex divide maximum minimum multiply or power remainder select shift_left "
    "shift_right_arithmetic shift_right_logical subtract xor"
).split()
# What legalising makes of the ops that StableHLO has not: a custom call that has the operands in one shape as results.
OPERANDS = "broadcast_operands"


def _broadcast(name: str) -> Handler:
    handler = elementwise.HANDLERS[f"stablehlo.{name}"]
    return lambda r, op, operands: handler(r, op, _operands(r, op, operands))


def _operands(r: Reader, op: ir.OpView, operands: list[Operand]) -> list[Operand]:
    """Broadcast the operands. `broadcast_dimensions` are the axes of the operand of lower rank, by default the last."""
    values = [r.data(x) for x in operands]
    rank = max(x.rank for x in values)
    axes = [tuple(range(rank - x.rank, rank)) for x in values]
    if "broadcast_dimensions" in op.attributes:
        given = r.attr(op, "broadcast_dimensions", ints)
        short = min(x.rank for x in values)
        if len(given) != short or list(given) != sorted(set(given)) or not set(given) <= set(range(rank)):
            r.unsupported(f"broadcast_dimensions {given} must be {short} axes of rank {rank} in order")
        axes = [given if x.rank < rank else right for x, right in zip(values, axes, strict=True)]
    shape: Shape = (ONE,) * rank
    for x, where in zip(values, axes, strict=True):
        sizes = dict(zip(where, x.shape, strict=True))
        shape = tuple(r.wider(n, sizes.get(axis, ONE), axis) for axis, n in enumerate(shape))
    return [make_broadcast(r, x, shape, where) for x, where in zip(values, axes, strict=True)]


HANDLERS: dict[str, Handler] = {
    **{f"chlo.broadcast_{name}": _broadcast(name) for name in _OPS},
    f"chlo.{OPERANDS}": _operands,
}
