"""Reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.import_.decode import ints
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

_MONOIDS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "and": "and", "or": "or"}


def _reduce(r: Reader, op: Any, operands: list[Operand]) -> Value:
    if len(operands) != 2:
        r.unsupported("a reduction of several operands at once is not supported")
    x, init = map(r.data, operands)
    kind = _monoid(op)
    if kind is None or r.result_type(op)[0] != x.dtype:
        r.unsupported(f"a reduction must be one of {', '.join(_MONOIDS)} in the operand's type")
    if x.dtype == np.bool_:
        kind = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(kind, kind)
    return r.emit("reduce", (x, init), dims=tuple(sorted(r.attr(op, "dimensions", ints))), kind=kind)


def _monoid(op: Any) -> str | None:
    block = op.regions[0].blocks[0]
    body = list(block.operations)
    if len(body) != 2 or set(body[0].operands) != set(block.arguments):
        return None
    if list(body[1].operands) != list(body[0].results):
        return None
    return _MONOIDS.get(body[0].operation.name.removeprefix("stablehlo."))


HANDLERS: dict[str, Handler] = {
    "stablehlo.reduce": _reduce,
}
