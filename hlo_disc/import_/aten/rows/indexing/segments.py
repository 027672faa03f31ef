"""Runs of an axis, each combined to one element: how long they are is data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import I64, Operand
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_KINDS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


def _segment_reduce(
    r: AtenReader, x: Value, reduction: str, *, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False, initial: Operand | None = None,
) -> Value:  # fmt: skip
    """Lines with runs of their own, on the axes before, are one after the other in a long one."""
    if lengths is None:
        if offsets is None:
            r.unsupported("runs by the index of each element are not supported")
        count = offsets.shape[-1]
        lengths = r.op("subtract", r.slice(offsets, -1, 1, count), r.slice(offsets, -1, 0, count - 1))
    axis, wide, kind = axis % x.rank, computed(x.dtype), _KINDS[reduction]
    lengths = r.convert(lengths, I64)
    whole = r.compare(r.reduce(lengths, -1, "add"), "EQ", r.scalar(x.shape[axis], I64))
    natural = r.reduce(r.compare(lengths, "GE", 0), None, "and")
    r.data.must(r.op("and", r.reduce(whole, None, "and"), natural), "runs must be as long as their axis, together")
    lengths = r.reshape(lengths, (dim_product(lengths.shape),))
    rows = r.convert(r.reshape(x, (dim_product(x.shape[: axis + 1]), *x.shape[axis + 1 :])), wide)
    run = found(r, r.cumulative(lengths, 0, "add"), r.iota(I64, rows.shape[:1]), True)
    shape = (lengths.shape[0], *rows.shape[1:])
    start = r.scalar(initial, wide) if initial is not None else r.constant(np.asarray(identity(kind, wide)))
    made = places.put(r, r.broadcast(start, shape), places.indexed(r, shape, [run], wrap=False), rows, kind)
    if reduction == "mean":
        runs = r.reshape(lengths, (*shape[:1], *[ONE] * (len(shape) - 1)))
        made = r.op("divide", made, r.broadcast(r.convert(r.op("maximum", runs, 1), wide), shape))
        if initial is None:
            made = r.select(r.broadcast(r.compare(runs, "EQ", 0), shape), np.nan, made)
    return r.convert(r.reshape(made, r.out.shape), r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {"aten.segment_reduce.default": _segment_reduce}
