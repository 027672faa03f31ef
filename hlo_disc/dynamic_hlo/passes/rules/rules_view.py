"""Rewrite rules for ops that move data: views, slices, pads and concatenations."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.axes import Same
from hlo_disc.dynamic_hlo.ops.table import OPS, links
from hlo_disc.dynamic_hlo.passes.rules.patterns import (
    all_equal,
    are_equal,
    broadcast_scalar,
    constant,
    is_one,
    is_zero,
    kept_axes,
    made_by,
    scalar_dim,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, NewOp, Rule, filled, make, rule, zeros
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.shapes import same_shape

VIEW_RULES: list[Rule] = []
_MOVING = tuple(name for name, row in OPS.items() if row.axes and (row.kind in ("view", "assemble") or row.axes.starts))


def _broadcast(op: Op, inner: Op, dims: tuple[int, ...]) -> NewOp:
    return make("broadcast", *inner.operands, shape=op.result.shape, dims=dims)


@rule(VIEW_RULES, *_MOVING)
def op_that_moves_nothing(facts: ShapeFacts, op: Op) -> Instead | None:
    """transpose(x), perm = (0, 1, 2) → x"""
    if op.operands[0].rank != op.result.rank:
        return None
    link = links(op, facts)[-1]  # the last part is on top of the others
    entries = enumerate(link.entries)
    whole = len(link.entries) == op.result.rank and all(isinstance(to, Same) and to.axis == a for a, to in entries)
    return link.values[0] if whole else None


# ------------------------------------------------------------------------------------------------------- reshape


@rule(VIEW_RULES, "reshape", of="reshape")
def reshape_of_reshape(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """reshape(reshape(x)) → reshape(x)"""
    return make("reshape", *inner.operands, shape=op.attrs["shape"])


@rule(VIEW_RULES, "reshape")
def reshape_to_the_same_shape(facts: ShapeFacts, op: Op) -> Instead | None:
    """reshape(x) : shape(x) → x"""
    return op.operands[0] if same_shape(facts, op.operands[0].shape, op.result.shape) else None


@rule(VIEW_RULES, "reshape")
def reshape_of_constant(facts: ShapeFacts, op: Op) -> Instead | None:
    """reshape(constant c) → constant c'"""
    array = constant(op.operands[0])
    if array is None or not all(d.is_const for d in op.result.shape):
        return None
    return make("constant", value=array.reshape([d.value for d in op.result.shape]))


@rule(VIEW_RULES, "reshape", of="broadcast")
def reshape_that_adds_unit_dims_to_broadcast(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """reshape(broadcast(x) : (b, s)) : (b, 1, s) → broadcast(x) : (b, 1, s)"""
    axes = kept_axes(facts, inner.result.shape, op.result.shape)
    return None if axes is None else _broadcast(op, inner, tuple(axes[axis] for axis in inner.attrs["dims"]))


# ------------------------------------------------------------------------------------------------------ transpose


@rule(VIEW_RULES, "transpose", of="transpose")
def transpose_of_transpose(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """transpose(transpose(x)) → transpose(x)"""
    return make("transpose", *inner.operands, perm=tuple(inner.attrs["perm"][axis] for axis in op.attrs["perm"]))


@rule(VIEW_RULES, "transpose", of="broadcast")
def transpose_of_broadcast(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """transpose(broadcast(x)) → broadcast(x)"""
    return _broadcast(op, inner, tuple(op.attrs["perm"].index(axis) for axis in inner.attrs["dims"]))


@rule(VIEW_RULES, "transpose")
def transpose_of_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """transpose(x : (b, 1, s)) : (1, b, s) → reshape(x)"""
    moved = [axis for axis in op.attrs["perm"] if not is_one(facts, op.operands[0].shape[axis])]
    return make("reshape", *op.operands, shape=op.result.shape) if moved == sorted(moved) else None


@rule(VIEW_RULES, "reshape", of="transpose")
def reshape_that_drops_unit_dims_of_transpose(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """reshape(transpose(x) : (1, b, s)) : (b, s) → transpose(reshape(x))"""
    kept = kept_axes(facts, op.result.shape, inner.result.shape) if op.result.rank < inner.result.rank else None
    if kept is None:
        return None
    sources = [inner.attrs["perm"][axis] for axis in kept]
    x = make("reshape", *inner.operands, shape=tuple(inner.operands[0].shape[axis] for axis in sorted(sources)))
    return make("transpose", x, perm=tuple(sorted(sources).index(axis) for axis in sources))


# ------------------------------------------------------------------------------------------------------ broadcast


@rule(VIEW_RULES, "broadcast", of="broadcast")
def broadcast_of_broadcast(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """broadcast(broadcast(x)) → broadcast(x)"""
    return _broadcast(op, inner, tuple(op.attrs["dims"][axis] for axis in inner.attrs["dims"]))


@rule(VIEW_RULES, "broadcast")
def broadcast_of_splat(facts: ShapeFacts, op: Op) -> Instead | None:
    """broadcast(constant [c]) → broadcast(constant c)"""
    (x,), value = op.operands, splat(op.operands[0])
    return None if value is None or not x.shape else filled(make("constant", value=value), op.result.shape)


@rule(VIEW_RULES, "broadcast")
def broadcast_that_adds_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """broadcast(x : (b, s)) : (b, 1, s) → reshape(x)"""
    dims, shape = op.attrs["dims"], op.attrs["shape"]
    source = dict(zip(dims, op.operands[0].shape, strict=True))
    if list(dims) != sorted(dims) or not all(
        are_equal(facts, source[axis], size) if axis in source else is_one(facts, size)
        for axis, size in enumerate(shape)
    ):
        return None
    return make("reshape", *op.operands, shape=op.result.shape)


@rule(VIEW_RULES, "broadcast", of="reshape")
def broadcast_of_reshape_that_adds_unit_dims(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """broadcast(reshape(x : (b)) : (b, 1)) : (b, s) → broadcast(x) : (b, s)"""
    axes = kept_axes(facts, inner.operands[0].shape, inner.result.shape)
    return None if axes is None else _broadcast(op, inner, tuple(op.attrs["dims"][axis] for axis in axes))


@rule(VIEW_RULES, "constant")
def splat_constant(facts: ShapeFacts, op: Op) -> Instead | None:
    """constant [c, c] → broadcast(constant c)"""
    array = op.attrs["value"]
    if array.size < 2 or not all_equal(array):
        return None
    return filled(make("constant", value=array.reshape(-1)[0:1].reshape(())), op.result.shape)


@rule(VIEW_RULES, "iota")
def iota_of_unit_dim(facts: ShapeFacts, op: Op) -> Instead | None:
    """iota : (b, 1), dim = 1 → broadcast(constant 0)"""
    counts_to_one = op.result.dtype.kind != "c" and is_one(facts, op.attrs["shape"][op.attrs["dim"]])
    return zeros(op.result) if counts_to_one else None


@rule(VIEW_RULES, "reshape", "slice", "reverse", "dynamic_slice")
def view_of_broadcast_scalar(facts: ShapeFacts, op: Op) -> Instead | None:
    """slice(broadcast(scalar)) → broadcast(scalar)"""
    scalar = broadcast_scalar(op.operands[0])
    return None if scalar is None else filled(scalar, op.result.shape)


# ---------------------------------------------------------------------------------------------------------- slice


@rule(VIEW_RULES, "slice", of="slice")
def slice_of_slice(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """slice(slice(x)) → slice(x)"""
    starts, limits, strides = [], [], []
    for axis, within in enumerate(inner.attrs["stride"]):
        first, last = inner.attrs["start"][axis], inner.attrs["limit"][axis]
        start, limit, stride = op.attrs["start"][axis], op.attrs["limit"][axis], op.attrs["stride"][axis]
        # Past a stride, the outer limit names no element of the operand unless the outer slice takes everything.
        if within != 1 and not (start is ZERO and limit is inner.result.shape[axis] and stride == 1):
            return None
        starts.append(first + start * within)
        limits.append(last if within != 1 else first + limit)
        strides.append(within * stride)
    return make("slice", *inner.operands, start=tuple(starts), limit=tuple(limits), stride=tuple(strides))


@rule(VIEW_RULES, "slice", of="transpose")
def slice_of_transpose(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """slice(transpose(x)) → transpose(slice(x))"""
    perm = inner.attrs["perm"]
    places = [perm.index(axis) for axis in range(len(perm))]
    start, limit = (tuple(op.attrs[name][place] for place in places) for name in ("start", "limit"))
    stride = tuple(op.attrs["stride"][place] for place in places)
    return make("transpose", make("slice", *inner.operands, start=start, limit=limit, stride=stride), perm=perm)


@rule(VIEW_RULES, "gather")
def gather_by_unit_vectors(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x, reshape(i : (b)) : (b, 1)), index_vector_dim = 1 → gather(x, i)"""
    (x, wide), vector = op.operands, op.attrs["index_vector_dim"]
    inner = made_by(wide, "reshape")
    if inner is None or vector >= wide.rank or not is_one(facts, wide.shape[vector]):
        return None
    (indices,) = inner.operands
    if not same_shape(facts, indices.shape, wide.shape[:vector] + wide.shape[vector + 1 :]):
        return None
    batching = tuple(axis - (axis > vector) for axis in op.attrs["start_indices_batching_dims"])
    attrs = op.attrs | {"start_indices_batching_dims": batching, "index_vector_dim": indices.rank}
    return make("gather", x, indices, **attrs)


@rule(VIEW_RULES, "dynamic_slice", name="dynamic_slice at known starts")
def dynamic_slice_at_known_starts(facts: ShapeFacts, op: Op) -> Instead | None:
    """dynamic_slice(x, 3) → slice(x), 3 to 3 + size"""
    x, sizes = op.operands[0], op.attrs["sizes"]
    starts = [at for value in op.operands[1:] if (at := scalar_dim(value)) is not None]
    if len(starts) < x.rank:
        return None
    inside = [Dim.max(Dim.min(at, n - size), ZERO) for at, n, size in zip(starts, x.shape, sizes, strict=True)]
    start = tuple(map(facts.canonical, inside))  # where the block really lies
    if not all(at.is_const or at is facts.canonical(said) for at, said in zip(start, starts, strict=True)):
        return None
    limit = tuple(at + size for at, size in zip(start, sizes, strict=True))
    return make("slice", x, start=start, limit=limit, stride=(1,) * x.rank)


@rule(VIEW_RULES, "dynamic_update_slice")
def update_of_nothing(facts: ShapeFacts, op: Op) -> Instead | None:
    """dynamic_update_slice(x, update : (0)) → x"""
    x, update = op.operands[:2]
    return x if any(is_zero(facts, size) for size in update.shape) else None


@rule(VIEW_RULES, "reverse", of="reverse")
def reverse_of_reverse(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """reverse(reverse(x)) → x"""
    dims = tuple(sorted({*op.attrs["dims"]} ^ {*inner.attrs["dims"]}))
    return make("reverse", *inner.operands, dims=dims) if dims else inner.operands[0]


# ------------------------------------------------------------------------------------------------- concatenate, pad


@rule(VIEW_RULES, "concatenate")
def concatenate_with_empty(facts: ShapeFacts, op: Op) -> Instead | None:
    """concatenate(x, y : (0)) → concatenate(x)"""
    rest = [x for x in op.operands if not is_zero(facts, x.shape[op.attrs["dim"]])]
    return make("concatenate", *rest, dim=op.attrs["dim"]) if 0 < len(rest) < len(op.operands) else None


@rule(VIEW_RULES, "concatenate")
def concatenate_of_concatenate(facts: ShapeFacts, op: Op) -> Instead | None:
    """concatenate(concatenate(x, y), z) → concatenate(x, y, z)"""
    inner = [made_by(x, "concatenate") for x in op.operands]
    nested = [other.operands if other and other.attrs["dim"] == op.attrs["dim"] else () for other in inner]
    if not any(nested):
        return None
    parts = [part for x, parts in zip(op.operands, nested, strict=True) for part in parts or (x,)]
    return make("concatenate", *parts, dim=op.attrs["dim"])
