"""Axes and sizes of one data format in another, as "NHWC" in "NCHW"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.import_.handlers.arrays import Array, array
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.folding import folding

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

_OUTSIDE = "NC"  # what has no windows


def _formats(op: Node) -> tuple[str, str]:
    return op.attributes.get("src_format", "NHWC"), op.attributes.get("dst_format", "NCHW")


def _new_axes(op: Node) -> np.ndarray:
    """Return the position of each axis in the other format."""
    source, target = _formats(op)
    return np.array([target.index(name) for name in source])


def _axes(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    table = Array(r, r.constant(_new_axes(op).astype(x.dtype)))
    return table.take(where(x < 0, x + table.shape[0], x), 0).value


def _axes_known(r: Reader, op: Node, x: np.ndarray) -> np.ndarray | None:
    if any(not d.is_const for d in x.reshape(-1)):
        return None
    table = _new_axes(op)
    made = np.empty(x.shape, object)
    made[...] = np.frompyfunc(lambda d: type(d).const(int(table[d.value])), 1, 1)(x)
    return made


def _order(r: Reader, op: Node, count: int) -> list[int]:
    """Return the order of a vector's rows in the other format: one for each axis, or one for each axis with windows."""
    source, target = _formats(op)
    if count == len(source) - len(_OUTSIDE):
        source, target = ("".join(name for name in text if name not in _OUTSIDE) for text in (source, target))
    if count != len(source):
        r.unsupported(f"{count} rows for the format {source}")
    return [source.index(name) for name in target]


def _permuted(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    order = _order(r, op, r.constants(x.shape[:1], "the number of rows")[0])
    return x.take(Array(r, r.constant(np.array(order, np.int64))), 0).value


HANDLERS: dict[str, Handler] = {
    "DataFormatDimMap": folding(_axes_known, _axes),
    "DataFormatVecPermute": folding(lambda r, op, x: x[_order(r, op, len(x))], _permuted),
}
