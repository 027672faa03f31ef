"""Bags of embeddings: sums, means or maxima of a table's rows, of which each bag has a run of the indices.

Sums are made in float32 where the table has 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import BOOL, I32, I64
from hlo_disc.import_.elements import ZERO

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_SUM, _MEAN, _MAX = range(3)
_NONE = 2**31 - 1


def _bags(
    r: AtenReader, table: Value, index: Value, offsets: Value, _: bool = False, mode: int = _SUM, __: bool = False,
    weights: Value | None = None, ___: bool = False, padding: int = -1,
) -> list[Value]:  # fmt: skip
    """(bags, the bag of each index, how many rows are in each bag, for maxima which row each number is of).

    Of sums PyTorch does not count. It says that there is a count for the end of the last bag, and gives none.
    """
    shape, dtype, wide = r.outs[0].shape, r.outs[0].dtype, computed(table.dtype)
    bag = _bag(r, r.slice(offsets, 0, 0, shape[0]), index)
    kept = r.compare(index, "NE", padding)
    count = _added(r, shape[:1], I64, bag, r.convert(kept, I64))
    rows = r.convert(places.taken(r, table, places.indexed(r, table.shape, [index], wrap=False)), wide)
    if weights is not None:
        rows = r.op("multiply", rows, r.unsqueeze(r.convert(weights, wide), -1))
    of_index, size, largest = r.outs[1:]
    told = r.full(0, I64, shape[:1]) if mode == _SUM else count
    told = r.pad(told, 0, [0], [size.shape[0] - shape[0]])
    if mode == _MAX:
        made, place = _largest(r, rows, bag, kept, index, count, shape)
    else:
        made, place = _added(r, shape, wide, bag, r.select(r.unsqueeze(kept, -1), rows, 0)), told
    if mode == _MEAN:
        made = r.op("divide", made, r.unsqueeze(r.convert(r.op("maximum", count, 1), wide), -1))
    number = r.slice(bag, 0, 0, 0) if of_index.shape[0] is ZERO else bag
    if place.rank != len(largest.shape) or place.shape[0] is not largest.shape[0]:
        place = r.full(0, largest.dtype, largest.shape)
    return [
        r.convert(made, dtype), r.convert(number, of_index.dtype), r.convert(told, size.dtype),
        r.convert(place, largest.dtype),
    ]  # fmt: skip


def _bag(r: AtenReader, starts: Value, index: Value) -> Value:
    """The bag of each index: the last one that starts before it."""
    return r.op("subtract", found(r, starts, r.iota(starts.dtype, index.shape), True), 1)


def _added(r: AtenReader, shape: Any, dtype: np.dtype, bag: Value, updates: Value) -> Value:
    where = places.indexed(r, shape, [bag], wrap=False)
    return places.put(r, r.full(0, dtype, shape), where, updates, "add")


def _largest(
    r: AtenReader, rows: Value, bag: Value, kept: Value, index: Value, count: Value, shape: Any
) -> tuple[Value, Value]:
    """The largest numbers of each bag, and the row of the table that has the first of them; 0 for an empty bag."""
    where = places.indexed(r, shape, [bag], wrap=False)
    low = r.full(-np.inf, rows.dtype, shape)
    most = places.put(r, low, where, r.select(r.unsqueeze(kept, -1), rows, -np.inf), "max")
    number = r.iota(I32, rows.shape, 0)
    is_it = r.op("and", r.unsqueeze(kept, -1), r.compare(rows, "EQ", places.taken(r, most, where)))
    first = places.put(r, r.full(_NONE, I32, shape), where, r.select(is_it, number, _NONE), "min")
    row = places.taken(r, index, places.indexed(r, index.shape, [first], wrap=False))
    empty = r.unsqueeze(r.compare(count, "EQ", 0), -1)
    return r.select(empty, 0, most), r.select(empty, 0, row)


def _backward_of(
    r: AtenReader, gradient: Value, index: Value, offsets: Value, bag: Value, count: Value, largest: Value,
    rows: Dim | int, by_frequency: bool, mode: int, sparse: bool, weights: Value | None, padding: int = -1,
) -> Value:  # fmt: skip
    if sparse:
        r.unsupported("sparse gradients are not supported")
    if bag.shape[0] is ZERO:  # the forward op had no use for it
        bag = _bag(r, r.slice(offsets, 0, 0, gradient.shape[0]), index)
    return _backward(r, gradient, index, bag, count, largest, rows, by_frequency, mode, weights, padding)


def _backward(
    r: AtenReader, gradient: Value, index: Value, bag: Value, count: Value, largest: Value, rows: Dim | int,
    by_frequency: bool, mode: int, weights: Value | None, padding: int = -1,
) -> Value:  # fmt: skip
    """Compute the gradient of the table."""
    if by_frequency:
        r.unsupported("ATen divides by how often other indices are there")
    wide, table = computed(gradient.dtype), r.out.shape
    gradient = r.convert(gradient, wide)
    if mode == _MAX:
        columns = r.iota(I64, gradient.shape, 1)
        where = places.indexed(r, table, [largest, columns], wrap=False)
        updates = r.select(r.unsqueeze(r.compare(count, "EQ", 0), -1), 0, gradient)
        return r.convert(places.put(r, r.full(0, wide, table), where, updates, "add"), r.out.dtype)
    if mode == _MEAN:
        gradient = r.op("divide", gradient, r.unsqueeze(r.convert(r.op("maximum", count, 1), wide), -1))
    updates = places.taken(r, gradient, places.indexed(r, gradient.shape, [bag], wrap=False))
    if weights is not None:
        updates = r.op("multiply", updates, r.unsqueeze(r.convert(weights, wide), -1))
    updates = r.select(r.unsqueeze(r.compare(index, "NE", padding), -1), updates, 0)
    return r.convert(_added(r, table, wide, index, updates), r.out.dtype)


def _weights_backward(
    r: AtenReader, gradient: Value, table: Value, index: Value, offsets: Value, bag: Value, mode: int,
    padding: int = -1,
) -> Value:  # fmt: skip
    """Compute the gradient of each index's weight: the inner product of its row and its bag's gradient."""
    if bag.shape[0] is ZERO:
        bag = _bag(r, r.slice(offsets, 0, 0, gradient.shape[0]), index)
    wide = computed(gradient.dtype)
    rows = places.taken(r, table, places.indexed(r, table.shape, [index], wrap=False))
    theirs = places.taken(r, gradient, places.indexed(r, gradient.shape, [bag], wrap=False))
    made = r.reduce(r.op("multiply", r.convert(rows, wide), r.convert(theirs, wide)), -1, "add")
    return r.convert(r.select(r.compare(index, "NE", padding), made, 0), r.out.dtype)


def _renormed(r: AtenReader, table: Value, index: Value, most: float, norm: float) -> Value:
    """The table, of whose rows those that the index names are no longer than `most`."""
    wide = computed(table.dtype)
    rows = r.convert(table, wide)
    size = r.emit("abs", (rows,))
    if norm == np.inf:
        length = r.reduce(size, -1, "max", keep=True)
    else:
        length = r.op("power", r.reduce(r.op("power", size, norm), -1, "add", keep=True), 1 / norm)
    where = places.indexed(r, table.shape[:1], [index], wrap=False)
    named = places.put(r, r.full(False, BOOL, table.shape[:1]), where, r.scalar(True, BOOL))
    long = r.op("and", r.unsqueeze(named, -1), r.compare(length, "GT", most))
    scale = r.op("divide", r.scalar(most, wide), r.op("add", length, 1e-7))
    made = r.op("multiply", rows, r.broadcast(scale, rows.shape))
    return r.convert(r.select(r.broadcast(long, rows.shape), made, rows), table.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.embedding_renorm.default": _renormed,
    "aten._embedding_bag.default": _bags,
    "aten._embedding_bag_forward_only.default": _bags,
    "aten._embedding_bag_backward.default": _backward_of,
    "aten._embedding_bag_dense_backward.default": _backward,
    "aten._embedding_bag_per_sample_weights_backward.default": _weights_backward,
}
