"""An axis of one is no axis: ops are computed without them, between reshapes. To compare graphs, as in `alike.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Shape, Value, copied
from hlo_disc.dynamic_hlo.ops.axes import SIDES, Affine, Reduced, Relation, Runs, Same, followed, moved, placed
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region, replaced
from hlo_disc.dynamic_hlo.ops.table import axis_rule, kind
from hlo_disc.dynamic_hlo.passes.rules.patterns import is_one, kept_axes
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, build, make, rule
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

T = TypeVar("T")

UNIT_RULES: list[Rule] = []


def without_units(graph: Graph) -> Graph:
    """An equal graph whose loops, branches and ops with several results have none. Rules do all else."""

    def narrow(builder: GraphBuilder, op: Op, _: Op) -> Sequence[Value] | None:
        if kind(op) == "control":
            return _control_without_units(builder, op)
        return _several_beside_unit_dims(builder, op) if len(op.results) > 1 else None

    return replaced(graph, narrow)


def _units(facts: ShapeFacts, shape: Shape, axes: Sequence[int]) -> set[int]:
    return {axis for axis in axes if is_one(facts, shape[axis])}


def _common_units(facts: ShapeFacts, *values: Value) -> set[int]:
    return set.intersection(*(_units(facts, x.shape, range(x.rank)) for x in values))


def _without(value: Value, axes: set[int]) -> Instead:
    """The value without these axes, which are of size 1."""
    return make("reshape", value, shape=_rest(value.shape, axes)) if axes else value


def _rest(entries: Sequence[T], gone: set[int]) -> tuple[T, ...]:
    return tuple(entry for axis, entry in enumerate(entries) if axis not in gone)


def _numbered(axes: Sequence[int], gone: set[int]) -> tuple[int, ...]:
    """Return the new numbers of the axes that are left when those in `gone` are removed."""
    return tuple(axis - sum(other < axis for other in gone) for axis in axes if axis not in gone)


def _shaped(builder: GraphBuilder, value: Value, like: Value) -> Value:
    return value if value.rank == like.rank else builder.op("reshape", (value,), shape=like.shape)


# ----------------------------------------------------------------------------------------------------- control flow


def _control_without_units(builder: GraphBuilder, op: Op) -> list[Value]:
    """Regions take and make what is narrow, and reshape it."""
    facts, attrs = builder.facts, op.attrs
    regions: Attributes
    if op.name == "while":
        cond, body = attrs["cond"], attrs["body"]
        carried = zip(op.operands, cond.inputs, body.inputs, body.outputs, strict=False)
        invariant = zip(op.operands, cond.inputs, body.inputs, strict=True)
        made = [_common_units(facts, *values) for values in carried]
        taken = [*made, *(_common_units(facts, *values) for values in list(invariant)[len(made) :])]
        regions = {"cond": _narrow(facts, cond, taken, [set()]), "body": _narrow(facts, body, taken, made)}
    else:
        branches = attrs["branches"]
        made = [_common_units(facts, *values) for values in zip(*(b.outputs for b in branches), strict=True)]
        inputs = zip(op.operands[1:], *(b.inputs for b in branches), strict=True)
        taken = [set(), *(_common_units(facts, *values) for values in inputs)]
        regions = {"branches": tuple(_narrow(facts, b, taken[1:], made) for b in branches)}
    operands = [build(builder, _without(x, gone)) for x, gone in zip(op.operands, taken, strict=True)]
    results = builder.multi(op.name, operands, op.loc, **attrs | regions)
    return [_shaped(builder, new, old) for new, old in zip(results, op.results, strict=True)]


def _narrow(facts: ShapeFacts, region: Region, taken: Sequence[set[int]], made: Sequence[set[int]]) -> Region:
    def body(builder: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
        pairs = zip(region.inputs, inputs, strict=True)
        values = {old: _shaped(builder, new, old) for old, new in pairs}
        builder.ops += [copied(op, values) for op in region.ops]
        return [build(builder, _without(values[x], gone)) for x, gone in zip(region.outputs, made, strict=True)]

    types = [(x.dtype, _rest(x.shape, gone)) for x, gone in zip(region.inputs, taken, strict=True)]
    return make_region(facts, types, body)


# ------------------------------------------------------------------------------------------ what is done axis by axis

_OTHERWISE = ("broadcast", "reshape", "gather", "scatter")  # rules of their own take axes of size 1 from them


def _idle(facts: ShapeFacts, relation: Relation, arrays: Sequence[Value]) -> tuple[set[int], set[int]]:
    """Return the axes of size 1 of the arrays along which nothing is done, and those of the results that follow."""
    gone = _common_units(facts, *arrays).difference(relation.apart)
    reduced: set[int] = set()
    of_results: dict[int, Sequence[int | None]] = {}
    for link in relation.links:
        for axis, entry in enumerate(link.entries):
            of_results[axis] = followed(entry)
            if isinstance(entry, Reduced):
                reduced.add(axis)
            elif not isinstance(entry, Same | Affine) or not all(
                is_one(facts, link.other.shape[of]) for of in followed(entry) if of is not None
            ):
                gone.discard(axis)
    if gone >= reduced:  # a rule for programs makes a reshape of what is reduced along such axes alone
        gone -= reduced
    return gone, {of for axis in gone for of in of_results.get(axis, (axis,)) if of is not None}


def _narrowed(facts: ShapeFacts, op: Op) -> tuple[list[Instead], Attributes] | None:
    """The operands and attributes of the op without axes of size 1 along which it does nothing; None without any."""
    rule = axis_rule(op)
    if rule is None or rule.attributes is None or op.name in _OTHERWISE:
        return None
    relation = rule.relation(op, facts)
    if relation is None or not (relation.links or relation.apart):
        return None
    gone, of_results = _idle(facts, relation, [x for x in op.operands if x.rank] or op.results)
    if not gone:
        return None

    def left(value: Value) -> Runs:
        return [[axis] for axis in range(value.rank) if axis not in (of_results if value in op.results else gone)]

    operands: list[Instead] = [_without(x, gone) if x.rank else x for x in op.operands]
    if rule.starts:
        arrays = len(operands) - op.operands[0].rank
        operands[arrays:] = _rest(operands[arrays:], gone)
    return operands, rule.renumbered(op, left, lambda shape, runs: tuple(shape[axis] for (axis,) in runs))


@rule(UNIT_RULES)
def op_beside_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """add(x : (1, s), y : (1, s)) → reshape(add(reshape(x) : (s), reshape(y) : (s))) : (1, s)"""
    parts = _narrowed(facts, op)
    return None if parts is None else make("reshape", make(op.name, *parts[0], **parts[1]), shape=op.result.shape)


def _several_beside_unit_dims(builder: GraphBuilder, op: Op) -> Sequence[Value] | None:
    parts = _narrowed(builder.facts, op)
    if parts is None:
        return None
    operands, attrs = parts
    results = builder.multi(op.name, [build(builder, x) for x in operands], op.loc, **attrs)
    return [_shaped(builder, new, old) for new, old in zip(results, op.results, strict=True)]


# ----------------------------------------------------------------------------------------------------------- the rest


@rule(UNIT_RULES, "reshape", of="broadcast")
def reshape_that_drops_unit_dims_of_broadcast(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """reshape(broadcast(x : (1, s)) : (b, 1, s)) : (b, s) → broadcast(reshape(x) : (s)) : (b, s)"""
    kept = kept_axes(facts, op.result.shape, inner.result.shape) if op.result.rank < inner.result.rank else None
    if kept is None:
        return None
    (x,), dims = inner.operands, inner.attrs["dims"]
    narrow = _without(x, {axis for axis, wide in enumerate(dims) if wide not in kept})
    places = tuple(kept.index(wide) for wide in dims if wide in kept)
    return make("broadcast", narrow, shape=op.result.shape, dims=places)


@rule(UNIT_RULES, "dot_general", name="dot_general of unit dims")
def dot_general_of_unit_dims(facts: ShapeFacts, op: Op) -> Instead | None:
    """dot_general(x : (1, n, k), y : (1, k, m)), batch = (0) x (0) → reshape(dot_general(reshape(x), reshape(y)))"""
    operands: list[Instead] = []
    attrs = op.attrs.copy()
    for side, x in zip(SIDES, op.operands, strict=True):
        gone = _units(facts, x.shape, range(x.rank))
        operands.append(_without(x, gone))
        for name in side:
            attrs[name] = _numbered(attrs[name], gone)
    if all(x is old for x, old in zip(operands, op.operands, strict=True)):
        return None
    return make("reshape", make("dot_general", *operands, **attrs), shape=op.result.shape)


# Gather and scatter: axes of the operand where a window has one element, and axes of the indices of size 1.


@rule(UNIT_RULES, "gather", "scatter")
def index_of_one(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x, indices : (1, b)) → reshape(gather(x, reshape(indices) : (b)))"""
    (x, indices, *others), attrs, vector = op.operands, op.attrs, op.attrs["index_vector_dim"]
    of, batch = placed(op)
    ones = _units(facts, moved(op).shape, attrs["offset_dims"])
    single = {axis for axis, at in enumerate(of) if at in ones}
    of_indices = _units(facts, indices.shape, range(indices.rank))
    of_windows = ones | {at for axis in of_indices if (at := batch[axis]) is not None}
    single |= _units(facts, x.shape, attrs["operand_batching_dims"])
    implicit = vector == indices.rank or vector in of_indices
    pairs = zip(attrs["operand_batching_dims"], attrs["start_indices_batching_dims"], strict=True)
    left = [(axis, along) for axis, along in pairs if axis not in single]
    numbers: Attributes = {
        "offset_dims": _numbered(attrs["offset_dims"], of_windows),
        "collapsed_slice_dims": tuple(sorted({*attrs["collapsed_slice_dims"], *single})),
        "operand_batching_dims": tuple(axis for axis, _ in left),
        "start_indices_batching_dims": _numbered([along for _, along in left], of_indices),
        "index_vector_dim": indices.rank - len(of_indices) if implicit else _numbered([vector], of_indices)[0],
    }
    if not of_indices and not of_windows and numbers.items() <= attrs.items():
        return None
    updates = [_without(update, of_windows) for update in others[: attrs.get("count", 0)]]
    operands = (x, _without(indices, of_indices), *updates, *others[len(updates) :])
    return make("reshape", make(op.name, *operands, **attrs | numbers), shape=op.result.shape)
