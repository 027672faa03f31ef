"""Ops whose positions are data: gather and scatter, slices with a start, sort.

Gather and scatter share their dimension numbers. The operand's axes that a window spans are all but
`collapsed_slice_dims` and `operand_batching_dims`; they are `offset_dims` of the gathered (or update) tensor, whose
other axes are those of the indices but `index_vector_dim`. Entry k of an index vector is a start in axis
`start_index_map[k]`.

A region over scalars is in numpy a function `(*arrays) -> list of arrays` that computes element by element.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL
from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Shape, Value
from hlo_disc.dynamic_hlo.ops import axes
from hlo_disc.dynamic_hlo.ops.arrays import Array, Function, Ints
from hlo_disc.dynamic_hlo.ops.families.views import iota
from hlo_disc.dynamic_hlo.ops.inference import (
    Types,
    agree,
    agree_shapes,
    broken,
    disagree,
    need_axes,
    need_dtype,
    need_integer,
    need_scalar,
)
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError

# The axes of a gather, and what StableHLO calls them in a scatter. (Its binding for Python spells the last one
# `scattered_dims_to_operand_dims`.)
OF_SCATTER = {
    "offset_dims": "update_window_dims",
    "collapsed_slice_dims": "inserted_window_dims",
    "operand_batching_dims": "input_batching_dims",
    "start_indices_batching_dims": "scatter_indices_batching_dims",
    "start_index_map": "scatter_dims_to_operand_dims",
}


def _need_numbers(op: Op, facts: ShapeFacts, x: Value, indices: Value) -> tuple[list[Dim], tuple[int, ...]]:
    """Return the sizes of the batch axes, and the operand axes that a window spans. Raises for a misfit."""
    attrs, vector = op.attrs, op.attrs["index_vector_dim"]
    batching, dropped = attrs["operand_batching_dims"], attrs["collapsed_slice_dims"] + attrs["operand_batching_dims"]
    need_integer(op, indices, "the indices")
    need_axes(op, dropped, x.rank, "collapsed_slice_dims and operand_batching_dims")
    need_axes(op, attrs["start_index_map"] + batching, x.rank, "start_index_map and operand_batching_dims")
    if not 0 <= vector <= indices.rank:
        broken(op, f"index_vector_dim {vector} is out of range for indices of rank {indices.rank}")
    length = indices.shape[vector] if vector < indices.rank else ONE
    agree(op, facts, Dim.const(len(attrs["start_index_map"])), length, "start_index_map and the index vector")
    along = attrs["start_indices_batching_dims"]
    need_axes(op, along, indices.rank, "start_indices_batching_dims")
    if len(along) != len(batching) or vector in along:
        broken(op, f"start_indices_batching_dims {along} must name one axis of indices for each of {batching}")
    for axis, index_axis in zip(batching, along, strict=True):
        agree(op, facts, x.shape[axis], indices.shape[index_axis], f"batching dims {axis} and {index_axis}")
    batch = [size for axis, size in enumerate(indices.shape) if axis != vector]
    return batch, tuple(axis for axis in range(x.rank) if axis not in dropped)


def _signed(index: Array) -> Array:
    if index.dtype.kind != "u":
        return index
    return np.minimum(index.astype(np.uint64), np.iinfo(np.int64).max).astype(np.int64)


def _clamped(starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> list[slice]:
    """Return where a block of `sizes` lies, moved inside `shape`."""
    corners = [min(max(int(start), 0), n - size) for start, size, n in zip(starts, sizes, shape, strict=True)]
    if any(corner < 0 for corner in corners):
        raise ShapeError(f"a block of {tuple(sizes)} does not fit an operand of {tuple(shape)}")
    return [slice(corner, corner + size) for corner, size in zip(corners, sizes, strict=True)]


def infer_gather(op: Op, facts: ShapeFacts) -> Types:
    (x, indices), offset_dims, sizes = op.operands, op.attrs["offset_dims"], op.attrs["slice_sizes"]
    batch, kept = _need_numbers(op, facts, x, indices)
    if len(sizes) != x.rank or len(kept) != len(offset_dims):
        broken(op, f"slice_sizes need {x.rank} entries and offset_dims one for each that is kept")
    for axis, (size, limit) in enumerate(zip(sizes, x.shape, strict=True)):
        if facts.at_most(size, limit) is Truth.NO and facts.at_most(1, dim_product(batch)) is not Truth.NO:
            disagree(op, f"slice size {size} of dim {axis} is larger than the operand's {limit}")
    rank = len(batch) + len(kept)
    need_axes(op, offset_dims, rank, "offset_dims")
    batches, window = iter(batch), {a: sizes[axis] for a, axis in zip(offset_dims, kept, strict=True)}
    return [(x.dtype, tuple(window[axis] if axis in window else next(batches) for axis in range(rank)))]


def gather(
    x: Array,
    indices: Array,
    *,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    start_index_map: Ints,
    index_vector_dim: int,
    slice_sizes: Ints,
) -> Array:
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    starts = np.moveaxis(_signed(indices), index_vector_dim, -1)
    batch = starts.shape[:-1]
    if math.prod(batch) and any(size > n for size, n in zip(slice_sizes, x.shape, strict=True)):
        raise ShapeError(f"slices of {slice_sizes} do not fit an operand of {x.shape}")
    kept = [axis for axis in range(x.ndim) if axis not in collapsed_slice_dims + operand_batching_dims]
    rank = len(batch) + len(kept)
    where: list[Array] = []
    for axis, (size, n) in enumerate(zip(slice_sizes, x.shape, strict=True)):
        position = np.zeros(batch, np.int64)
        if axis in start_index_map:
            position = np.clip(starts[..., start_index_map.index(axis)], 0, n - size).astype(np.int64)
        if axis in operand_batching_dims:
            index_axis = start_indices_batching_dims[operand_batching_dims.index(axis)]
            position = iota(shape=batch, dim=index_axis - (index_axis > index_vector_dim), dtype=np.dtype(np.int64))
        position = position.reshape(batch + (1,) * len(kept))
        if axis in kept:
            position = position + iota(
                shape=(1,) * len(batch) + tuple(size if other == axis else 1 for other in kept),
                dim=len(batch) + kept.index(axis),
                dtype=np.dtype(np.int64),
            )
        where.append(position)
    shape = batch + tuple(slice_sizes[axis] for axis in kept)
    # Without elements there is nothing to read, not even from an operand of size 0.
    result = np.broadcast_to(x[tuple(where)], shape) if math.prod(shape) else np.empty(shape, x.dtype)
    batches = iter(range(len(batch)))
    axes = [len(batch) + offset_dims.index(k) if k in offset_dims else next(batches) for k in range(rank)]
    return result.transpose(axes)


def infer_scatter(op: Op, facts: ShapeFacts) -> Types:
    """Infer `scatter`(*xs, indices, *updates, *captured) with `count` xs. The body gets an element of each x, one of
    each update, and the captured values.

    A window that is not entirely inside its operand changes nothing.
    """
    count, body, offset_dims = op.attrs["count"], op.attrs["body"], op.attrs["offset_dims"]
    if count < 1 or len(op.operands) < 2 * count + 1:
        broken(op, f"{len(op.operands)} operands do not hold {count} to scatter into, indices and as many updates")
    xs, indices, updates = op.operands[:count], op.operands[count], op.operands[count + 1 : 2 * count + 1]
    shape, update = agree_shapes(op, facts, xs), agree_shapes(op, facts, updates)
    batch, kept = _need_numbers(op, facts, xs[0], indices)
    if len(kept) != len(offset_dims):
        broken(op, f"offset_dims {offset_dims} must name one axis of the updates for each of {kept}")
    if len(update) != len(batch) + len(kept):
        broken(op, f"updates of rank {len(update)}, expected {len(batch) + len(kept)}")
    need_axes(op, offset_dims, len(update), "offset_dims")
    outer = [size for axis, size in enumerate(update) if axis not in offset_dims]
    for number, (a, b) in enumerate(zip(outer, batch, strict=True)):
        agree(op, facts, a, b, f"batch dim {number} of updates and indices")
    _need_body(op, body, (*xs, *updates, *op.operands[2 * count + 1 :]), [x.dtype for x in xs])
    return [(x.dtype, shape) for x in xs]


def scatter(
    *arrays: Array,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    start_index_map: Ints,
    index_vector_dim: int,
    unique: bool,
    count: int,
    body: Function,
) -> tuple[Array, ...]:
    """Scatter window by window, in the order of the indices."""
    results = [x.copy() for x in arrays[:count]]
    indices, updates, captured = arrays[count], arrays[count + 1 : 2 * count + 1], arrays[2 * count + 1 :]
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    starts = np.moveaxis(_signed(indices), index_vector_dim, -1)
    batch, shape = starts.shape[:-1], results[0].shape
    kept = [axis for axis in range(len(shape)) if axis not in collapsed_slice_dims + operand_batching_dims]
    outer = [axis for axis in range(updates[0].ndim) if axis not in offset_dims]
    if any(u.shape != updates[0].shape for u in updates) or tuple(updates[0].shape[a] for a in outer) != batch:
        raise ShapeError(f"updates of {[u.shape for u in updates]} for indices of {batch}")
    window = [updates[0].shape[axis] for axis in offset_dims]
    sizes = [window[kept.index(axis)] if axis in kept else 1 for axis in range(len(shape))]
    for at in np.ndindex(*batch):
        corner = [0] * len(shape)
        for k, axis in enumerate(start_index_map):
            corner[axis] = int(starts[at][k])
        for axis, index_axis in zip(operand_batching_dims, start_indices_batching_dims, strict=True):
            corner[axis] = at[index_axis - (index_axis > index_vector_dim)]
        if any(not 0 <= i <= n - size for i, n, size in zip(corner, shape, sizes, strict=True)):
            continue
        spans = [
            slice(i, i + size) if axis in kept else i for axis, (i, size) in enumerate(zip(corner, sizes, strict=True))
        ]
        to, of = tuple(spans), tuple(at[outer.index(a)] if a in outer else slice(None) for a in range(updates[0].ndim))
        made = body(*(x[to] for x in results), *(u[of] for u in updates), *captured)
        for x, value in zip(results, made, strict=True):
            x[to] = value
    return tuple(results)


def infer_sort(op: Op, facts: ShapeFacts) -> Types:
    """Infer `sort`(*xs, *captured) with `count` xs, which the body compares: it gets two elements of each x, then the
    captured values."""
    count, body = op.attrs["count"], op.attrs["body"]
    if not 1 <= count <= len(op.operands):
        broken(op, f"{len(op.operands)} operands do not hold {count} to sort")
    xs = op.operands[:count]
    shape = agree_shapes(op, facts, xs)
    need_axes(op, (op.attrs["dim"],), len(shape), "dim")
    _need_body(op, body, (*(x for x in xs for _ in range(2)), *op.operands[count:]), [BOOL])
    return [(x.dtype, shape) for x in xs]


def _need_body(op: Op, body: Region, given: Sequence[Value], results: Sequence[object]) -> None:
    """Check that the body takes a scalar of each value and returns scalars of these dtypes."""
    takes, makes = [(v.dtype, v.shape) for v in body.inputs], [(v.dtype, v.shape) for v in body.outputs]
    if takes != [(v.dtype, ()) for v in given] or makes != [(dtype, ()) for dtype in results]:
        broken(op, f"the body takes {list(body.inputs)} and makes {list(body.outputs)}")


def _need_starts(op: Op, starts: Sequence[Value], rank: int) -> None:
    if len(starts) != rank:
        broken(op, f"{len(starts)} start indices for rank {rank}")
    for value in starts:
        need_scalar(op, value, "a start index")
        need_integer(op, value, "a start index")


def _need_fits(op: Op, facts: ShapeFacts, sizes: Shape, limits: Shape, what: str) -> None:
    if len(sizes) != len(limits):
        broken(op, f"{what} has rank {len(sizes)}, the operand has rank {len(limits)}")
    for axis, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
        if size is not limit and facts.at_most(size, limit) is Truth.NO:
            disagree(op, f"{what} of size {size} in dim {axis} is larger than the operand's {limit}")


def sort(*arrays: Array, dim: int, stable: bool, count: int, body: Function) -> tuple[Array, ...]:
    """Sort by odd-even transposition, which is stable: it swaps neighbours in the wrong order until there are none."""
    captured = arrays[count:]
    rows = [np.moveaxis(x, dim, -1).copy() for x in arrays[:count]]
    size, quiet = rows[0].shape[-1], 0
    for start in itertools.islice(itertools.cycle((0, 1)), size + 1):
        left, right = slice(start, size - 1, 2), slice(start + 1, size, 2)
        pairs = itertools.chain.from_iterable((x[..., right], x[..., left]) for x in rows)
        swap = np.asarray(body(*pairs, *captured)[0])
        quiet = 0 if swap.any() else quiet + 1
        if quiet == 2:
            break
        for x in rows:
            x[..., left], x[..., right] = (
                np.where(swap, x[..., right], x[..., left]),
                np.where(swap, x[..., left], x[..., right]),
            )
    return tuple(np.moveaxis(x, -1, dim) for x in rows)


def infer_dynamic_slice(op: Op, facts: ShapeFacts) -> Types:
    x, *starts = op.operands
    _need_starts(op, starts, x.rank)
    _need_fits(op, facts, op.attrs["sizes"], x.shape, "the slice")
    return [(x.dtype, op.attrs["sizes"])]


def dynamic_slice(x: Array, *starts: Array, sizes: Ints) -> Array:
    return x[tuple(_clamped(starts, sizes, x.shape))]


def infer_dynamic_update_slice(op: Op, facts: ShapeFacts) -> Types:
    x, update, *starts = op.operands
    need_dtype(op, update, x.dtype, "the update")
    _need_starts(op, starts, x.rank)
    _need_fits(op, facts, update.shape, x.shape, "the update")
    return [(x.dtype, x.shape)]


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    result = x.copy()
    result[tuple(_clamped(starts, update.shape, x.shape))] = update
    return result


_NUMBERS = (*OF_SCATTER, "index_vector_dim")
_UPDATES = ("unique", "count", "body")

ROWS = (
    OpDef("gather", "gather", 2, infer_gather, gather, (*_NUMBERS, "slice_sizes"), axes=axes.GATHER),
    OpDef("dynamic_slice", "gather", None, infer_dynamic_slice, dynamic_slice, ("sizes",), axes=axes.DYNAMIC_SLICE),
    OpDef("scatter", "scatter", None, infer_scatter, scatter, (*_NUMBERS, *_UPDATES), axes=axes.SCATTER),
    OpDef("sort", "sort", None, infer_sort, sort, ("dim", "stable", "count", "body"), axes=axes.SORT),
    OpDef("dynamic_update_slice", "assemble", None, infer_dynamic_update_slice, dynamic_update_slice, axes=axes.UPDATE),
)
