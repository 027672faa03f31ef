"""Segments of an axis, each combined to one element; their lengths are data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import ONE, dim_product
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import Operand
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_KINDS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


def _segment_reduce(
    r: AtenReader, x: Array, reduction: str, *, lengths: Array | None = None, indices: Array | None = None,
    offsets: Array | None = None, axis: int = 0, unsafe: bool = False, initial: Operand | None = None,
) -> Array:  # fmt: skip
    """Reduce segments. Lines with segments of their own, on the axes before, are joined to one long line."""
    if lengths is None:
        if offsets is None:
            r.unsupported("runs by the index of each element are not supported")
        count = offsets.shape[-1]
        lengths = offsets.slice(-1, 1, count) - offsets.slice(-1, 0, count - 1)
    axis, wide, kind = axis % x.rank, computed(x.dtype), _KINDS[reduction]
    lengths = lengths.cast(I64)
    whole = lengths.sum(-1) == x.shape[axis]
    natural = (lengths >= 0).reduce("and", None)
    r.data.must(whole.reduce("and", None) & natural, "runs must be as long as their axis, together")
    lengths = lengths.flat()
    rows = x.reshape((dim_product(x.shape[: axis + 1]), *x.shape[axis + 1 :])).cast(wide)
    run = found(r, lengths.cumulative("add", 0), iota(r, rows.shape[:1], 0, I64), True)
    shape = (lengths.shape[0], *rows.shape[1:])
    start = r.scalar(identity(kind, wide) if initial is None else initial, wide)
    made = places.put(r, start.broadcast(shape), places.indexed(r, shape, [run], wrap=False), rows, kind)
    if reduction == "mean":
        runs = lengths.reshape((*shape[:1], *[ONE] * (len(shape) - 1)))
        made = made / runs.maximum(1).cast(wide).broadcast(shape)
        if initial is None:
            made = where((runs == 0).broadcast(shape), np.nan, made)
    return made.reshape(r.out.shape).cast(r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {"aten.segment_reduce.default": _segment_reduce}
