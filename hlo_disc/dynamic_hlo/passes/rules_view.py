"""Rewrite rules for ops that move data: views, slices, pads and concatenations. One row a rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.passes.patterns import (
    Match,
    all_equal,
    any_op,
    are_equal,
    broadcast_scalar,
    constant,
    first_operand,
    is_one,
    is_zero,
    kept_axes,
    made_by,
    operand_made_by,
    scalar_dim,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rewrite import Rule
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.shapes import same_shape


def _unchanged_shape(facts: ShapeFacts, op: Op) -> bool:
    return same_shape(facts, op.operands[0].shape, op.result.shape)


# ------------------------------------------------------------------------------------------------------- reshape


def _reshape(builder: GraphBuilder, op: Op, *parts: Any) -> Value:
    return builder.op("reshape", op.operands[:1], op.loc, shape=op.result.shape)


def _reshape_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    return builder.op("reshape", inner.operands, op.loc, shape=op.attrs["shape"])


def _reshaped_constant(op: Op) -> Match:
    array = constant(op.operands[0])
    return (array,) if array is not None and all(d.is_const for d in op.result.shape) else None


def _constant_in_shape(builder: GraphBuilder, op: Op, array: Any) -> Value:
    return builder.op("constant", (), op.loc, value=array.reshape([d.value for d in op.result.shape]))


def _inserts_units(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    return kept_axes(facts, inner.result.shape, op.result.shape) is not None


def _broadcast_to_more_axes(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    axes = kept_axes(builder.facts, inner.result.shape, op.result.shape) or ()
    dims = tuple(axes[axis] for axis in inner.attrs["dims"])
    return builder.op("broadcast", inner.operands, op.loc, shape=op.result.shape, dims=dims)


# ------------------------------------------------------------------------------------------------------ transpose


def _is_identity_perm(facts: ShapeFacts, op: Op) -> bool:
    return op.attrs["perm"] == tuple(range(op.result.rank))


def _transpose_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    perm = tuple(inner.attrs["perm"][axis] for axis in op.attrs["perm"])
    return builder.op("transpose", inner.operands, op.loc, perm=perm)


def _transposed_broadcast(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    dims = tuple(op.attrs["perm"].index(axis) for axis in inner.attrs["dims"])
    return builder.op("broadcast", inner.operands, op.loc, shape=op.result.shape, dims=dims)


def _moves_only_units(facts: ShapeFacts, op: Op) -> bool:
    moved = [axis for axis in op.attrs["perm"] if not is_one(facts, op.operands[0].shape[axis])]
    return moved == sorted(moved)


def _drops_units(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    return op.result.rank < inner.result.rank and kept_axes(facts, op.result.shape, inner.result.shape) is not None


def _transpose_without_units(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    kept = kept_axes(builder.facts, op.result.shape, inner.result.shape) or ()
    sources = [inner.attrs["perm"][axis] for axis in kept]
    shape = tuple(inner.operands[0].shape[axis] for axis in sorted(sources))
    x = builder.op("reshape", inner.operands, op.loc, shape=shape)
    return builder.op("transpose", (x,), op.loc, perm=tuple(sorted(sources).index(axis) for axis in sources))


# ------------------------------------------------------------------------------------------------------ broadcast


def _is_identity_broadcast(facts: ShapeFacts, op: Op) -> bool:
    return op.attrs["dims"] == tuple(range(op.result.rank)) and _unchanged_shape(facts, op)


def _broadcast_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    dims = tuple(op.attrs["dims"][axis] for axis in inner.attrs["dims"])
    return builder.op("broadcast", inner.operands, op.loc, shape=op.attrs["shape"], dims=dims)


def _broadcasts_only_units(facts: ShapeFacts, op: Op) -> bool:
    dims, shape = op.attrs["dims"], op.attrs["shape"]
    source = dict(zip(dims, op.operands[0].shape, strict=True))
    return list(dims) == sorted(dims) and all(
        are_equal(facts, source[axis], size) if axis in source else is_one(facts, size)
        for axis, size in enumerate(shape)
    )


def _reshape_inserts_units(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    return kept_axes(facts, inner.operands[0].shape, inner.result.shape) is not None


def _broadcast_unreshaped(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    axes = kept_axes(builder.facts, inner.operands[0].shape, inner.result.shape) or ()
    dims = tuple(op.attrs["dims"][axis] for axis in axes)
    return builder.op("broadcast", inner.operands, op.loc, shape=op.attrs["shape"], dims=dims)


def _splat_operand(op: Op) -> Match:
    value = splat(op.operands[0])
    return None if value is None or not op.operands[0].shape else (value,)


def _equal_elements(op: Op) -> Match:
    array = op.attrs["value"]
    return (array.reshape(-1)[0:1].reshape(()),) if array.size > 1 and all_equal(array) else None


def _broadcast_constant(builder: GraphBuilder, op: Op, value: Any) -> Value:
    scalar = builder.op("constant", (), op.loc, value=value)
    return builder.op("broadcast", (scalar,), op.loc, shape=op.result.shape, dims=())


def _counts_to_one(facts: ShapeFacts, op: Op) -> bool:
    return op.result.dtype.kind != "c" and is_one(facts, op.attrs["shape"][op.attrs["dim"]])


def _zeros(builder: GraphBuilder, op: Op) -> Value:
    return _broadcast_constant(builder, op, np.zeros((), op.result.dtype))


def _scalar_operand(op: Op) -> Match:
    scalar = broadcast_scalar(op.operands[0])
    return None if scalar is None else (scalar,)


def _broadcast_of_scalar(builder: GraphBuilder, op: Op, scalar: Value) -> Value:
    return builder.op("broadcast", (scalar,), op.loc, shape=op.result.shape, dims=())


# ---------------------------------------------------------------------------------------------------------- slice


def _is_full_slice(facts: ShapeFacts, op: Op) -> bool:
    return (
        all(stride == 1 for stride in op.attrs["stride"])
        and all(is_zero(facts, start) for start in op.attrs["start"])
        and all(are_equal(facts, *pair) for pair in zip(op.attrs["limit"], op.operands[0].shape, strict=True))
    )


def _slices_combine(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    # Past a stride, the outer limit names no element of the operand unless the outer slice takes everything.
    axes = zip(op.attrs["start"], op.attrs["limit"], op.attrs["stride"], inner.attrs["stride"], strict=True)
    sizes = inner.result.shape
    return all(
        within == 1 or (start is ZERO and limit is size and stride == 1)
        for (start, limit, stride, within), size in zip(axes, sizes, strict=True)
    )


def _slice_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    starts, limits, strides = [], [], []
    for axis, stride in enumerate(inner.attrs["stride"]):
        first = inner.attrs["start"][axis]
        starts.append(first + op.attrs["start"][axis] * stride)
        limits.append(inner.attrs["limit"][axis] if stride != 1 else first + op.attrs["limit"][axis])
        strides.append(stride * op.attrs["stride"][axis])
    attrs = {"start": tuple(starts), "limit": tuple(limits), "stride": tuple(strides)}
    return builder.op("slice", inner.operands, op.loc, **attrs)


def _transpose_of_slice(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    perm = inner.attrs["perm"]
    attrs = {name: tuple(value[perm.index(axis)] for axis in range(len(perm))) for name, value in op.attrs.items()}
    x = builder.op("slice", inner.operands, op.loc, **attrs)
    return builder.op("transpose", (x,), op.loc, perm=perm)


def _indices_with_unit_vectors(op: Op) -> Match:
    inner = made_by(op.operands[1], "reshape")
    vector = op.attrs["index_vector_dim"]
    return (inner, vector) if inner is not None and vector < op.operands[1].rank else None


def _adds_the_vector_axis(facts: ShapeFacts, op: Op, inner: Op, vector: int) -> bool:
    shape = op.operands[1].shape
    without = shape[:vector] + shape[vector + 1 :]
    return is_one(facts, shape[vector]) and same_shape(facts, inner.operands[0].shape, without)


def _gather_by_scalars(builder: GraphBuilder, op: Op, inner: Op, vector: int) -> Value:
    x, indices = op.operands[0], inner.operands[0]
    batching = tuple(axis - (axis > vector) for axis in op.attrs["start_indices_batching_dims"])
    attrs = {**op.attrs, "start_indices_batching_dims": batching, "index_vector_dim": indices.rank}
    return builder.op("gather", (x, indices), op.loc, **attrs)


def _known_starts(op: Op) -> Match:
    starts = [scalar_dim(value) for value in op.operands[1:]]
    return None if any(start is None for start in starts) else (starts,)


def _clamped(facts: ShapeFacts, op: Op, starts: list[Dim]) -> list[Dim]:
    """The starts where the block really lies: moved inside the operand."""
    axes = zip(starts, op.operands[0].shape, op.attrs["sizes"], strict=True)
    return [facts.canonical(Dim.max(Dim.min(start, limit - size), ZERO)) for start, limit, size in axes]


def _clamps_resolve(facts: ShapeFacts, op: Op, starts: list[Dim]) -> bool:
    plain = map(facts.canonical, starts)
    return all(at.is_const or at is start for at, start in zip(_clamped(facts, op, starts), plain, strict=True))


def _static_slice(builder: GraphBuilder, op: Op, starts: list[Dim]) -> Value:
    start = tuple(_clamped(builder.facts, op, starts))
    limit = tuple(at + size for at, size in zip(start, op.attrs["sizes"], strict=True))
    return builder.op("slice", op.operands[:1], op.loc, start=start, limit=limit, stride=(1,) * len(start))


def _update_covers_all(facts: ShapeFacts, op: Op) -> bool:
    return same_shape(facts, op.operands[1].shape, op.operands[0].shape)


def _update_is_empty(facts: ShapeFacts, op: Op) -> bool:
    return any(is_zero(facts, size) for size in op.operands[1].shape)


def _second_operand(builder: GraphBuilder, op: Op) -> Value:
    return op.operands[1]


def _reverse_inner(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    dims = tuple(sorted({*op.attrs["dims"]} ^ {*inner.attrs["dims"]}))
    return builder.op("reverse", inner.operands, op.loc, dims=dims) if dims else inner.operands[0]


def _reverses_only_units(facts: ShapeFacts, op: Op) -> bool:
    return all(is_one(facts, op.result.shape[axis]) for axis in op.attrs["dims"])


# ------------------------------------------------------------------------------------------------- concatenate, pad


def _single_operand(op: Op) -> Match:
    return () if len(op.operands) == 1 else None


def _nested_concatenate(op: Op) -> Match:
    def same(value: Value) -> bool:
        inner = made_by(value, "concatenate")
        return inner is not None and inner.attrs["dim"] == op.attrs["dim"]

    return () if any(map(same, op.operands)) else None


def _flat_concatenate(builder: GraphBuilder, op: Op) -> Value:
    parts: list[Value] = []
    for value in op.operands:
        inner = made_by(value, "concatenate")
        parts.extend(inner.operands if inner and inner.attrs["dim"] == op.attrs["dim"] else (value,))
    return builder.op("concatenate", parts, op.loc, dim=op.attrs["dim"])


def _nonempty(facts: ShapeFacts, op: Op) -> list[Value]:
    return [value for value in op.operands if not is_zero(facts, value.shape[op.attrs["dim"]])]


def _has_empty_operand(facts: ShapeFacts, op: Op) -> bool:
    return 0 < len(_nonempty(facts, op)) < len(op.operands)


def _concatenate_nonempty(builder: GraphBuilder, op: Op) -> Value:
    return builder.op("concatenate", _nonempty(builder.facts, op), op.loc, dim=op.attrs["dim"])


def _pads_nothing(facts: ShapeFacts, op: Op) -> bool:
    return all(is_zero(facts, n) for name in ("low", "high", "interior") for n in op.attrs[name])


VIEW_RULES = (
    # reshape(reshape(x)) -> reshape(x)
    Rule("reshape of reshape", ("reshape",), operand_made_by("reshape"), _reshape_inner),
    # reshape(x) : shape(x) -> x
    Rule("reshape to the same shape", ("reshape",), any_op, first_operand, _unchanged_shape),
    # reshape(constant c) -> constant c'
    Rule("reshape of constant", ("reshape",), _reshaped_constant, _constant_in_shape),
    # reshape(broadcast(x) : (b, s)) : (b, 1, s) -> broadcast(x) : (b, 1, s)
    Rule(
        "reshape that adds unit dims to broadcast",
        ("reshape",),
        operand_made_by("broadcast"),
        _broadcast_to_more_axes,
        _inserts_units,
    ),
    # transpose(transpose(x)) -> transpose(x)
    Rule("transpose of transpose", ("transpose",), operand_made_by("transpose"), _transpose_inner),
    # transpose(x), perm = (0, 1, 2) -> x
    Rule("identity transpose", ("transpose",), any_op, first_operand, _is_identity_perm),
    # transpose(broadcast(x)) -> broadcast(x)
    Rule("transpose of broadcast", ("transpose",), operand_made_by("broadcast"), _transposed_broadcast),
    # transpose(x : (b, 1, s)) : (1, b, s) -> reshape(x)
    Rule("transpose of unit dims", ("transpose",), any_op, _reshape, _moves_only_units),
    # reshape(transpose(x) : (1, b, s)) : (b, s) -> transpose(reshape(x))
    Rule(
        "reshape that drops unit dims of transpose",
        ("reshape",),
        operand_made_by("transpose"),
        _transpose_without_units,
        _drops_units,
    ),
    # broadcast(x) : shape(x) -> x
    Rule("identity broadcast", ("broadcast",), any_op, first_operand, _is_identity_broadcast),
    # broadcast(broadcast(x)) -> broadcast(x)
    Rule("broadcast of broadcast", ("broadcast",), operand_made_by("broadcast"), _broadcast_inner),
    # broadcast(constant [c]) -> broadcast(constant c)
    Rule("broadcast of splat", ("broadcast",), _splat_operand, _broadcast_constant),
    # broadcast(x : (b, s)) : (b, 1, s) -> reshape(x)
    Rule("broadcast that adds unit dims", ("broadcast",), any_op, _reshape, _broadcasts_only_units),
    # broadcast(reshape(x : (b)) : (b, 1)) : (b, s) -> broadcast(x) : (b, s)
    Rule(
        "broadcast of reshape that adds unit dims",
        ("broadcast",),
        operand_made_by("reshape"),
        _broadcast_unreshaped,
        _reshape_inserts_units,
    ),
    # constant [c, c] -> broadcast(constant c)
    Rule("splat constant", ("constant",), _equal_elements, _broadcast_constant),
    # iota : (b, 1), dim = 1 -> broadcast(constant 0)
    Rule("iota of unit dim", ("iota",), any_op, _zeros, _counts_to_one),
    # slice(broadcast(scalar)) -> broadcast(scalar)
    Rule(
        "view of broadcast scalar",
        ("reshape", "slice", "reverse", "dynamic_slice"),
        _scalar_operand,
        _broadcast_of_scalar,
    ),
    # slice(x), 0 to size -> x
    Rule("full slice", ("slice",), any_op, first_operand, _is_full_slice),
    # slice(slice(x)) -> slice(x)
    Rule("slice of slice", ("slice",), operand_made_by("slice"), _slice_inner, _slices_combine),
    # slice(transpose(x)) -> transpose(slice(x))
    Rule("slice of transpose", ("slice",), operand_made_by("transpose"), _transpose_of_slice),
    # gather(x, reshape(i : (b)) : (b, 1)), index_vector_dim = 1 -> gather(x, i)
    Rule("gather by unit vectors", ("gather",), _indices_with_unit_vectors, _gather_by_scalars, _adds_the_vector_axis),
    # dynamic_slice(x, 3) -> slice(x), 3 to 3 + size
    Rule("dynamic_slice at known starts", ("dynamic_slice",), _known_starts, _static_slice, _clamps_resolve),
    # dynamic_slice(x, i) : shape(x) -> x
    Rule("dynamic_slice of everything", ("dynamic_slice",), any_op, first_operand, _unchanged_shape),
    # dynamic_update_slice(x, update : shape(x)) -> update
    Rule("update of everything", ("dynamic_update_slice",), any_op, _second_operand, _update_covers_all),
    # dynamic_update_slice(x, update : (0)) -> x
    Rule("update of nothing", ("dynamic_update_slice",), any_op, first_operand, _update_is_empty),
    # reverse(reverse(x)) -> x
    Rule("reverse of reverse", ("reverse",), operand_made_by("reverse"), _reverse_inner),
    # reverse(x : (1, s)), dims = (0) -> x
    Rule("reverse of unit dims", ("reverse",), any_op, first_operand, _reverses_only_units),
    # concatenate(x) -> x
    Rule("concatenate of one", ("concatenate",), _single_operand, first_operand),
    # concatenate(x, y : (0)) -> concatenate(x)
    Rule("concatenate with empty", ("concatenate",), any_op, _concatenate_nonempty, _has_empty_operand),
    # concatenate(concatenate(x, y), z) -> concatenate(x, y, z)
    Rule("concatenate of concatenate", ("concatenate",), _nested_concatenate, _flat_concatenate),
    # pad(x), low = high = interior = 0 -> x
    Rule("pad with nothing", ("pad",), any_op, first_operand, _pads_nothing),
)
