"""Gradients of paddings that repeat what is at a tensor's edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.tensors import I64

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _replication_backward(r: AtenReader, gradient: Value, x: Value, pad: Sequence[Dim | int]) -> Value:
    """Add gradients before an axis to its first element, and those behind it to its last one, axis by axis.

    `pad` begins with the last axis, (before, after) of each; negative ones have cut elements off.
    """
    made = r.convert(gradient, computed(gradient.dtype))
    for k in range(len(pad) // 2):
        axis = x.rank - 1 - k
        place = r.op("subtract", r.iota(I64, (made.shape[axis],)), r.scalar(pad[2 * k], I64))
        place = r.op("minimum", r.op("maximum", place, 0), r.scalar(x.shape[axis] - 1, I64))
        shape = (*made.shape[:axis], x.shape[axis], *made.shape[axis + 1 :])
        where = places.indexed(r, shape, [None] * axis + [place], wrap=False)
        made = places.put(r, r.full(0, made.dtype, shape), where, made, "add")
    return r.convert(made, r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    f"aten.replication_pad{rank}d_backward.default": _replication_backward for rank in (1, 2, 3)
}
