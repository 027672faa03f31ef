"""An axis of one is no axis: ops are computed without them, between reshapes. To compare graphs, as in `alike.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Shape, Value, copied
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.passes.patterns import Match, any_op, is_one, is_zero, kept_axes, operand_made_by
from hlo_disc.dynamic_hlo.passes.rewrite import Rule
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts


def without_units(graph: Graph) -> Graph:
    """An equal graph whose loops, branches and ops along axes with several results have none. Rules do all else."""
    builder = GraphBuilder(graph.facts)
    values: dict[Value, Value] = {}
    for op in graph.ops:
        moved = op.with_operands([values.get(x, x) for x in op.operands]) if values else op
        results: Sequence[Value]
        if op.name in ("while", "case"):
            results = _control_without_units(builder, moved)
        elif op.name in _SEVERAL:
            results = _without_unnamed(builder, moved)
        else:
            builder.ops.append(moved)
            results = moved.results
        values.update((old, new) for old, new in zip(op.results, results, strict=True) if old is not new)
    return graph.with_roots(values, ops=tuple(builder.ops))


def _units(facts: ShapeFacts, shape: Shape, axes: Sequence[int]) -> set[int]:
    return {axis for axis in axes if is_one(facts, shape[axis])}


def _common_units(facts: ShapeFacts, *values: Value) -> set[int]:
    return set.intersection(*(_units(facts, x.shape, range(x.rank)) for x in values))


def _without(builder: GraphBuilder, value: Value, axes: set[int]) -> Value:
    """The value without these axes, which are of size 1."""
    return builder.op("reshape", (value,), shape=_rest(value.shape, axes)) if axes else value


def _rest(entries: Sequence[Any], gone: set[int]) -> tuple[Any, ...]:
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
    regions: dict[str, Any]
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
    operands = [_without(builder, x, gone) for x, gone in zip(op.operands, taken, strict=True)]
    results = builder.multi(op.name, operands, op.loc, **{**attrs, **regions})
    return [_shaped(builder, new, old) for new, old in zip(results, op.results, strict=True)]


def _narrow(facts: ShapeFacts, region: Region, taken: Sequence[set[int]], made: Sequence[set[int]]) -> Region:
    def build(builder: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
        pairs = zip(region.inputs, inputs, strict=True)
        values = {old: _shaped(builder, new, old) for old, new in pairs}
        builder.ops += [copied(op, values) for op in region.ops]
        return [_without(builder, values[x], gone) for x, gone in zip(region.outputs, made, strict=True)]

    types = [(x.dtype, _rest(x.shape, gone)) for x, gone in zip(region.inputs, taken, strict=True)]
    return make_region(facts, types, build)


# ------------------------------------------------------------------------------------------ what is done axis by axis

# Attributes with an entry for each axis, and those that number axes.
_BY_AXIS = ("start", "limit", "stride", "low", "high", "interior", "sizes", "shape")
_NUMBERS = ("dim", "dims", "perm")
_SEVERAL = ("sort", "cumulative", "reduce_with")
_VIEWS = ("iota", "slice", "dynamic_slice", "dynamic_update_slice", "reverse", "transpose", "concatenate", "pad")


def _unnamed(facts: ShapeFacts, op: Op) -> set[int]:
    """Axes of size 1, before and after, along which the op does nothing."""
    arrays = _arrays(op)
    if op.name in ("iota", "slice", "dynamic_slice", "pad"):
        arrays.append(op.result)
    gone = _common_units(facts, *arrays)
    if op.name == "pad":
        low, high = op.attrs["low"], op.attrs["high"]
        return {axis for axis in gone if is_zero(facts, low[axis]) and is_zero(facts, high[axis])}
    return gone.difference(() if op.name == "reverse" else op.attrs.get("dims", (op.attrs.get("dim"),)))


def _arrays(op: Op) -> list[Value]:
    """The operands but for scalars."""
    return [x for x in op.operands if x.rank == op.operands[0].rank]


def _has_unnamed(facts: ShapeFacts, op: Op) -> bool:
    return bool(_unnamed(facts, op))


def _without_unnamed(builder: GraphBuilder, op: Op) -> list[Value]:
    gone = _unnamed(builder.facts, op)
    by_axis = {name: _rest(op.attrs[name], gone) for name in _BY_AXIS if name in op.attrs}
    numbers = {name: _renamed(op.attrs[name], gone) for name in _NUMBERS if name in op.attrs}
    attrs = {**op.attrs, **by_axis, **numbers}
    arrays = _arrays(op)
    others = op.operands[len(arrays) :]
    if op.name.startswith("dynamic"):  # a place for each axis
        others = _rest(others, gone)
    operands = [*(_without(builder, x, gone) for x in arrays), *others]
    if len(op.results) == 1:
        return [_shaped(builder, builder.op(op.name, operands, op.loc, **attrs), op.result)]
    results = builder.multi(op.name, operands, op.loc, **attrs)
    return [_shaped(builder, new, old) for new, old in zip(results, op.results, strict=True)]


def _renamed(axes: Any, gone: set[int]) -> Any:
    return _numbered(axes, gone) if isinstance(axes, tuple) else _numbered((axes,), gone)[0]


def _view_without_units(builder: GraphBuilder, op: Op) -> Value:
    (value,) = _without_unnamed(builder, op)
    return value


# ----------------------------------------------------------------------------------------------------------- the rest


def _single_result(op: Op) -> Match:
    return () if len(op.results) == 1 else None


def _has_unit_axes(facts: ShapeFacts, op: Op) -> bool:
    return any(is_one(facts, size) for size in op.result.shape)


def _elementwise_without_units(builder: GraphBuilder, op: Op) -> Value:
    gone = _units(builder.facts, op.result.shape, range(op.result.rank))
    operands = [_without(builder, x, gone) if x.rank else x for x in op.operands]
    result = builder.op(op.name, operands, op.loc, **op.attrs)
    return builder.op("reshape", (result,), op.loc, shape=op.result.shape)


def _drops_units(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    return op.result.rank < inner.result.rank and kept_axes(facts, op.result.shape, inner.result.shape) is not None


def _broadcast_without_units(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    (x,), dims = inner.operands, inner.attrs["dims"]
    kept = kept_axes(builder.facts, op.result.shape, inner.result.shape) or ()
    narrow = _without(builder, x, {axis for axis, wide in enumerate(dims) if wide not in kept})
    places = tuple(kept.index(wide) for wide in dims if wide in kept)
    return builder.op("broadcast", (narrow,), op.loc, shape=op.result.shape, dims=places)


def _multiplies_units(facts: ShapeFacts, op: Op) -> bool:
    return any(is_one(facts, size) for x in op.operands for size in x.shape)


def _dot_without_units(builder: GraphBuilder, op: Op) -> Value:
    gone = {
        side: _units(builder.facts, x.shape, range(x.rank)) for side, x in zip(("lhs", "rhs"), op.operands, strict=True)
    }
    operands = [_without(builder, x, gone[side]) for side, x in zip(gone, op.operands, strict=True)]
    numbers = {
        f"{side}_{which}": _numbered(op.attrs[f"{side}_{which}"], gone[side])
        for side in gone
        for which in ("batch", "contract")
    }
    product = builder.op("dot_general", operands, op.loc, **{**op.attrs, **numbers})
    return builder.op("reshape", (product,), op.loc, shape=op.result.shape)


def _units_beside(facts: ShapeFacts, op: Op) -> set[int]:
    """Axes of size 1 of what is reduced, when it is along others too."""
    gone = _units(facts, op.operands[0].shape, range(op.operands[0].rank))
    return gone if not gone.issuperset(op.attrs["dims"]) else gone.difference(op.attrs["dims"])


def _reduces_beside_units(facts: ShapeFacts, op: Op) -> bool:
    return bool(_units_beside(facts, op))


def _reduce_without_units(builder: GraphBuilder, op: Op) -> Value:
    x, init = op.operands
    gone = _units_beside(builder.facts, op)
    numbers = {"dims": _numbered(op.attrs["dims"], gone)}
    reduced = builder.op("reduce", (_without(builder, x, gone), init), op.loc, **{**op.attrs, **numbers})
    return builder.op("reshape", (reduced,), op.loc, shape=op.result.shape)


# Gather and scatter: axes of the operand where a window has one element, and axes of the indices of size 1.


def _numbers_without_units(facts: ShapeFacts, op: Op) -> tuple[dict[str, Any], set[int], set[int]]:
    """The op's numbers without what is one place only, and which axes of the indices and of the windows go."""
    x, indices = op.operands[:2]
    shape = op.result.shape if op.name == "gather" else op.operands[2].shape
    attrs, vector = op.attrs, op.attrs["index_vector_dim"]
    pairs = list(zip(attrs["operand_batching_dims"], attrs["start_indices_batching_dims"], strict=True))
    dropped = attrs["collapsed_slice_dims"] + attrs["operand_batching_dims"]
    kept = [axis for axis in range(x.rank) if axis not in dropped]
    single = {axis for axis, at in zip(kept, attrs["offset_dims"], strict=True) if is_one(facts, shape[at])}
    single |= _units(facts, x.shape, attrs["operand_batching_dims"])
    of_indices = _units(facts, indices.shape, range(indices.rank))
    implicit = vector == indices.rank or vector in of_indices
    batch = [axis for axis in range(indices.rank) if axis != vector]
    places = [axis for axis in range(len(shape)) if axis not in attrs["offset_dims"]]
    of_windows = {at for axis, at in zip(batch, places, strict=True) if axis in of_indices}
    of_windows |= {at for axis, at in zip(kept, attrs["offset_dims"], strict=True) if axis in single}
    pairs = [(axis, along) for axis, along in pairs if axis not in single]
    numbers = {
        "offset_dims": _numbered(attrs["offset_dims"], of_windows),
        "collapsed_slice_dims": tuple(sorted({*attrs["collapsed_slice_dims"], *single})),
        "operand_batching_dims": tuple(axis for axis, _ in pairs),
        "start_indices_batching_dims": _numbered([along for _, along in pairs], of_indices),
        "index_vector_dim": indices.rank - len(of_indices) if implicit else _numbered([vector], of_indices)[0],
    }
    return numbers, of_indices, of_windows


def _has_units(facts: ShapeFacts, op: Op) -> bool:
    numbers, of_indices, of_windows = _numbers_without_units(facts, op)
    return bool(of_indices or of_windows) or any(op.attrs[name] != value for name, value in numbers.items())


def _gather_without_units(builder: GraphBuilder, op: Op) -> Value:
    numbers, of_indices, _ = _numbers_without_units(builder.facts, op)
    operands = op.operands[0], _without(builder, op.operands[1], of_indices)
    gathered = builder.op("gather", operands, op.loc, **{**op.attrs, **numbers})
    return builder.op("reshape", (gathered,), op.loc, shape=op.result.shape)


def _scatter_without_units(builder: GraphBuilder, op: Op) -> Value:
    numbers, of_indices, of_windows = _numbers_without_units(builder.facts, op)
    x, indices, updates, *captured = op.operands
    operands = x, _without(builder, indices, of_indices), _without(builder, updates, of_windows), *captured
    return builder.op("scatter", operands, op.loc, **{**op.attrs, **numbers})


_ELEMENTWISE = tuple(name for name, row in OPS.items() if row.kind == "elementwise")

UNIT_RULES = (
    # add(x : (1, s), y : (1, s)) -> reshape(add(reshape(x) : (s), reshape(y) : (s))) : (1, s)
    Rule("elementwise of unit dims", _ELEMENTWISE, any_op, _elementwise_without_units, _has_unit_axes),
    # reshape(broadcast(x : (1, s)) : (b, 1, s)) : (b, s) -> broadcast(reshape(x) : (s)) : (b, s)
    Rule(
        "reshape that drops unit dims of broadcast",
        ("reshape",),
        operand_made_by("broadcast"),
        _broadcast_without_units,
        _drops_units,
    ),
    # dot_general(x : (1, n, k), y : (1, k, m)), batch = (0) x (0) -> reshape(dot_general(reshape(x), reshape(y)))
    Rule("dot_general of unit dims", ("dot_general",), any_op, _dot_without_units, _multiplies_units),
    # reduce(x : (1, s), init), dims = (1) -> reshape(reduce(reshape(x) : (s), init) : ()) : (1)
    Rule("reduce beside unit dims", ("reduce",), any_op, _reduce_without_units, _reduces_beside_units),
    # gather(x, indices : (1, b)) -> reshape(gather(x, reshape(indices) : (b)))
    Rule("gather of one", ("gather",), any_op, _gather_without_units, _has_units),
    # scatter(x, indices : (1, b), updates : (1, b)) -> scatter(x, reshape(indices) : (b), reshape(updates) : (b))
    Rule("scatter of one", ("scatter",), _single_result, _scatter_without_units, _has_units),
    # slice(x : (1, s)) : (1, 3) -> reshape(slice(reshape(x) : (s)) : (3)) : (1, 3)
    Rule("view of unit dims", _VIEWS, any_op, _view_without_units, _has_unnamed),
)
