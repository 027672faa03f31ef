"""One spelling for what is lowered in several ways where sizes are 0 or 1: for comparing graphs, not for compiling.

Nothing here makes a program faster. An axis of one is no axis, an index of one place is none, and of an empty array
only the shape matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, dims_in, everywhere, has_effect
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.reference import apply, apply_all
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.passes.patterns import (
    Match,
    any_op,
    are_equal,
    constant,
    first_operand,
    is_one,
    is_zero,
    made_by,
    operand_made_by,
    splat,
)
from hlo_disc.dynamic_hlo.passes.rewrite import Rule, cse, rewrite
from hlo_disc.dynamic_hlo.passes.rules_math import is_small, known_array
from hlo_disc.dynamic_hlo.passes.simplify import RULES, simplify
from hlo_disc.dynamic_hlo.passes.units import UNIT_RULES, without_units
from hlo_disc.dynamic_hlo.passes.unroll import unroll
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth


def alike(graph: Graph) -> Graph:
    """An equal graph, simplified, in which less depends on how it was said."""
    # First of all: what a loop holds that never turns may make no sense at these sizes.
    graph = everywhere(simplify(everywhere(everywhere(graph, unroll), _without_sorts)), _with_known_results)
    return everywhere(everywhere(graph, without_units), lambda scope: cse(rewrite(scope, ALIKE)))


# Of ops with several results, which no rule takes the place of.


def _without_sorts(graph: Graph) -> Graph:
    """Replace sorts of at most one element by their operands."""

    def sorted_already(builder: GraphBuilder, op: Op) -> Sequence[Value] | None:
        if op.name == "sort" and graph.facts.at_most(op.results[0].shape[op.attrs["dim"]], ONE) is Truth.YES:
            return op.operands[: len(op.results)]  # after them comes what the comparison reads
        return None

    return _replaced(graph, sorted_already)


def _with_known_results(graph: Graph) -> Graph:
    """Computed here, where all that an op takes is known and small, a count too."""

    def computed(builder: GraphBuilder, op: Op) -> Sequence[Value] | None:
        arrays = [array for x in op.operands if (array := _known(x)) is not None]
        if len(op.results) < 2 or op.name not in _PURE or len(arrays) < len(op.operands):
            return None
        if not all(d.is_const for d in dims_in(op)):
            return None
        return [builder.op("constant", (), op.loc, value=array) for array in apply_all(op, arrays)]

    return _replaced(graph, computed)


def _known(value: Value) -> np.ndarray | None:
    count = made_by(value, "iota")
    return apply(count, ()) if count is not None and is_small(value.shape) else known_array(value)


def _replaced(graph: Graph, replacement: Callable[[GraphBuilder, Op], Sequence[Value] | None]) -> Graph:
    """With these values in place of the results of ops, None where they stay."""
    builder = GraphBuilder(graph.facts)
    values: dict[Value, Value] = {}
    found = False
    for op in graph.ops:
        moved = op.with_operands([values.get(x, x) for x in op.operands]) if found else op
        results = replacement(builder, moved)
        found = found or results is not None
        if results is None:
            builder.ops.append(moved)
            results = moved.results
        values.update(zip(op.results, results, strict=True))
    return graph.with_roots(values, ops=tuple(builder.ops)) if found else graph


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


def _single_result(op: Op) -> Match:
    return () if len(op.results) == 1 else None


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


def _one_place(op: Op) -> Match:
    indices, vector = op.operands[1], op.attrs["index_vector_dim"]
    return () if indices.rank == (vector < indices.rank) and not op.attrs["operand_batching_dims"] else None


def _window_at(builder: GraphBuilder, op: Op) -> Value:
    x, indices = op.operands
    zero = builder.op("constant", (), op.loc, value=np.zeros((), indices.dtype))
    starts = [zero] * x.rank
    for number, axis in enumerate(op.attrs["start_index_map"]):
        place = Dim.const(number)
        attrs = {"start": (place,), "limit": (place + 1,), "stride": (1,)}
        one = builder.op("slice", (indices,), op.loc, **attrs) if indices.rank else indices
        starts[axis] = builder.op("reshape", (one,), op.loc, shape=())
    window = builder.op("dynamic_slice", (x, *starts), op.loc, sizes=op.attrs["slice_sizes"])
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


# Constants of complex numbers. Kernels know parts of them only, so that no rule for programs makes them.


def _converted_number(op: Op) -> Match:
    array = constant(op.operands[0])
    return None if array is None or op.result.dtype.kind != "c" else (array.astype(op.result.dtype),)


def _of_whole_numbers(op: Op) -> Match:
    """Compute an op on complex whole numbers, where no way to compute it rounds or gives another zero."""
    arrays = [array for x in op.operands if (array := constant(x)) is not None and _are_counts(array)]
    if op.result.dtype.kind != "c" or len(arrays) < len(op.operands):
        return None
    return (apply(op, arrays),)


def _are_counts(array: np.ndarray) -> bool:
    parts = array.reshape(-1).view(array.real.dtype)
    return bool(np.all((parts >= 0) & (parts <= _MOST_EXACT) & (parts == np.rint(parts)) & ~np.signbit(parts)))


def _number(builder: GraphBuilder, op: Op, array: np.ndarray) -> Value:
    return builder.op("constant", (), op.loc, value=np.asarray(array))


def _counts_complex_to_one(facts: ShapeFacts, op: Op) -> bool:
    return op.result.dtype.kind == "c" and is_one(facts, op.attrs["shape"][op.attrs["dim"]])


# What is spelled in several ways at any size, but is as good to compile in each.


def _cuts_sizes(facts: ShapeFacts, op: Op, inner: Op) -> bool:
    (x,), dims = inner.operands, inner.attrs["dims"]
    return all(are_equal(facts, size, inner.result.shape[wide]) for size, wide in zip(x.shape, dims, strict=True))


def _broadcast_of_slice(builder: GraphBuilder, op: Op, inner: Op) -> Value:
    dims = inner.attrs["dims"]
    parts = {name: tuple(op.attrs[name][wide] for wide in dims) for name in ("start", "limit", "stride")}
    narrow = builder.op("slice", inner.operands, op.loc, **parts)
    return builder.op("broadcast", (narrow,), op.loc, shape=op.result.shape, dims=dims)


def _zero_and_count(op: Op) -> Match:
    """A count is no -0.0, the one number that the sum with a zero may change."""
    x, y = op.operands
    for count, zero in ((x, y), (y, x)):
        if made_by(count, "iota") and (value := splat(zero)) is not None and value == 0:
            return (count,)
    return None


def _count(builder: GraphBuilder, op: Op, count: Value) -> Value:
    return count


def _along_one(facts: ShapeFacts, op: Op) -> bool:
    return is_one(facts, op.result.shape[op.attrs["dim"]])


# Whole numbers up to it, and a few products and sums of them, are exact in single precision.
_MOST_EXACT = 1 << 10
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
    *UNIT_RULES,
    # convert(constant 2 : i32), complex64 -> constant 2+0j
    Rule("complex constant", ("convert",), _converted_number, _number),
    # multiply(constant 1+0j, constant 2+0j) -> constant 2+0j
    Rule("complex arithmetic on counts", ("add", "multiply"), _of_whole_numbers, _number),
    # iota : complex64 (1) -> broadcast(constant 0j)
    Rule("complex iota of one", ("iota",), any_op, _zeros, _counts_complex_to_one),
    # slice(broadcast(x : (s)) : (b, s)) -> broadcast(slice(x))
    Rule("slice of broadcast", ("slice",), operand_made_by("broadcast"), _broadcast_of_slice, _cuts_sizes),
    # add(iota, broadcast(0.0)) -> iota
    Rule("count from zero", ("add",), _zero_and_count, _count),
    # gather(x : (1), indices) -> gather(x, 0)
    Rule("gather from an axis of one", ("gather",), _indices, _gather_from_beginning, _fills_axes),
    # scatter(x : (1), 0, updates : ()), the update is kept -> reshape(updates)
    Rule("scatter of everything", ("scatter",), _sets_at_zero, _updates, _covers_all),
    # gather(x, 3) -> reshape(slice(x)), 3 to 3 + size
    Rule("gather at a known place", ("gather",), _one_known_place, _slice_at),
    # gather(x : (n, 4), i : ()), a row -> reshape(dynamic_slice(x, i, 0))
    Rule("gather at one place", ("gather",), _one_place, _window_at),
    # scatter(broadcast(0) : (5), 2, update : ()), they are added -> pad(reshape(update) : (1)), 2 and 2
    Rule("scatter to zeros", ("scatter",), _adds_to_zeros, _padded, _lies_inside),
    # scatter(x, 0, updates) -> scatter(x, [], updates), start_index_map = ()
    Rule("scatter from the beginning", ("scatter",), _from_the_beginning, _scatter_without_place),
)
ALIKE = RULES + ALIKE_RULES
