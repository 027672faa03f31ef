"""Bags of embeddings: sums, means or maxima of a table's rows, of which each bag has a run of the indices.

Sums are made in float32 where the table has 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import is_just
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_SUM, _MEAN, _MAX = range(3)
_NONE = 2**31 - 1


def _bags(
    r: AtenReader, table: Array, index: Array, offsets: Array, _: bool = False, mode: int = _SUM, __: bool = False,
    weights: Array | None = None, ___: bool = False, padding: int = -1,
) -> list[Array]:  # fmt: skip
    """Return (bags, the bag of each index, the number of rows of each bag, for maxima the row of each number).

    Of sums PyTorch does not count. It says that there is a count for the end of the last bag, and gives none.
    """
    shape, dtype, wide = r.outs[0].shape, r.outs[0].dtype, computed(table.dtype)
    bag = _bag(r, offsets.slice(0, 0, shape[0]), index)
    kept = index != padding
    count = places.added(r, shape[:1], [bag], kept.cast(I64))
    rows = places.rows(r, table, index).cast(wide)
    if weights is not None:
        rows = rows * weights.cast(wide).expand(-1)
    of_index, size, largest = r.outs[1:]
    told = r.full(0, I64, shape[:1]) if mode == _SUM else count
    told = told.pad([0], [size.shape[0] - shape[0]], 0)
    if mode == _MAX:
        made, place = _largest(r, rows, bag, kept, index, count, shape)
    else:
        made, place = places.added(r, shape, [bag], where(kept.expand(-1), rows, 0)), told
    if mode == _MEAN:
        made = made / count.maximum(1).cast(wide).expand(-1)
    number = bag.slice(0, 0, 0) if of_index.shape[0] is ZERO else bag
    if place.rank != len(largest.shape) or place.shape[0] is not largest.shape[0]:
        place = r.full(0, largest.dtype, largest.shape)
    return [
        made.cast(dtype), number.cast(of_index.dtype), told.cast(size.dtype),
        place.cast(largest.dtype),
    ]  # fmt: skip


def _bag(r: AtenReader, starts: Array, index: Array) -> Array:
    """Find the bag of each index: the last one that starts before it."""
    return found(r, starts, iota(r, index.shape, 0, starts.dtype), True) - 1


def _largest(
    r: AtenReader, rows: Array, bag: Array, kept: Array, index: Array, count: Array, shape: Shape
) -> tuple[Array, Array]:
    """Return the largest numbers of each bag, and the first row of the table that has them; 0 for an empty bag."""
    targets = places.indexed(r, shape, [bag], wrap=False)
    low = r.full(-np.inf, rows.dtype, shape)
    most = places.put(r, low, targets, where(kept.expand(-1), rows, -np.inf), "max")
    number = iota(r, rows.shape, 0, I32)
    is_it = kept.expand(-1) & (rows == places.taken(r, most, targets))
    first = places.put(r, r.full(_NONE, I32, shape), targets, where(is_it, number, _NONE), "min")
    row = places.rows(r, index, first)
    empty = (count == 0).expand(-1)
    return where(empty, 0, most), where(empty, 0, row)


def _backward_of(
    r: AtenReader, gradient: Array, index: Array, offsets: Array, bag: Array, count: Array, largest: Array,
    rows: Dim | int, by_frequency: bool, mode: int, sparse: bool, weights: Array | None, padding: int = -1,
) -> Array:  # fmt: skip
    if sparse:
        r.unsupported("sparse gradients are not supported")
    if bag.shape[0] is ZERO:  # the forward op had no use for it
        bag = _bag(r, offsets.slice(0, 0, gradient.shape[0]), index)
    return _backward(r, gradient, index, bag, count, largest, rows, by_frequency, mode, weights, padding)


def _backward(
    r: AtenReader, gradient: Array, index: Array, bag: Array, count: Array, largest: Array, rows: Dim | int,
    by_frequency: bool, mode: int, weights: Array | None, padding: int = -1,
) -> Array:  # fmt: skip
    """Compute the gradient of the table."""
    if by_frequency:
        r.unsupported("ATen divides by how often other indices are there")
    wide, table = computed(gradient.dtype), r.out.shape
    gradient = gradient.cast(wide)
    if mode == _MAX:
        columns = iota(r, gradient.shape, 1, I64)
        updates = where((count == 0).expand(-1), 0, gradient)
        return places.added(r, table, [largest, columns], updates).cast(r.out.dtype)
    if mode == _MEAN:
        gradient = gradient / count.maximum(1).cast(wide).expand(-1)
    updates = places.rows(r, gradient, bag)
    if weights is not None:
        updates = updates * weights.cast(wide).expand(-1)
    updates = where((index != padding).expand(-1), updates, 0)
    return places.added(r, table, [index], updates).cast(r.out.dtype)


def _weights_backward(
    r: AtenReader, gradient: Array, table: Array, index: Array, offsets: Array, bag: Array, mode: int,
    padding: int = -1,
) -> Array:  # fmt: skip
    """Compute the gradient of each index's weight: the inner product of its row and its bag's gradient."""
    if bag.shape[0] is ZERO:
        bag = _bag(r, offsets.slice(0, 0, gradient.shape[0]), index)
    wide = computed(gradient.dtype)
    rows = places.rows(r, table, index)
    theirs = places.rows(r, gradient, bag)
    made = (rows.cast(wide) * theirs.cast(wide)).sum(-1)
    return where(index != padding, made, 0).cast(r.out.dtype)


def _renormed(r: AtenReader, table: Array, index: Array, most: float, norm: float) -> Array:
    """Return the table with the rows that the index names scaled to norms of at most `most`."""
    wide = computed(table.dtype)
    rows = table.cast(wide)
    size = abs(rows)
    if is_just(norm, np.inf):
        length = size.reduce("max", -1, keep=True)
    else:
        length = size.op("power", norm).sum(-1, keep=True).op("power", 1 / norm)
    targets = places.indexed(r, table.shape[:1], [index], wrap=False)
    named = places.put(r, r.full(False, BOOL, table.shape[:1]), targets, r.scalar(True, BOOL))
    long = named.expand(-1) & (length > most)
    scale = r.scalar(most, wide) / (length + 1e-7)
    made = rows * scale.broadcast(rows.shape)
    return where(long.broadcast(rows.shape), made, rows).cast(table.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.embedding_renorm.default": _renormed,
    "aten._embedding_bag.default": _bags,
    "aten._embedding_bag_forward_only.default": _bags,
    "aten._embedding_bag_backward.default": _backward_of,
    "aten._embedding_bag_dense_backward.default": _backward,
    "aten._embedding_bag_per_sample_weights_backward.default": _weights_backward,
}
