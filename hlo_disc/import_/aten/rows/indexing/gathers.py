"""Gathers at indices from data: indexing, gathers, embeddings; and ops that gather at known indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _index_select(r: AtenReader, x: Array, axis: int, index: Array) -> Array:
    if not x.rank:
        return x
    return places.taken(r, x, places.indexed(r, x.shape, [None] * (axis % x.rank) + [index.flat()]))


def _gather(r: AtenReader, x: Array, axis: int, index: Array, **_: object) -> Array:
    """Gather along an axis. On other axes where the index is shorter than x, the first elements of x count."""
    if any(size is ZERO for size in index.shape):
        return r.full(0, x.dtype, r.out.shape)
    x, index = (y.reshape(y.shape or (ONE,)) for y in (x, index))
    axis %= x.rank
    for a, (size, limit) in enumerate(zip(index.shape, x.shape, strict=True)):
        if a != axis and size is not limit:
            r.at_most(size, limit, f"dimension {a} of the index has {{0}} and that of the operand only {{1}}")
            x = x.slice(a, 0, size)
    return places.taken(r, x, places.along(r, x.shape, axis, index)).reshape(r.out.shape)


def _take(r: AtenReader, x: Array, index: Array) -> Array:
    line = x.flat()
    return places.taken(r, line, places.indexed(r, line.shape, [index]))


def _diagonal(r: AtenReader, x: Array, offset: Size = 0, a: int = 0, b: int = 1) -> Array:
    return places.taken(r, x, places.diagonal(r, x.shape, offset, a, b, r.out.shape[-1]))


ROWS: dict[str, Callable[..., Any]] = {
    "aten.index_select.default": _index_select,
    "aten.embedding.default": lambda r, table, index, *_: places.rows(r, table, index),
    "aten.gather.default": _gather,
    "aten.take.default": _take,
    "aten.diagonal.default": _diagonal,
    "aten.diagonal_copy.default": _diagonal,
}
