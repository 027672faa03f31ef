"""The indices of index tensors, as numbers of a gather or scatter.

Indices may count from behind, as in ATen. Eager mode refuses an index outside of its axis at run time. Here a gather
clamps it, and a scatter ignores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.arrays import Array, combining, iota, joined, together

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_MASKS = (BOOL, np.dtype(np.uint8))


@frozen
class Places:
    """The indices of a gather or scatter: `at` has an index vector on its last axis, `numbers` the dimension numbers,
    and `window` the sizes that each vector takes.

    shape: that of the gathered elements, or of updates.
    """

    at: Array
    numbers: Attributes
    window: Shape
    shape: Shape


def is_mask(index: Array) -> bool:
    return index.dtype in _MASKS


def wrapped(r: AtenReader, index: Array, size: Dim) -> Array:
    """Wrap negative indices, so that all count from the front."""
    if index.dtype not in (I32, I64):
        index = index.cast(I64)
    behind = index + size
    return where(index < 0, behind, index)


def indexed(r: AtenReader, shape: Shape, indices: Sequence[Array | None], wrap: bool = True) -> Places:
    """Prepare `x[indices]` for an x of this shape. An entry is None for a whole axis, else a tensor; these are
    broadcast.

    Their common axes take the place of the indexed axes, or come first if these are not neighbours.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    chosen = [index for index in indices if index is not None]
    if any(map(is_mask, chosen)):
        r.unsupported("how many elements a mask takes depends on data, which is not supported here")
    if wrap:
        chosen = [wrapped(r, index, shape[axis]) for axis, index in zip(axes, chosen, strict=True)]
    chosen = together(chosen)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    return _places(r, shape, axes, chosen, first)


def _places(r: AtenReader, shape: Shape, axes: Sequence[int], chosen: Sequence[Array], first: int) -> Places:
    """Make the `Places` of index tensors of one shape, whose axes begin at axis `first` of the result."""
    batch = chosen[0].shape
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    dtype = chosen[0].dtype if len(chosen) == 1 else I64
    columns = [index.cast(dtype).expand(-1) for index in chosen]
    numbers: Attributes = {
        "offset_dims": tuple(k if k < first else k + len(batch) for k in range(len(kept))),
        "collapsed_slice_dims": tuple(axes),
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
        "start_index_map": tuple(axes),
        "index_vector_dim": len(batch),
    }
    window = tuple(ONE if axis in axes else size for axis, size in enumerate(shape))
    sizes = [shape[axis] for axis in kept]
    return Places(joined(columns, -1), numbers, window, (*sizes[:first], *batch, *sizes[first:]))


def diagonal(r: AtenReader, shape: Shape, offset: int | Dim, a: int, b: int, count: Dim) -> Places:
    """Take the diagonal of the axes a and b, which becomes the last axis."""
    a, b = a % len(shape), b % len(shape)
    offset = Dim.of(offset)
    starts = {a: Dim.max(-offset, Dim.const(0)), b: Dim.max(offset, Dim.const(0))}
    line = iota(r, (count,), 0, I64)
    chosen = {axis: (line + start) for axis, start in starts.items()}
    axes = sorted(chosen)
    return _places(r, shape, axes, [chosen[axis] for axis in axes], len(shape) - 2)


def along(r: AtenReader, shape: Shape, axis: int, index: Array, wrap: bool = True) -> Places:
    """Address one element for each entry of the index; its other coordinates are those of the entry itself."""
    batching = [a for a in range(len(shape)) if a != axis and _same(r, shape[a], index.shape[a])]
    axes = [a for a in range(len(shape)) if a not in batching]
    index = wrapped(r, index, shape[axis]) if wrap else index
    columns = [index if a == axis else iota(r, index.shape, a, I64) for a in axes]
    if len(columns) > 1:
        columns = [column.cast(I64) for column in columns]
    numbers: Attributes = {
        "offset_dims": (),
        "collapsed_slice_dims": tuple(axes),
        "operand_batching_dims": tuple(batching),
        "start_indices_batching_dims": tuple(batching),
        "start_index_map": tuple(axes),
        "index_vector_dim": index.rank,
    }
    at = joined([column.expand(-1) for column in columns], -1)
    return Places(at, numbers, (ONE,) * len(shape), index.shape)


def _same(r: AtenReader, a: Dim, b: Dim) -> bool:
    return a is b or r.facts.equal(a, b) is Truth.YES


def taken(r: AtenReader, x: Array, places: Places) -> Array:
    """Gather the elements of x at `places`."""
    some = Dim.min(ONE, dim_product(places.at.shape[:-1]))
    for axis in places.numbers["collapsed_slice_dims"]:
        if x.shape[axis].is_const and x.shape[axis].value:
            continue
        r.at_most(some, x.shape[axis], f"an element {{0}} is taken of dimension {axis}, which has {{1}}")
    return x.emit("gather", places.at, **places.numbers | {"slice_sizes": places.window})


def rows(r: AtenReader, x: Array, at: Array) -> Array:
    """Take the elements at indices of the first axis, which are in range."""
    return taken(r, x, indexed(r, x.shape, [at], wrap=False))


def added(r: AtenReader, shape: Shape, indices: Sequence[Array | None], updates: Array) -> Array:
    """Add updates to zeros of this shape, at indices as in `indexed` that count from the front."""
    targets = indexed(r, shape, indices, wrap=False)
    return put(r, r.full(0, updates.dtype, shape), targets, updates, "add")


def never_empty(r: AtenReader, x: Array, axis: int) -> Array:
    """Add one element to an axis that may be empty, so that there is something to read."""
    if r.facts.at_most(ONE, x.shape[axis]) is Truth.YES:
        return x
    return x.pad((0,) * x.rank, tuple(int(a == axis) for a in range(x.rank)), 0)


def put(r: AtenReader, x: Array, places: Places, updates: Array, kind: str = "set", *, unique: bool = False) -> Array:
    """Write or combine updates into x. kind: as in `combining`. unique: no two indices are equal."""
    body = combining(r, kind, x.dtype)
    updates = updates.cast(x.dtype).broadcast(places.shape)
    return x.emit("scatter", places.at, updates, **places.numbers | {"unique": unique, "count": 1, "body": body})
