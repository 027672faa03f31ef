"""One spelling for what is lowered in several ways where sizes are 0 or 1: for comparing graphs, not for compiling.

Nothing here makes a program faster. An axis of one is no axis, an index of one place is none, and of an empty array
only the shape matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Shape, Value, everywhere, has_effect
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.passes.patterns import (
    Match,
    any_op,
    are_equal,
    constant,
    first_operand,
    is_one,
    is_zero,
    kept_axes,
    made_by,
    operand_made_by,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rewrite import Rule, cse, rewrite
from hlo_disc.dynamic_hlo.passes.simplify import RULES, simplify
from hlo_disc.dynamic_hlo.passes.unroll import unroll
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth


def alike(graph: Graph) -> Graph:
    """An equal graph, simplified, in which less depends on how it was said."""
    # First of all: what a loop holds that never turns may make no sense at these sizes.
    graph = simplify(everywhere(everywhere(graph, unroll), _without_sorts))
    return everywhere(graph, lambda scope: cse(rewrite(scope, ALIKE)))


def _without_sorts(graph: Graph) -> Graph:
    """Of at most one element: a sort has several results, which no rule takes the place of."""
    values: dict[Value, Value] = {}
    ops = []
    for op in graph.ops:
        operands = tuple(values.get(x, x) for x in op.operands)
        if op.name == "sort" and graph.facts.at_most(op.results[0].shape[op.attrs["dim"]], ONE) is Truth.YES:
            values.update(zip(op.results, operands, strict=False))  # after them comes what the comparison reads
        else:
            moved = op.with_operands(operands)
            values.update(zip(op.results, moved.results, strict=True))
            ops.append(moved)
    return graph.with_roots(values, ops=tuple(ops)) if len(ops) < len(graph.ops) else graph


# --------------------------------------------------------------------------------------------------- empty arrays


def _is_empty(facts: ShapeFacts, value: Value) -> bool:
    return is_zero(facts, dim_product(value.shape))


def _of_nothing(facts: ShapeFacts, op: Op) -> bool:
    return _is_empty(facts, op.operands[0])


def _multiplies_nothing(facts: ShapeFacts, op: Op) -> bool:
    return any(_is_empty(facts, x) for x in op.operands)


def _updates_nothing(facts: ShapeFacts, op: Op) -> bool:
    return _is_empty(facts, op.operands[2])


def _makes_nothing(facts: ShapeFacts, op: Op) -> bool:
    return _is_empty(facts, op.result)


def _pure(op: Op) -> Match:
    return () if len(op.results) == 1 and not has_effect(op) else None


def _zeros(builder: GraphBuilder, op: Op) -> Value:
    return _filled(builder, op, builder.op("constant", (), op.loc, value=np.zeros((), op.result.dtype)))


def _second_operand(builder: GraphBuilder, op: Op) -> Value:
    return _filled(builder, op, op.operands[1])


def _filled(builder: GraphBuilder, op: Op, scalar: Value) -> Value:
    return builder.op("broadcast", (scalar,), op.loc, shape=op.result.shape, dims=())


# ------------------------------------------------------------------------------------------------------ unit dims


def _units(facts: ShapeFacts, shape: Shape, axes: Sequence[int]) -> set[int]:
    return {axis for axis in axes if is_one(facts, shape[axis])}


def _without(builder: GraphBuilder, value: Value, axes: set[int]) -> Value:
    """The value without these axes, which are of size 1."""
    shape = tuple(size for axis, size in enumerate(value.shape) if axis not in axes)
    return builder.op("reshape", (value,), shape=shape) if axes else value


def _numbered(axes: Sequence[int], gone: set[int]) -> tuple[int, ...]:
    """What the axes are called when those that are gone count no more."""
    return tuple(axis - sum(other < axis for other in gone) for axis in axes if axis not in gone)


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


def _single_result(op: Op) -> Match:
    return () if len(op.results) == 1 else None


def _scatter_without_units(builder: GraphBuilder, op: Op) -> Value:
    numbers, of_indices, of_windows = _numbers_without_units(builder.facts, op)
    x, indices, updates, *captured = op.operands
    operands = x, _without(builder, indices, of_indices), _without(builder, updates, of_windows), *captured
    return builder.op("scatter", operands, op.loc, **{**op.attrs, **numbers})


def _sets_at_zero(op: Op) -> Match:
    found = _one_known_place(op)
    body = op.attrs["body"]
    sets = len(op.results) == 1 and body.outputs == body.inputs[1:2]
    return () if sets and found is not None and not found[0].any() else None


def _covers_all(facts: ShapeFacts, op: Op) -> bool:
    x, _, updates = op.operands
    return facts.same_size(x.shape, updates.shape) is Truth.YES


def _updates(builder: GraphBuilder, op: Op) -> Value:
    return builder.op("reshape", (op.operands[2],), op.loc, shape=op.result.shape)


def _indices(op: Op) -> Match:
    indices = op.operands[1]
    known = splat(indices)
    return None if known is not None and not known and indices.dtype == np.int32 else ()


def _fills_axes(facts: ShapeFacts, op: Op) -> bool:
    x, sizes = op.operands[0], op.attrs["slice_sizes"]
    return all(are_equal(facts, x.shape[axis], sizes[axis]) for axis in op.attrs["start_index_map"])


def _gather_from_beginning(builder: GraphBuilder, op: Op) -> Value:
    zero = builder.op("constant", (), op.loc, value=np.zeros((), np.int32))
    places = builder.op("broadcast", (zero,), op.loc, shape=op.operands[1].shape, dims=())
    return builder.op("gather", (op.operands[0], places), op.loc, **op.attrs)


def _no_elements(op: Op) -> Match:
    return () if not op.attrs["value"].size else None


def _one_known_place(op: Op) -> Match:
    indices = op.operands[1]
    at = constant(indices)
    if at is None and (each := splat(indices)) is not None:
        at = np.repeat(each, len(op.attrs["start_index_map"]))
    if at is None or indices.rank != (op.attrs["index_vector_dim"] < indices.rank):
        return None
    return (at.reshape(-1),)


def _slice_at(builder: GraphBuilder, op: Op, at: np.ndarray) -> Value:
    x, sizes = op.operands[0], op.attrs["slice_sizes"]
    known = {axis: int(i) for axis, i in zip(op.attrs["start_index_map"], at, strict=True)}
    corner = [
        Dim.max(Dim.min(Dim.const(known.get(axis, 0)), limit - size), ZERO)
        for axis, (limit, size) in enumerate(zip(x.shape, sizes, strict=True))
    ]
    start = tuple(map(builder.facts.canonical, corner))
    limit = tuple(low + size for low, size in zip(start, sizes, strict=True))
    window = builder.op("slice", (x,), op.loc, start=start, limit=limit, stride=(1,) * x.rank)
    return builder.op("reshape", (window,), op.loc, shape=op.result.shape)


def _from_the_beginning(op: Op) -> Match:
    at = _one_known_place(op)
    return () if len(op.results) == 1 and at and at[0].size and not at[0].any() else None


def _scatter_without_place(builder: GraphBuilder, op: Op) -> Value:
    x, indices, *others = op.operands
    nowhere = builder.op("constant", (), op.loc, value=np.zeros(0, indices.dtype))
    return builder.op(
        "scatter", (x, nowhere, *others), op.loc, **{**op.attrs, "start_index_map": (), "index_vector_dim": 0}
    )


def _adds_to_zeros(op: Op) -> Match:
    """Where a window is added to zeros: there -0 becomes 0, which neither JAX nor XLA cares for."""
    zero, at, body = splat(op.operands[0]), _one_known_place(op), op.attrs["body"]
    if len(op.results) > 1 or at is None or zero is None or zero != 0 or op.attrs["operand_batching_dims"]:
        return None
    add = made_by(body.outputs[0], "add")
    adds = add is not None and set(add.operands) == set(body.inputs)
    return at if adds or body.outputs == body.inputs[1:2] else None


def _window(op: Op, at: np.ndarray) -> list[tuple[int, Dim]]:
    """Where an update goes, which is a window, in each axis: where it begins, and its size."""
    known = {axis: int(i) for axis, i in zip(op.attrs["start_index_map"], at, strict=True)}
    sizes = iter([op.operands[2].shape[axis] for axis in op.attrs["offset_dims"]])
    dropped = op.attrs["collapsed_slice_dims"]
    return [(known.get(axis, 0), ONE if axis in dropped else next(sizes)) for axis in range(op.result.rank)]


def _lies_inside(facts: ShapeFacts, op: Op, at: np.ndarray) -> bool:
    pairs = zip(_window(op, at), op.result.shape, strict=True)
    return all(start >= 0 and facts.at_most(size + start, limit) is Truth.YES for (start, size), limit in pairs)


def _padded(builder: GraphBuilder, op: Op, at: np.ndarray) -> Value:
    window = _window(op, at)
    low = tuple(Dim.const(start) for start, _ in window)
    high = tuple(limit - size - start for (start, size), limit in zip(window, op.result.shape, strict=True))
    update = builder.op("reshape", (op.operands[2],), op.loc, shape=tuple(size for _, size in window))
    zero = builder.op("constant", (), op.loc, value=np.zeros((), op.result.dtype))
    return builder.op("pad", (update, zero), op.loc, low=low, high=high, interior=(ZERO,) * op.result.rank)


def _along_one(facts: ShapeFacts, op: Op) -> bool:
    return is_one(facts, op.result.shape[op.attrs["dim"]])


_ELEMENTWISE = tuple(name for name, row in OPS.items() if row.kind == "elementwise")
_PURE = tuple(
    name for name, row in OPS.items() if row.kind not in ("source", "call", "control") and name != "broadcast"
)

ALIKE_RULES = (
    # exponential(x : (0, s)) -> broadcast(0) : (0, s)
    Rule("empty", _PURE, _pure, _zeros, _makes_nothing),
    # constant [] : (0, 1) -> broadcast(0) : (0, 1)
    Rule("constant without elements", ("constant",), _no_elements, _zeros),
    # reduce(x : (0, s), init), dims = (0) -> broadcast(init) : (s)
    Rule("reduce or pad of nothing", ("reduce", "pad"), any_op, _second_operand, _of_nothing),
    # dot_general(x : (b, 0), y : (0, n)) -> broadcast(0) : (b, n)
    Rule("product of nothing", ("dot_general", "convolution"), any_op, _zeros, _multiplies_nothing),
    # scatter(x, indices, updates : (0, s)) -> x
    Rule("scatter of nothing", ("scatter",), _single_result, first_operand, _updates_nothing),
    # cumulative(x : (1, s), init), dim = 0 -> x
    Rule("cumulative of one", ("cumulative",), _single_result, first_operand, _along_one),
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
    # gather(x : (1), indices) -> gather(x, 0)
    Rule("gather from an axis of one", ("gather",), _indices, _gather_from_beginning, _fills_axes),
    # gather(x, indices : (1, b)) -> reshape(gather(x, reshape(indices) : (b)))
    Rule("gather of one", ("gather",), any_op, _gather_without_units, _has_units),
    # scatter(x, indices : (1, b), updates : (1, b)) -> scatter(x, reshape(indices) : (b), reshape(updates) : (b))
    Rule("scatter of one", ("scatter",), _single_result, _scatter_without_units, _has_units),
    # scatter(x : (1), 0, updates : ()), the update is kept -> reshape(updates)
    Rule("scatter of everything", ("scatter",), _sets_at_zero, _updates, _covers_all),
    # gather(x, 3) -> reshape(slice(x)), 3 to 3 + size
    Rule("gather at a known place", ("gather",), _one_known_place, _slice_at),
    # scatter(broadcast(0) : (5), 2, update : ()), they are added -> pad(reshape(update) : (1)), 2 and 2
    Rule("scatter to zeros", ("scatter",), _adds_to_zeros, _padded, _lies_inside),
    # scatter(x, 0, updates) -> scatter(x, [], updates), start_index_map = ()
    Rule("scatter from the beginning", ("scatter",), _from_the_beginning, _scatter_without_place),
)
ALIKE = RULES + ALIKE_RULES
