"""Constants, iotas, views, concatenate and pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import constant, integer, ints

if TYPE_CHECKING:
    from hlo_disc.import_.construction import Construction
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _constant(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    value = constant(op, r.result_type(op)[0])
    if value.ndim and value.size > 1 and not any(value.strides):
        scalar = r.constant(value.reshape(-1)[0])
        return r.emit("broadcast", (scalar,), shape=r.policy.created(r, op, r.static_sizes(op)), dims=())
    return r.constant(value) if value.dtype.kind == "c" else r.dense(op.attributes["value"], value)


def _iota(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return _make_iota(r, op, r.result_type(op)[0], r.policy.created(r, op, r.static_sizes(op)))


def _make_iota(r: Reader, op: ir.OpView, dtype: np.dtype, shape: Shape) -> Value:
    return r.emit("iota", shape=shape, dim=r.attr(op, "iota_dimension", integer), dtype=dtype)


def _broadcast_in_dim(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, dims = r.data(operands[0]), r.attr(op, "broadcast_dimensions", ints)
    return make_broadcast(r, x, r.policy.broadcast(r, op, x, dims, r.static_sizes(op)), dims)


def _dynamic_broadcast_in_dim(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return make_broadcast(r, r.data(operands[0]), r.sizes(operands[1]), r.attr(op, "broadcast_dimensions", ints))


def _broadcast_prefix(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    prefix = tuple(map(Dim.const, r.attr(op, "broadcast_sizes", ints)))
    return make_broadcast(r, x, prefix + x.shape, tuple(range(len(prefix), len(prefix) + x.rank)))


def make_broadcast(r: Construction, x: Value, shape: Shape, dims: tuple[int, ...]) -> Value:
    shape = _broadcast_shape(r, x, shape, dims)
    if shape == x.shape and dims == tuple(range(x.rank)):
        return x
    return r.emit("broadcast", (x,), shape=shape, dims=dims)


def _broadcast_shape(r: Construction, x: Value, shape: Shape, dims: tuple[int, ...]) -> Shape:
    """Return `shape`, with guards for operand dims, which must be 1 or the result's size."""
    if all(size is ONE or size is shape[axis] for size, axis in zip(x.shape, dims, strict=True)):
        return shape
    result = list(shape)
    for i, (size, axis) in enumerate(zip(x.shape, dims, strict=True)):
        target = result[axis]
        if size is target or size is ONE or r.facts.equal(size, target) is Truth.YES:
            continue
        if target is Dim.max(size, ONE):
            # Frameworks compute the common size of two shapes as a maximum; with itself and 1 it is the operand's.
            result[axis] = size
            continue
        low, high = r.facts.bounds(size)
        if low == high == 1:
            continue
        if (low is not None and low > 1) or high == 0:
            r.equal(size, target, f"operand dimension {i} and result dimension {axis}")
            continue
        product = (size - 1) * (size - target)
        message = f"operand dimension {i} is {{0}}, neither 1 nor the result's {{1}}"
        r.require(product, "==", ZERO, message, (size, target), is_fact=False)
    return tuple(result)


def _reshape(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return make_reshape(r, x, r.policy.reshape(r, op, x, r.static_sizes(op)))


def make_reshape(r: Construction, x: Value, shape: Shape) -> Value:
    if shape == x.shape:
        return x
    r.same_count(x.shape, shape)
    return r.emit("reshape", (x,), shape=shape)


def _transpose(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, perm = r.data(operands[0]), r.attr(op, "permutation", ints)
    return x if perm == tuple(range(x.rank)) else r.emit("transpose", (x,), perm=perm)


def _reverse(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return r.emit("reverse", (r.data(operands[0]),), dims=r.attr(op, "dimensions", ints))


def _slice(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    written = (r.attr(op, name, ints) for name in ("start_indices", "limit_indices"))
    start, limit = r.policy.slice(r, op, x, *written)
    return make_slice(r, x, start, limit, r.attr(op, "strides", ints))


def make_slice(r: Construction, x: Value, start: Shape, limit: Shape, stride: tuple[int, ...]) -> Value:
    if limit == x.shape and all(s is ZERO for s in start) and all(s == 1 for s in stride):
        return x
    for axis, (low, high, size) in enumerate(zip(start, limit, x.shape, strict=True)):
        if low is ZERO and high is size:
            continue
        r.at_most(ZERO, low, f"the slice's start in dimension {axis} must be at least 0, but is {{1}}")
        r.at_most(low, high, f"the slice's start {{0}} in dimension {axis} must be at most its limit {{1}}")
        r.at_most(high, size, f"the slice's limit {{0}} in dimension {axis} must be at most the size {{1}}")
    return r.emit("slice", (x,), start=start, limit=limit, stride=stride)


def _set_dimension_size(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Take the first `size` elements of a dimension; for the program the operand has no others."""
    x, axis = r.data(operands[0]), r.attr(op, "dimension", integer)
    (size,) = r.tensor_shape(r.elements(operands[1]))
    limit = tuple(size if a == axis else n for a, n in enumerate(x.shape))
    return make_slice(r, x, (ZERO,) * x.rank, limit, (1,) * x.rank)


def _concatenate(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return make_concatenate(r, [r.data(x) for x in operands], r.attr(op, "dimension", integer))


def make_concatenate(r: Construction, values: Sequence[Value], axis: int) -> Value:
    if len(values) == 1:
        return values[0]
    for value in values[1:]:
        for i, (a, b) in enumerate(zip(values[0].shape, value.shape, strict=True)):
            if i != axis:
                r.equal(a, b, f"dimension {i} of the operands")
    return r.emit("concatenate", values, dim=axis)


def _pad(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return make_pad(r, operands, *(tuple(map(Dim.const, r.attr(op, name, ints))) for name in names))


def make_pad(r: Reader, operands: list[Operand], low: Shape, high: Shape, interior: Shape) -> Value:
    x, value = r.data(operands[0]), r.data(operands[1])
    if all(d is ZERO for d in low + high + interior):
        return x
    for axis, gap in enumerate(interior):
        r.at_most(ZERO, gap, f"the interior padding of dimension {axis} is {{1}}")
    result = r.emit("pad", (x, value), low=low, high=high, interior=interior)
    for axis, size in enumerate(result.shape):
        r.at_most(ZERO, size, f"dimension {axis} would be padded to the size {{1}}")
    return result


HANDLERS: dict[str, Handler] = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": lambda r, op, operands: _make_iota(r, op, r.result_type(op)[0], r.sizes(operands[0])),
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast_in_dim,
    "stablehlo.broadcast": _broadcast_prefix,
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": lambda r, op, operands: make_reshape(r, r.data(operands[0]), r.sizes(operands[1])),
    "stablehlo.transpose": _transpose,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.set_dimension_size": _set_dimension_size,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.dynamic_pad": lambda r, op, operands: make_pad(r, operands, *map(r.dims, operands[2:])),
}
