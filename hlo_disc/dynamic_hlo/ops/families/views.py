"""Sources, views, and ops that assemble values from others."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops import axes
from hlo_disc.dynamic_hlo.ops.arrays import Array, Ints
from hlo_disc.dynamic_hlo.ops.inference import (
    Types,
    agree,
    broken,
    disagree,
    need_axes,
    need_dtype,
    need_scalar,
)
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError


def infer_constant(op: Op, facts: ShapeFacts) -> Types:
    value = op.attrs["value"]
    return [(value.dtype, tuple(map(Dim.const, value.shape)))]


def constant(*, value: Array) -> Array:
    return value


def infer_iota(op: Op, facts: ShapeFacts) -> Types:
    shape, dim = op.attrs["shape"], op.attrs["dim"]
    need_axes(op, (dim,), len(shape), "dim")
    return [(op.attrs["dtype"], shape)]


def iota(*, shape: Ints, dim: int, dtype: np.dtype) -> Array:
    line = np.arange(shape[dim]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if axis == dim else 1 for axis in range(len(shape))]), shape)


def infer_dim(op: Op, facts: ShapeFacts) -> Types:
    if dtype_class(op.attrs["dtype"]) not in ("int", "uint"):
        broken(op, f"a size has an integer dtype, not {op.attrs['dtype']}")
    return [(op.attrs["dtype"], ())]


def dim(*, expr: int, dtype: np.dtype) -> Array:
    return np.array(expr).astype(dtype)


def infer_broadcast(op: Op, facts: ShapeFacts) -> Types:
    (x,), shape, dims = op.operands, op.attrs["shape"], op.attrs["dims"]
    need_axes(op, dims, len(shape), "dims")
    if len(dims) != x.rank:
        broken(op, f"dims {dims} must name one result axis for each operand axis")
    for axis, (size, target) in enumerate(zip(x.shape, dims, strict=True)):
        if size is ONE or size is shape[target]:
            continue
        if facts.equal(size, shape[target]) is Truth.NO and facts.equal(size, ONE) is Truth.NO:
            disagree(op, f"operand dim {axis} of size {size} is neither 1 nor result dim {target} of {shape[target]}")
    return [(x.dtype, shape)]


def broadcast(x: Array, *, shape: Ints, dims: Ints) -> Array:
    order = np.argsort(dims)
    expanded = [1] * len(shape)
    for axis in order:
        expanded[dims[axis]] = x.shape[axis]
    return np.broadcast_to(x.transpose(order).reshape(expanded), shape)


def infer_reshape(op: Op, facts: ShapeFacts) -> Types:
    (x,), shape = op.operands, op.attrs["shape"]
    if facts.same_size(x.shape, shape) is Truth.NO:
        disagree(op, f"the result shape ({', '.join(map(str, shape))}) can never have as many elements")
    return [(x.dtype, shape)]


def reshape(x: Array, *, shape: Ints) -> Array:
    return x.reshape(shape)


def infer_transpose(op: Op, facts: ShapeFacts) -> Types:
    (x,), perm = op.operands, op.attrs["perm"]
    need_axes(op, perm, x.rank, "perm")
    if len(perm) != x.rank:
        broken(op, f"perm {perm} must name all axes of rank {x.rank}")
    return [(x.dtype, tuple(x.shape[axis] for axis in perm))]


def transpose(x: Array, *, perm: Ints) -> Array:
    return x.transpose(perm)


def infer_slice(op: Op, facts: ShapeFacts) -> Types:
    (x,), starts, limits, strides = op.operands, op.attrs["start"], op.attrs["limit"], op.attrs["stride"]
    if not len(starts) == len(limits) == len(strides) == x.rank:
        broken(op, f"start, limit and stride must have {x.rank} entries")
    shape = []
    for axis, (start, limit, stride, size) in enumerate(zip(starts, limits, strides, x.shape, strict=True)):
        if stride < 1:
            broken(op, f"stride {stride} of dim {axis} is not positive")
        if start is ZERO and limit is size and stride == 1:
            shape.append(size)
            continue
        for low, high in ((ZERO, start), (start, limit), (limit, size)):
            if facts.at_most(low, high) is Truth.NO:
                disagree(op, f"dim {axis} of size {size} has no elements {start} to {limit}")
        shape.append(limit - start if stride == 1 else (limit - start + (stride - 1)) // stride)
    return [(x.dtype, tuple(shape))]


def slice_(x: Array, *, start: Ints, limit: Ints, stride: Ints) -> Array:
    for axis, (low, high, size) in enumerate(zip(start, limit, x.shape, strict=True)):
        if not 0 <= low <= high <= size:
            raise ShapeError(f"dim {axis} of size {size} has no elements {low} to {high}")
    return x[tuple(map(slice, start, limit, stride))]


def infer_reverse(op: Op, facts: ShapeFacts) -> Types:
    need_axes(op, op.attrs["dims"], op.operands[0].rank, "dims")
    return [(op.operands[0].dtype, op.operands[0].shape)]


def reverse(x: Array, *, dims: Ints) -> Array:
    return np.flip(x, dims)


def infer_concatenate(op: Op, facts: ShapeFacts) -> Types:
    if not op.operands:
        broken(op, "nothing to concatenate")
    first, axis = op.operands[0], op.attrs["dim"]
    need_axes(op, (axis,), first.rank, "dim")
    shape, total = list(first.shape), first.shape[axis]
    for number, value in enumerate(op.operands[1:], 1):
        need_dtype(op, value, first.dtype, f"operand {number}")
        if value.rank != first.rank:
            broken(op, f"operand {number} has rank {value.rank}, operand 0 has rank {first.rank}")
        total = total + value.shape[axis]
        for other in set(range(first.rank)) - {axis}:
            what = f"dim {other} of operands 0 and {number}"
            shape[other] = agree(op, facts, shape[other], value.shape[other], what)
    shape[axis] = total
    return [(first.dtype, tuple(shape))]


def concatenate(*xs: Array, dim: int) -> Array:
    return np.concatenate(xs, axis=dim)


def infer_pad(op: Op, facts: ShapeFacts) -> Types:
    (x, value), lows, highs, interiors = op.operands, op.attrs["low"], op.attrs["high"], op.attrs["interior"]
    need_scalar(op, value, "the padding value")
    need_dtype(op, value, x.dtype, "the padding value")
    if not len(lows) == len(highs) == len(interiors) == x.rank:
        broken(op, f"low, high and interior must have {x.rank} entries")
    shape = []
    for axis, (low, high, interior, size) in enumerate(zip(lows, highs, interiors, x.shape, strict=True)):
        if facts.at_most(ZERO, interior) is Truth.NO:
            broken(op, f"interior padding {interior} of dim {axis} is negative")
        spread = ZERO if interior is ZERO else Dim.max(size - 1, ZERO) * interior
        padded = low + size + spread + high
        if facts.at_most(ZERO, padded) is Truth.NO:
            disagree(op, f"dim {axis} of size {size} would become {padded}")
        shape.append(padded)
    return [(x.dtype, tuple(shape))]


def pad(x: Array, value: Array, *, low: Ints, high: Ints, interior: Ints) -> Array:
    result: list[int] = []
    taken, places = [], []
    for n, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        result.append(before + n + max(n - 1, 0) * gap + after)
        place = before + np.arange(n) * (gap + 1)
        inside = (place >= 0) & (place < result[-1])
        taken.append(np.flatnonzero(inside))
        places.append(place[inside])
    padded = np.full(result, value, x.dtype)
    padded[np.ix_(*places)] = x[np.ix_(*taken)]
    return padded


ROWS = (
    OpDef("constant", "source", 0, infer_constant, constant, ("value",), axes=axes.NO_AXES),
    OpDef("iota", "source", 0, infer_iota, iota, ("shape", "dim", "dtype"), axes=axes.IOTA),
    OpDef("dim", "source", 0, infer_dim, dim, ("expr", "dtype"), axes=axes.NO_AXES),
    OpDef("broadcast", "view", 1, infer_broadcast, broadcast, ("shape", "dims"), axes=axes.BROADCAST),
    OpDef("reshape", "view", 1, infer_reshape, reshape, ("shape",), axes=axes.RESHAPE),
    OpDef("transpose", "view", 1, infer_transpose, transpose, ("perm",), axes=axes.TRANSPOSE),
    OpDef("slice", "view", 1, infer_slice, slice_, ("start", "limit", "stride"), axes=axes.SLICE),
    OpDef("reverse", "view", 1, infer_reverse, reverse, ("dims",), axes=axes.REVERSE),
    OpDef("concatenate", "assemble", None, infer_concatenate, concatenate, ("dim",), axes=axes.CONCATENATE),
    OpDef("pad", "assemble", 2, infer_pad, pad, ("low", "high", "interior"), axes=axes.PAD),
)
