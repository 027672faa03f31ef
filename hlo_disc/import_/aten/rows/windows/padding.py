"""Gradients of paddings that repeat the elements at a tensor's edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _replication_backward(r: AtenReader, gradient: Array, x: Array, pad: Sequence[Dim | int]) -> Array:
    """Add the gradients before an axis to its first element, and those behind it to its last one, axis by axis.

    `pad` begins with the last axis, (before, after) of each; negative ones have cut elements off.
    """
    made = gradient.cast(computed(gradient.dtype))
    for k in range(len(pad) // 2):
        axis = x.rank - 1 - k
        place = iota(r, (made.shape[axis],), 0, I64) - pad[2 * k]
        place = place.maximum(0).minimum(x.shape[axis] - 1)
        shape = (*made.shape[:axis], x.shape[axis], *made.shape[axis + 1 :])
        made = places.added(r, shape, [None] * axis + [place], made)
    return made.cast(r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    f"aten.replication_pad{rank}d_backward.default": _replication_backward for rank in (1, 2, 3)
}
