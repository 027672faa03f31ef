"""The ops that write elements at indices from data (`index_put`, scatters) or into a known part of a tensor.

Sums and products of 16-bit floats are made in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.axes.views import bounds, place
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.chosen import unmasked
from hlo_disc.import_.aten.rows.indexing.places import Places
from hlo_disc.import_.aten.rows.numbers.elementwise import floor_divide
from hlo_disc.import_.aten.tensors import BOOL, I64, Operand, Size
from hlo_disc.import_.elements import ONE, ZERO

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

# How a reduction of ATen's combines an element with what is there.
_KINDS = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


def combined(r: AtenReader, x: Value, where: Places, updates: Value, kind: str) -> Value:
    if kind not in ("add", "mul"):
        return places.put(r, x, where, updates, kind)
    wide = computed(x.dtype)
    return r.convert(places.put(r, r.convert(x, wide), where, r.convert(updates, wide), kind), x.dtype)


def _reduced(r: AtenReader, x: Value, where: Places, updates: Value, reduction: str, with_self: bool) -> Value:
    """with_self: what is there already is one of the elements that are combined."""
    kind, wide = _KINDS[reduction], computed(x.dtype)
    made, updates = r.convert(x, wide), r.convert(updates, wide)
    if not with_self:
        made = places.put(r, made, where, r.constant(np.asarray(identity(kind, wide))))
    made = places.put(r, made, where, updates, kind)
    if reduction == "mean":
        start = r.full(1 if with_self else 0, wide, x.shape)
        count = places.put(r, start, where, r.scalar(1, wide), "add")
        count = r.op("maximum", count, 1) if dtype_class(wide) != "complex" else count
        divide = floor_divide if dtype_class(wide) in ("int", "uint") else lambda r, a, b: r.op("divide", a, b)
        made = divide(r, made, count)
    return r.convert(made, x.dtype)


def _index_put(r: AtenReader, x: Value, indices: Sequence[Value | None], updates: Value, add: bool = False) -> Value:
    masks = [index for index in indices if index is not None and places.is_mask(index)]
    if masks and sum(index is not None for index in indices) == 1:
        return _masked(r, x, indices, masks[0], updates, add)
    if masks:
        indices = unmasked(r, indices)
    if all(index is None for index in indices):
        updates = r.broadcast(updates, x.shape)
        return r.op("or" if x.dtype == BOOL else "add", x, updates) if add else updates
    where = places.indexed(r, x.shape, indices)
    updates = r.convert(updates, x.dtype)
    while updates.rank > len(where.shape):
        updates = r.squeeze(updates, 0)
    return combined(r, x, where, updates, "add") if add else places.put(r, x, where, updates)


def _masked(r: AtenReader, x: Value, indices: Sequence[Value | None], mask: Value, updates: Value, add: bool) -> Value:
    """The n-th place where the mask is true gets the n-th update, or the only one."""
    before = next(i for i, index in enumerate(indices) if index is not None)
    mask = r.convert(mask, BOOL)
    after = x.rank - before - mask.rank
    updates = r.convert(updates, x.dtype)
    updates = r.reshape(updates, (*(ONE,) * (before + 1 + after - updates.rank), *updates.shape))
    if updates.shape[before] is not ONE:
        updates = places.never_empty(r, updates, before)
        where = places.indexed(r, updates.shape, [None] * before + [_number(r, mask)], wrap=False)
        updates = places.taken(r, updates, where)
    else:
        kept = updates.shape[:before], updates.shape[before + 1 :]
        updates = r.reshape(updates, (*kept[0], *(ONE,) * mask.rank, *kept[1]))
    updates = r.broadcast(updates, x.shape)
    mask = r.emit("broadcast", (mask,), shape=x.shape, dims=tuple(range(before, before + mask.rank)))
    return r.select(mask, r.op("or" if x.dtype == BOOL else "add", x, updates) if add else updates, x)


def _number(r: AtenReader, mask: Value) -> Value:
    """Count the true elements of a mask before each true element, in row-major order."""
    line = r.reshape(mask, (dim_product(mask.shape),))
    number = r.op("subtract", r.cumulative(r.convert(line, I64), 0, "add"), 1)
    return r.reshape(r.op("maximum", number, 0), mask.shape)


def _lines(r: AtenReader, x: Value, axis: int, index: Value) -> Places:
    line = r.reshape(index, (index.shape[0] if index.rank else ONE,))
    return places.indexed(r, x.shape, [None] * (axis % x.rank) + [line])


def _index_reduce(
    r: AtenReader, x: Value, axis: int, index: Value, source: Value, reduction: str, *, include_self: bool = True
) -> Value:
    wide = r.reshape(x, x.shape or (ONE,))
    where = _lines(r, wide, axis, index)
    made = _reduced(r, wide, where, r.reshape(source, where.shape), reduction, include_self)
    return r.reshape(made, r.out.shape)


def _index_combined(kind: str | None) -> Callable[..., Value]:
    """A tensor whose slices along an axis are added or copied to those that the index says."""

    def handle(r: AtenReader, x: Value, axis: int, index: Value, source: Value, *, alpha: Operand = 1) -> Value:
        wide = r.reshape(x, x.shape or (ONE,))
        where = _lines(r, wide, axis, index)
        if alpha != 1:
            source = r.op("and" if x.dtype == BOOL else "multiply", source, alpha)
        source = r.reshape(source, where.shape)
        made = places.put(r, wide, where, source) if kind is None else combined(r, wide, where, source, kind)
        return r.reshape(made, r.out.shape)

    return handle


def _index_fill(r: AtenReader, x: Value, axis: int, index: Value, value: Operand) -> Value:
    wide = r.reshape(x, x.shape or (ONE,))
    return r.reshape(places.put(r, wide, _lines(r, wide, axis, index), r.held(value, x.dtype)), r.out.shape)


def _where(r: AtenReader, x: Value, axis: int, index: Value, updates: Operand) -> tuple[Value, Places, Value]:
    """x with at least one axis, the places of an index of its rank, and those updates that have one."""
    x, index = (r.reshape(y, y.shape or (ONE,)) for y in (x, index))
    axis %= x.rank
    for a, (size, limit) in enumerate(zip(index.shape, x.shape, strict=True)):
        if a != axis:
            r.at_most(size, limit, f"dimension {a} of the index has {{0}} and that of the operand only {{1}}")
    if not isinstance(updates, Value):
        return x, places.along(r, x.shape, axis, index), r.held(updates, x.dtype)
    updates = r.reshape(updates, updates.shape or (ONE,))
    for a, (size, limit) in enumerate(zip(index.shape, updates.shape, strict=True)):
        if size is not limit:
            r.at_most(size, limit, f"dimension {a} of the index has {{0}} and that of the source only {{1}}")
            updates = r.slice(updates, a, 0, size)
    return x, places.along(r, x.shape, axis, index), updates


def _scatter(
    r: AtenReader, x: Value, axis: int, index: Value, updates: Operand, *, reduce: str | None = None, **_: Any
) -> Value:
    if any(size is ZERO for size in index.shape):
        return x
    wide, where, updates = _where(r, x, axis, index, updates)
    if reduce is None:
        made = places.put(r, wide, where, updates)
    else:
        made = combined(r, wide, where, updates, _KINDS[reduce])
    return r.reshape(made, r.out.shape)


def _scatter_add(r: AtenReader, x: Value, axis: int, index: Value, updates: Value) -> Value:
    return _scatter(r, x, axis, index, updates, reduce="add")


def _scatter_reduce(
    r: AtenReader, x: Value, axis: int, index: Value, updates: Value, reduction: str, *, include_self: bool = True
) -> Value:
    if any(size is ZERO for size in index.shape):
        return x
    wide, where, updates = _where(r, x, axis, index, updates)
    return r.reshape(_reduced(r, wide, where, updates, reduction, include_self), r.out.shape)


def _put(r: AtenReader, x: Value, index: Value, source: Value, add: bool = False) -> Value:
    line = r.flat(x)
    where = places.indexed(r, line.shape, [index])
    source = r.reshape(source, index.shape)
    made = combined(r, line, where, source, "add") if add else places.put(r, line, where, source)
    return r.reshape(made, x.shape)


def _masked_scatter(r: AtenReader, x: Value, mask: Value, source: Value) -> Value:
    """The n-th place that the mask has gets the n-th element of the source."""
    shape = r.out.shape
    x, mask = r.broadcast(x, shape), r.broadcast(r.convert(mask, BOOL), shape)
    if source.shape and dim_product(source.shape) is ZERO:
        return x
    flat = places.never_empty(r, r.reshape(source, (dim_product(source.shape),)), 0)
    return r.select(mask, places.taken(r, flat, places.indexed(r, flat.shape, [_number(r, mask)], wrap=False)), x)


def _masked_scatter_backward(r: AtenReader, gradient: Value, mask: Value, _: Any) -> Value:
    """Compute the gradient of the source: its n-th element has that of the n-th true element of the mask."""
    mask = r.broadcast(r.convert(mask, BOOL), gradient.shape)
    count = dim_product(r.out.shape)
    outside = r.full(count, I64, mask.shape)
    where = places.indexed(r, (count,), [r.select(mask, _number(r, mask), outside)], wrap=False)
    made = places.put(r, r.full(0, gradient.dtype, (count,)), where, gradient, unique=True)
    return r.reshape(made, r.out.shape)


def _embedding_backward(
    r: AtenReader, gradient: Value, index: Value, rows: Size, padding: Size, by_frequency: bool
) -> Value:
    """The row `padding` of the table has no gradient; with by_frequency a gradient is divided among equal indices."""
    wide = r.convert(gradient, computed(gradient.dtype))
    table = (Dim.of(rows), gradient.shape[-1])
    where = places.indexed(r, table, [index], wrap=False)
    if by_frequency:
        counted = places.indexed(r, table[:1], [index], wrap=False)
        counts = places.put(r, r.full(0, wide.dtype, table[:1]), counted, r.scalar(1, wide.dtype), "add")
        wide = r.op("divide", wide, r.unsqueeze(places.taken(r, counts, counted), -1))
    if not (isinstance(padding, int) and padding < 0):
        skipped = r.unsqueeze(r.compare(index, "EQ", r.scalar(padding, index.dtype)), -1)
        wide = r.select(skipped, r.full(0, wide.dtype, wide.shape), wide)
    return r.convert(places.put(r, r.full(0, wide.dtype, table), where, wide, "add"), r.out.dtype)


def _select_scatter(r: AtenReader, x: Value, source: Value, axis: int, index: Size) -> Value:
    at = place(r, index, x.shape[axis])
    return _spliced(r, x, r.unsqueeze(source, axis % x.rank), axis, at, at + 1)


def _slice_scatter(
    r: AtenReader, x: Value, source: Value, axis: int = 0, start: Size | None = None, end: Size | None = None,
    step: Size = 1,
) -> Value:  # fmt: skip
    axis, step = axis % x.rank, r.fixed(step)
    size, count = x.shape[axis], source.shape[axis]
    first, last = bounds(r, start, end, size)
    if step == 1:
        return _spliced(r, x, source, axis, first, first + count)
    shape = tuple(last - first if a == axis else n for a, n in enumerate(x.shape))
    spread = Dim.max(count - 1, ZERO) * (step - 1)
    sides = [
        tuple(side if a == axis else ZERO for a in range(x.rank))
        for side in (first, size - first - count - spread, Dim.const(step - 1))
    ]
    zero = r.scalar(0, x.dtype)
    wide = r.emit("pad", (source, zero), low=sides[0], high=sides[1], interior=sides[2])
    place_ = r.op("subtract", r.iota(I64, x.shape, axis), r.scalar(first, I64))
    inside = r.op("and", r.compare(place_, "GE", 0), r.compare(place_, "LT", r.scalar(shape[axis], I64)))
    inside = r.op("and", inside, r.compare(r.op("remainder", place_, step), "EQ", 0))
    return r.select(inside, wide, x)


def _spliced(r: AtenReader, x: Value, source: Value, axis: int, start: Dim, limit: Dim) -> Value:
    """x with the source from start to limit of an axis."""
    axis, parts = axis % x.rank, [r.convert(source, x.dtype)]
    if start is not ZERO:
        parts = [r.slice(x, axis, 0, start), *parts]
    if limit is not x.shape[axis]:
        parts = [*parts, r.slice(x, axis, limit, x.shape[axis])]
    return r.concatenate(parts, axis)


def _diagonal_scatter(r: AtenReader, x: Value, source: Value, offset: Size = 0, a: int = 0, b: int = 1) -> Value:
    where = places.diagonal(r, x.shape, offset, a, b, source.shape[-1])
    return places.put(r, x, where, source, unique=True)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.index_add.default": _index_combined("add"),
    "aten.index_copy.default": _index_combined(None),
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
    "aten.index_reduce.default": _index_reduce,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter,
    "aten.scatter.reduce": _scatter,
    "aten.scatter.value_reduce": _scatter,
    "aten.scatter_add.default": _scatter_add,
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.put.default": _put,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.masked_scatter_backward.default": _masked_scatter_backward,
    "aten.embedding_dense_backward.default": _embedding_backward,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
}
