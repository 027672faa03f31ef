"""Shape inference of ops whose places are data: gather and scatter, slices with a start, sort.

Gather and scatter have one set of numbers. The operand's axes that a window spans are all but `collapsed_slice_dims`
and `operand_batching_dims`; they are `offset_dims` of the gathered (or update) tensor, whose other axes are those of
the indices but `index_vector_dim`. Entry k of an index vector is a start in axis `start_index_map[k]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.inference import (
    BOOL,
    ONE,
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
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth


def _need_numbers(op: Op, facts: ShapeFacts, x: Value, indices: Value) -> tuple[list[Dim], tuple[int, ...]]:
    """The sizes of the batch axes, and the operand axes that a window spans."""
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


def gather(op: Op, facts: ShapeFacts) -> Types:
    (x, indices), offset_dims, sizes = op.operands, op.attrs["offset_dims"], op.attrs["slice_sizes"]
    batch, kept = _need_numbers(op, facts, x, indices)
    if len(sizes) != x.rank or len(kept) != len(offset_dims):
        broken(op, f"slice_sizes need {x.rank} entries and offset_dims one for each that is kept")
    for axis, (size, limit) in enumerate(zip(sizes, x.shape, strict=True)):
        if facts.at_most(size, limit) is Truth.NO:
            disagree(op, f"slice size {size} of dim {axis} is larger than the operand's {limit}")
    rank = len(batch) + len(kept)
    need_axes(op, offset_dims, rank, "offset_dims")
    batches, window = iter(batch), {a: sizes[axis] for a, axis in zip(offset_dims, kept, strict=True)}
    return [(x.dtype, tuple(window[axis] if axis in window else next(batches) for axis in range(rank)))]


def scatter(op: Op, facts: ShapeFacts) -> Types:
    """(*xs, indices, *updates, *captured): `count` xs; the body gets an element of each, one of each update, captured.

    A window that does not lie in its operand as a whole changes nothing.
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


def sort(op: Op, facts: ShapeFacts) -> Types:
    """(*xs, *captured): `count` xs, which the body compares: it gets two elements of each in turn, then captured."""
    count, body = op.attrs["count"], op.attrs["body"]
    if not 1 <= count <= len(op.operands):
        broken(op, f"{len(op.operands)} operands do not hold {count} to sort")
    xs = op.operands[:count]
    shape = agree_shapes(op, facts, xs)
    need_axes(op, (op.attrs["dim"],), len(shape), "dim")
    _need_body(op, body, (*(x for x in xs for _ in range(2)), *op.operands[count:]), [BOOL])
    return [(x.dtype, shape) for x in xs]


def _need_body(op: Op, body: Region, given: Sequence[Value], results: Sequence[object]) -> None:
    """The body takes a scalar of each value given and makes scalars of these dtypes."""
    takes, makes = [(v.dtype, v.shape) for v in body.inputs], [(v.dtype, v.shape) for v in body.outputs]
    if takes != [(v.dtype, ()) for v in given] or makes != [(dtype, ()) for dtype in results]:
        broken(op, f"the body takes {list(body.inputs)} and makes {list(body.outputs)}")


# ------------------------------------------------------------------------------------------- slices with a start


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


def dynamic_slice(op: Op, facts: ShapeFacts) -> Types:
    x, *starts = op.operands
    _need_starts(op, starts, x.rank)
    _need_fits(op, facts, op.attrs["sizes"], x.shape, "the slice")
    return [(x.dtype, op.attrs["sizes"])]


def dynamic_update_slice(op: Op, facts: ShapeFacts) -> Types:
    x, update, *starts = op.operands
    need_dtype(op, update, x.dtype, "the update")
    _need_starts(op, starts, x.rank)
    _need_fits(op, facts, update.shape, x.shape, "the update")
    return [(x.dtype, x.shape)]
