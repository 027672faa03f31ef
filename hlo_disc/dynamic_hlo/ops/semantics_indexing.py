"""Numpy semantics of ops whose places are data: gather and scatter, slices with a start, sort.

A region over scalars is a function `(*arrays) -> list of arrays` that computes element by element.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ops.semantics import Array, Ints, iota
from hlo_disc.errors import ShapeError

Function = Callable[..., list[Array]]


def _signed(index: Array) -> Array:
    if index.dtype.kind != "u":
        return index
    return np.minimum(index.astype(np.uint64), np.iinfo(np.int64).max).astype(np.int64)


def _clamped(starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> list[slice]:
    """Where a block of `sizes` lies, moved inside `shape`."""
    corners = [min(max(int(start), 0), n - size) for start, size, n in zip(starts, sizes, shape, strict=True)]
    if any(corner < 0 for corner in corners):
        raise ShapeError(f"a block of {tuple(sizes)} does not fit an operand of {tuple(shape)}")
    return [slice(corner, corner + size) for corner, size in zip(corners, sizes, strict=True)]


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
    if any(size > n for size, n in zip(slice_sizes, x.shape, strict=True)):
        raise ShapeError(f"slices of {slice_sizes} do not fit an operand of {x.shape}")
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    starts = np.moveaxis(_signed(indices), index_vector_dim, -1)
    batch = starts.shape[:-1]
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
    """Window by window, in the order of the indices."""
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


def sort(*arrays: Array, dim: int, stable: bool, count: int, body: Function) -> tuple[Array, ...]:
    """Odd-even transposition, which is stable: neighbours in the wrong order change places until there are none."""
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


# ------------------------------------------------------------------------------------------- slices with a start


def dynamic_slice(x: Array, *starts: Array, sizes: Ints) -> Array:
    return x[tuple(_clamped(starts, sizes, x.shape))]


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    result = x.copy()
    result[tuple(_clamped(starts, update.shape, x.shape))] = update
    return result
