"""One form for graphs that are lowered in several ways at sizes 0 or 1: for comparing graphs, not for compiling.

Nothing here makes a program faster. An axis of size 1 is dropped, an index with one possible value is dropped, and of
an empty array only the shape matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, dims_in, everywhere, has_effect
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.ops.reference import apply, apply_all
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.passes.rules.patterns import are_equal, constant, is_one, is_zero, made_by, splat
from hlo_disc.dynamic_hlo.passes.rules.rewrite import cse, rewrite
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, filled, make, rule, zeros
from hlo_disc.dynamic_hlo.passes.rules.rules_math import is_small, known_array
from hlo_disc.dynamic_hlo.passes.simplify import RULES, simplify
from hlo_disc.dynamic_hlo.passes.units import UNIT_RULES, without_units
from hlo_disc.dynamic_hlo.passes.unroll import unroll
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

EMPTY_RULES: list[Rule] = []
SPELLING_RULES: list[Rule] = []
# Whole numbers up to it, and a few products and sums of them, are exact in single precision.
_MOST_EXACT = 1 << 10
# Kinds of ops that have no operands, effects, or regions that may run for long.
_IMPURE = ("source", "call", "control")


def alike(graph: Graph) -> Graph:
    """An equal graph, simplified, in which less depends on how it was said."""
    # First of all: what a loop holds that never turns may make no sense at these sizes.
    graph = everywhere(simplify(everywhere(everywhere(graph, unroll), _without_sorts)), _with_known_results)
    return everywhere(everywhere(graph, without_units), lambda scope: cse(rewrite(scope, ALIKE)))


# Of ops with several results, which no rule takes the place of.


def _without_sorts(graph: Graph) -> Graph:
    """Replace sorts of at most one element by their operands."""

    def sorted_already(builder: GraphBuilder, op: Op, _: Op) -> Sequence[Value] | None:
        if op.name == "sort" and graph.facts.at_most(op.results[0].shape[op.attrs["dim"]], ONE) is Truth.YES:
            return op.operands[: len(op.results)]  # after them comes what the comparison reads
        return None

    return replaced(graph, sorted_already)


def _with_known_results(graph: Graph) -> Graph:
    """Computed here, where all that an op takes is known and small, a count too."""

    def computed(builder: GraphBuilder, op: Op, _: Op) -> Sequence[Value] | None:
        arrays = [array for x in op.operands if (array := _known(x)) is not None]
        if len(op.results) < 2 or kind(op) in _IMPURE or len(arrays) < len(op.operands):
            return None
        if not all(d.is_const for d in dims_in(op)):
            return None
        return [builder.op("constant", (), op.loc, value=array) for array in apply_all(op, arrays)]

    return replaced(graph, computed)


def _known(value: Value) -> np.ndarray | None:
    count = made_by(value, "iota")
    return apply(count, ()) if count is not None and is_small(value.shape) else known_array(value)


# --------------------------------------------------------------------------------------------------- empty arrays


def _is_empty(facts: ShapeFacts, value: Value) -> bool:
    return is_zero(facts, dim_product(value.shape))


@rule(EMPTY_RULES)
def empty(facts: ShapeFacts, op: Op) -> Instead | None:
    """exponential(x : (0, s)) → broadcast(0) : (0, s)"""
    pure = kind(op) not in _IMPURE and op.name != "broadcast" and not has_effect(op)
    return zeros(op.result) if pure and _is_empty(facts, op.result) else None


@rule(EMPTY_RULES, "constant")
def constant_without_elements(facts: ShapeFacts, op: Op) -> Instead | None:
    """constant [] : (0, 1) → broadcast(0) : (0, 1)"""
    return None if op.attrs["value"].size else zeros(op.result)


@rule(EMPTY_RULES, "reduce", "pad")
def reduce_or_pad_of_nothing(facts: ShapeFacts, op: Op) -> Instead | None:
    """reduce(x : (0, s), init), dims = (0) → broadcast(init) : (s)"""
    x, scalar = op.operands
    return filled(scalar, op.result.shape) if _is_empty(facts, x) else None


@rule(EMPTY_RULES, "dot_general", "convolution")
def product_of_nothing(facts: ShapeFacts, op: Op) -> Instead | None:
    """dot_general(x : (b, 0), y : (0, n)) → broadcast(0) : (b, n)"""
    return zeros(op.result) if any(_is_empty(facts, x) for x in op.operands) else None


@rule(EMPTY_RULES, "scatter")
def scatter_of_nothing(facts: ShapeFacts, op: Op) -> Instead | None:
    """scatter(x, indices, updates : (0, s)) → x"""
    return op.operands[0] if len(op.results) == 1 and _is_empty(facts, op.operands[2]) else None


@rule(EMPTY_RULES, "cumulative")
def cumulative_of_one(facts: ShapeFacts, op: Op) -> Instead | None:
    """cumulative(x : (1, s), init), dim = 0 → x"""
    alone = len(op.results) == 1 and is_one(facts, op.result.shape[op.attrs["dim"]])
    return op.operands[0] if alone else None


# Constants of complex numbers. Kernels know parts of them only, so that no rule for programs makes them.


@rule(SPELLING_RULES, "convert")
def complex_constant(facts: ShapeFacts, op: Op) -> Instead | None:
    """convert(constant 2 : i32), complex64 → constant 2+0j"""
    array = constant(op.operands[0])
    if array is None or op.result.dtype.kind != "c":
        return None
    return make("constant", value=array.astype(op.result.dtype))


@rule(SPELLING_RULES, "add", "multiply")
def complex_arithmetic_on_counts(facts: ShapeFacts, op: Op) -> Instead | None:
    """multiply(constant 1+0j, constant 2+0j) → constant 2+0j"""
    arrays = [array for x in op.operands if (array := constant(x)) is not None and _are_counts(array)]
    if op.result.dtype.kind != "c" or len(arrays) < len(op.operands):
        return None
    return make("constant", value=np.asarray(apply(op, arrays)))


def _are_counts(array: np.ndarray) -> bool:
    """Whether all are complex whole numbers that no way to compute rounds, or gives another zero."""
    parts = array.reshape(-1).view(array.real.dtype)
    return bool(np.all((parts >= 0) & (parts <= _MOST_EXACT) & (parts == np.rint(parts)) & ~np.signbit(parts)))


@rule(SPELLING_RULES, "iota")
def complex_iota_of_one(facts: ShapeFacts, op: Op) -> Instead | None:
    """iota : complex64 (1) → broadcast(constant 0j)"""
    counts_to_one = op.result.dtype.kind == "c" and is_one(facts, op.attrs["shape"][op.attrs["dim"]])
    return zeros(op.result) if counts_to_one else None


# What is spelled in several ways at any size, but is as good to compile in each.


@rule(SPELLING_RULES, "slice", of="broadcast")
def slice_of_broadcast(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    """slice(broadcast(x : (s)) : (b, s)) → broadcast(slice(x))"""
    (x,), dims = inner.operands, inner.attrs["dims"]
    if not all(are_equal(facts, size, inner.result.shape[wide]) for size, wide in zip(x.shape, dims, strict=True)):
        return None
    start, limit = (tuple(op.attrs[name][wide] for wide in dims) for name in ("start", "limit"))
    cut = make("slice", x, start=start, limit=limit, stride=tuple(op.attrs["stride"][wide] for wide in dims))
    return make("broadcast", cut, shape=op.result.shape, dims=dims)


@rule(SPELLING_RULES, "add")
def count_from_zero(facts: ShapeFacts, op: Op) -> Instead | None:
    """add(iota, broadcast(0.0)) → iota"""
    x, y = op.operands
    for count, zero in ((x, y), (y, x)):
        # A count is no -0.0, the one number that the sum with a zero may change.
        if made_by(count, "iota") and (value := splat(zero)) is not None and value == 0:
            return count
    return None


@rule(SPELLING_RULES, "gather")
def gather_from_an_axis_of_one(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x : (1), indices) → gather(x, 0)"""
    (x, indices), sizes = op.operands, op.attrs["slice_sizes"]
    known = splat(indices)
    if known is not None and not known and indices.dtype == np.int32:
        return None
    if not all(are_equal(facts, x.shape[axis], sizes[axis]) for axis in op.attrs["start_index_map"]):
        return None
    zero = make("constant", value=np.zeros((), np.int32))
    return make("gather", x, filled(zero, indices.shape), **op.attrs)


def _one_known_place(op: Op) -> np.ndarray | None:
    """The one place that a gather or a scatter is at, when it is known."""
    indices = op.operands[1]
    at = constant(indices)
    if at is None and (each := splat(indices)) is not None:
        at = np.repeat(each, len(op.attrs["start_index_map"]))
    if at is None or indices.rank != (op.attrs["index_vector_dim"] < indices.rank):
        return None
    return at.reshape(-1)


@rule(SPELLING_RULES, "scatter")
def scatter_of_everything(facts: ShapeFacts, op: Op) -> Instead | None:
    """scatter(x : (1), 0, updates : ()), the update is kept → reshape(updates)"""
    x, updates, body, at = op.operands[0], op.operands[2], op.attrs["body"], _one_known_place(op)
    if len(op.results) > 1 or body.outputs != body.inputs[1:2] or at is None or at.any():
        return None
    covers_all = facts.same_size(x.shape, updates.shape) is Truth.YES
    return make("reshape", updates, shape=op.result.shape) if covers_all else None


@rule(SPELLING_RULES, "gather")
def gather_at_a_known_place(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x, 3) → reshape(slice(x)), 3 to 3 + size"""
    x, at, sizes = op.operands[0], _one_known_place(op), op.attrs["slice_sizes"]
    if at is None:
        return None
    known = {axis: int(i) for axis, i in zip(op.attrs["start_index_map"], at, strict=True)}
    corner = [
        Dim.max(Dim.min(Dim.const(known.get(axis, 0)), limit - size), ZERO)
        for axis, (limit, size) in enumerate(zip(x.shape, sizes, strict=True))
    ]
    start = tuple(map(facts.canonical, corner))
    limit = tuple(low + size for low, size in zip(start, sizes, strict=True))
    window = make("slice", x, start=start, limit=limit, stride=(1,) * x.rank)
    return make("reshape", window, shape=op.result.shape)


@rule(SPELLING_RULES, "gather")
def gather_at_one_place(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x : (n, 4), i : ()), a row → reshape(dynamic_slice(x, i, 0))"""
    (x, indices), vector = op.operands, op.attrs["index_vector_dim"]
    if indices.rank != (vector < indices.rank) or op.attrs["operand_batching_dims"]:
        return None
    starts = [make("constant", value=np.zeros((), indices.dtype))] * x.rank
    for number, axis in enumerate(op.attrs["start_index_map"]):
        place = Dim.const(number)
        cut = make("slice", indices, start=(place,), limit=(place + 1,), stride=(1,))
        one = cut if indices.rank else indices
        starts[axis] = make("reshape", one, shape=())
    window = make("dynamic_slice", x, *starts, sizes=op.attrs["slice_sizes"])
    return make("reshape", window, shape=op.result.shape)


@rule(SPELLING_RULES, "scatter")
def scatter_to_zeros(facts: ShapeFacts, op: Op) -> Instead | None:
    """scatter(broadcast(0) : (5), 2, update : ()), they are added → pad(reshape(update) : (1)), 2 and 2"""
    window = _window_in_zeros(op)
    if window is None:
        return None
    pairs = list(zip(window, op.result.shape, strict=True))
    if not all(start >= 0 and facts.at_most(size + start, limit) is Truth.YES for (start, size), limit in pairs):
        return None
    update = make("reshape", op.operands[2], shape=tuple(size for _, size in window))
    low = tuple(Dim.const(start) for start, _ in window)
    high = tuple(limit - size - start for (start, size), limit in pairs)
    zero = make("constant", value=np.zeros((), op.result.dtype))
    return make("pad", update, zero, low=low, high=high, interior=(ZERO,) * op.result.rank)


def _window_in_zeros(op: Op) -> list[tuple[int, Dim]] | None:
    """Return the start and size, in each axis, of the window of zeros that an update is added to; None if unknown.

    There -0 becomes 0, which neither JAX nor XLA cares for.
    """
    zero, at, body = splat(op.operands[0]), _one_known_place(op), op.attrs["body"]
    if len(op.results) > 1 or at is None or zero is None or zero != 0 or op.attrs["operand_batching_dims"]:
        return None
    add = made_by(body.outputs[0], "add")
    adds = add is not None and set(add.operands) == set(body.inputs)
    if not adds and body.outputs != body.inputs[1:2]:
        return None
    known = {axis: int(i) for axis, i in zip(op.attrs["start_index_map"], at, strict=True)}
    sizes = iter([op.operands[2].shape[axis] for axis in op.attrs["offset_dims"]])
    dropped = op.attrs["collapsed_slice_dims"]
    return [(known.get(axis, 0), ONE if axis in dropped else next(sizes)) for axis in range(op.result.rank)]


@rule(SPELLING_RULES, "scatter")
def scatter_from_the_beginning(facts: ShapeFacts, op: Op) -> Instead | None:
    """scatter(x, 0, updates) → scatter(x, [], updates), start_index_map = ()"""
    at = _one_known_place(op) if len(op.results) == 1 else None
    if at is None or not at.size or at.any():
        return None
    x, indices, *others = op.operands
    nowhere = make("constant", value=np.zeros(0, indices.dtype))
    return make("scatter", x, nowhere, *others, **op.attrs | {"start_index_map": (), "index_vector_dim": 0})


ALIKE_RULES = (*EMPTY_RULES, *UNIT_RULES, *SPELLING_RULES)
ALIKE = RULES + ALIKE_RULES
