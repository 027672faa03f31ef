"""The ops that write elements at indices from data (`index_put`, scatters) or into a known part of a tensor.

Sums and products of 16-bit floats are made in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I64, where
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.aten.rows.axes.views import bounds, place
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.chosen import unmasked
from hlo_disc.import_.aten.rows.indexing.places import Places
from hlo_disc.import_.aten.rows.numbers.elementwise import floor_divide
from hlo_disc.import_.aten.tensors import Operand, Size, is_just
from hlo_disc.import_.handlers.arrays import Array, filled, iota, joined

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

# How a reduction of ATen's combines an element with what is there.
_KINDS = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


def combined(r: AtenReader, x: Array, targets: Places, updates: Array, kind: str) -> Array:
    if kind not in ("add", "mul"):
        return places.put(r, x, targets, updates, kind)
    wide = computed(x.dtype)
    return places.put(r, x.cast(wide), targets, updates.cast(wide), kind).cast(x.dtype)


def _reduced(r: AtenReader, x: Array, targets: Places, updates: Array, reduction: str, with_self: bool) -> Array:
    """Scatter with a reduction. with_self: the old element is one of the combined elements."""
    kind, wide = _KINDS[reduction], computed(x.dtype)
    made, updates = x.cast(wide), updates.cast(wide)
    if not with_self:
        made = places.put(r, made, targets, filled(r, identity(kind, wide), wide))
    made = places.put(r, made, targets, updates, kind)
    if reduction == "mean":
        start = r.full(1 if with_self else 0, wide, x.shape)
        count = places.put(r, start, targets, r.scalar(1, wide), "add")
        count = count.maximum(1) if dtype_class(wide) != "complex" else count
        divide = floor_divide if dtype_class(wide) in ("int", "uint") else lambda r, a, b: a / b
        made = divide(r, made, count)
    return made.cast(x.dtype)


def _index_put(r: AtenReader, x: Array, indices: Sequence[Array | None], updates: Array, add: bool = False) -> Array:
    masks = [index for index in indices if index is not None and places.is_mask(index)]
    if masks and sum(index is not None for index in indices) == 1:
        return _masked(r, x, indices, masks[0], updates, add)
    if masks:
        indices = unmasked(r, indices)
    if all(index is None for index in indices):
        updates = updates.broadcast(x.shape)
        return x.op("or" if x.dtype == BOOL else "add", updates) if add else updates
    targets = places.indexed(r, x.shape, indices)
    updates = updates.cast(x.dtype)
    while updates.rank > len(targets.shape):
        updates = updates.squeeze(0)
    return combined(r, x, targets, updates, "add") if add else places.put(r, x, targets, updates)


def _masked(r: AtenReader, x: Array, indices: Sequence[Array | None], mask: Array, updates: Array, add: bool) -> Array:
    """Write the n-th update, or the only one, to the n-th true position of the mask."""
    before = next(i for i, index in enumerate(indices) if index is not None)
    mask = mask.cast(BOOL)
    after = x.rank - before - mask.rank
    updates = updates.cast(x.dtype)
    updates = updates.reshape((*(ONE,) * (before + 1 + after - updates.rank), *updates.shape))
    if updates.shape[before] is not ONE:
        updates = places.never_empty(r, updates, before)
        targets = places.indexed(r, updates.shape, [None] * before + [_number(r, mask)], wrap=False)
        updates = places.taken(r, updates, targets)
    else:
        kept = updates.shape[:before], updates.shape[before + 1 :]
        updates = updates.reshape((*kept[0], *(ONE,) * mask.rank, *kept[1]))
    updates = updates.broadcast(x.shape)
    mask = mask.emit("broadcast", shape=x.shape, dims=tuple(range(before, before + mask.rank)))
    return where(mask, x.op("or" if x.dtype == BOOL else "add", updates) if add else updates, x)


def _number(r: AtenReader, mask: Array) -> Array:
    """Count the true elements of a mask before each true element, in row-major order."""
    number = mask.flat().cast(I64).cumulative("add", 0) - 1
    return number.maximum(0).reshape(mask.shape)


def _lines(r: AtenReader, x: Array, axis: int, index: Array) -> tuple[Array, Places]:
    """Return x with at least one axis, and the lines that an index chooses."""
    wide = x.reshape(x.shape or (ONE,))
    return wide, places.indexed(r, wide.shape, [None] * (axis % wide.rank) + [index.flat()])


def _index_reduce(
    r: AtenReader, x: Array, axis: int, index: Array, source: Array, reduction: str, *, include_self: bool = True
) -> Array:
    wide, targets = _lines(r, x, axis, index)
    made = _reduced(r, wide, targets, source.reshape(targets.shape), reduction, include_self)
    return made.reshape(r.out.shape)


def _index_combined(kind: str | None) -> Callable[..., Array]:
    """Add or copy slices of a tensor along an axis to the positions of an index."""

    def handle(r: AtenReader, x: Array, axis: int, index: Array, source: Array, *, alpha: Operand = 1) -> Array:
        wide, targets = _lines(r, x, axis, index)
        if not is_just(alpha, 1):
            source = source.op("and" if x.dtype == BOOL else "multiply", alpha)
        source = source.reshape(targets.shape)
        made = places.put(r, wide, targets, source) if kind is None else combined(r, wide, targets, source, kind)
        return made.reshape(r.out.shape)

    return handle


def _index_fill(r: AtenReader, x: Array, axis: int, index: Array, value: Operand) -> Array:
    return places.put(r, *_lines(r, x, axis, index), r.held(value, x.dtype)).reshape(r.out.shape)


def _where(r: AtenReader, x: Array, axis: int, index: Array, updates: Operand) -> tuple[Array, Places, Array]:
    """Return x with at least one axis, the positions of an index of its rank, and the updates that have a position."""
    x, index = (y.reshape(y.shape or (ONE,)) for y in (x, index))
    axis %= x.rank
    for a, (size, limit) in enumerate(zip(index.shape, x.shape, strict=True)):
        if a != axis:
            r.at_most(size, limit, f"dimension {a} of the index has {{0}} and that of the operand only {{1}}")
    if not isinstance(updates, Array):
        return x, places.along(r, x.shape, axis, index), r.held(updates, x.dtype)
    updates = updates.reshape(updates.shape or (ONE,))
    for a, (size, limit) in enumerate(zip(index.shape, updates.shape, strict=True)):
        if size is not limit:
            r.at_most(size, limit, f"dimension {a} of the index has {{0}} and that of the source only {{1}}")
            updates = updates.slice(a, 0, size)
    return x, places.along(r, x.shape, axis, index), updates


def _scatter(
    r: AtenReader, x: Array, axis: int, index: Array, updates: Operand, *, reduce: str | None = None, **_: object
) -> Array:
    if any(size is ZERO for size in index.shape):
        return x
    wide, targets, updates = _where(r, x, axis, index, updates)
    if reduce is None:
        made = places.put(r, wide, targets, updates)
    else:
        made = combined(r, wide, targets, updates, _KINDS[reduce])
    return made.reshape(r.out.shape)


def _scatter_reduce(
    r: AtenReader, x: Array, axis: int, index: Array, updates: Array, reduction: str, *, include_self: bool = True
) -> Array:
    if any(size is ZERO for size in index.shape):
        return x
    wide, targets, updates = _where(r, x, axis, index, updates)
    return _reduced(r, wide, targets, updates, reduction, include_self).reshape(r.out.shape)


def _put(r: AtenReader, x: Array, index: Array, source: Array, add: bool = False) -> Array:
    line = x.flat()
    targets = places.indexed(r, line.shape, [index])
    source = source.reshape(index.shape)
    made = combined(r, line, targets, source, "add") if add else places.put(r, line, targets, source)
    return made.reshape(x.shape)


def _masked_scatter(r: AtenReader, x: Array, mask: Array, source: Array) -> Array:
    """Write the n-th element of the source to the n-th true position of the mask."""
    shape = r.out.shape
    x, mask = x.broadcast(shape), mask.cast(BOOL).broadcast(shape)
    if source.shape and dim_product(source.shape) is ZERO:
        return x
    flat = places.never_empty(r, source.flat(), 0)
    return where(mask, places.rows(r, flat, _number(r, mask)), x)


def _masked_scatter_backward(r: AtenReader, gradient: Array, mask: Array, _: object) -> Array:
    """Compute the gradient of the source: its n-th element has that of the n-th true element of the mask."""
    mask = mask.cast(BOOL).broadcast(gradient.shape)
    count = dim_product(r.out.shape)
    outside = r.full(count, I64, mask.shape)
    targets = places.indexed(r, (count,), [where(mask, _number(r, mask), outside)], wrap=False)
    made = places.put(r, r.full(0, gradient.dtype, (count,)), targets, gradient, unique=True)
    return made.reshape(r.out.shape)


def _embedding_backward(
    r: AtenReader, gradient: Array, index: Array, rows: Size, padding: Size, by_frequency: bool
) -> Array:
    """Compute the gradient of an embedding. The row `padding` gets none; with by_frequency it is divided among equal
    indices."""
    wide = gradient.cast(computed(gradient.dtype))
    table = (Dim.of(rows), gradient.shape[-1])
    if by_frequency:
        counts = places.added(r, table[:1], [index], r.scalar(1, wide.dtype))
        wide = wide / places.rows(r, counts, index).expand(-1)
    if not (isinstance(padding, int) and padding < 0):
        wide = where((index == padding).expand(-1), 0, wide)
    return places.added(r, table, [index], wide).cast(r.out.dtype)


def _select_scatter(r: AtenReader, x: Array, source: Array, axis: int, index: Size) -> Array:
    at = place(r, index, x.shape[axis])
    return _spliced(r, x, source.expand(axis % x.rank), axis, at, at + 1)


def _slice_scatter(
    r: AtenReader, x: Array, source: Array, axis: int = 0, start: Size | None = None, end: Size | None = None,
    step: Size = 1,
) -> Array:  # fmt: skip
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
    wide = source.emit("pad", zero, low=sides[0], high=sides[1], interior=sides[2])
    place_ = iota(r, x.shape, axis, I64) - first
    inside = (place_ >= 0) & (place_ < shape[axis])
    inside = inside & (place_.op("remainder", step) == 0)
    return where(inside, wide, x)


def _spliced(r: AtenReader, x: Array, source: Array, axis: int, start: Dim, limit: Dim) -> Array:
    """Write the source into x, from start to limit of an axis."""
    axis, parts = axis % x.rank, [source.cast(x.dtype)]
    if start is not ZERO:
        parts = [x.slice(axis, 0, start), *parts]
    if limit is not x.shape[axis]:
        parts = [*parts, x.slice(axis, limit, x.shape[axis])]
    return joined(parts, axis)


def _diagonal_scatter(r: AtenReader, x: Array, source: Array, offset: Size = 0, a: int = 0, b: int = 1) -> Array:
    targets = places.diagonal(r, x.shape, offset, a, b, source.shape[-1])
    return places.put(r, x, targets, source, unique=True)


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
    "aten.scatter_add.default": lambda r, x, axis, index, updates: _scatter(r, x, axis, index, updates, reduce="add"),
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.put.default": _put,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.masked_scatter_backward.default": _masked_scatter_backward,
    "aten.embedding_dense_backward.default": _embedding_backward,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
}
