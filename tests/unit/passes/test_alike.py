"""Programs with several lowerings at sizes 0 and 1 are spelled in one way; every rule fires, and changes no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from graphs.dhlo import make_graph, sample, shape

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.families.combiners import monoid_region, scalar_region
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.passes.alike import ALIKE, ALIKE_RULES, alike
from hlo_disc.dynamic_hlo.passes.rules.equal import equal
from hlo_disc.dynamic_hlo.passes.rules.rewrite import rewrite

F32, C64 = np.dtype(np.float32), np.dtype(np.complex64)
Build = Callable[..., Value]


def number(b: GraphBuilder, value: float) -> Value:
    return b.op("constant", value=np.array(value, F32))


def reshape(b: GraphBuilder, x: Value, to: str) -> Value:
    return b.op("reshape", (x,), shape=shape(to))


def add(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.op("add", (x, y))


def dot(b: GraphBuilder, x: Value, y: Value, *numbers: tuple[int, ...]) -> Value:
    names = ("lhs_batch", "lhs_contract", "rhs_batch", "rhs_contract")
    return b.op("dot_general", (x, y), dtype=F32, tf32=False, **dict(zip(names, numbers, strict=True)))


def numbers(vector: int, start: Any = (), offset: Any = (), collapsed: Any = (), batching: Any = ()) -> dict[str, Any]:
    """Return the dimension numbers of a gather. batching: pairs of an axis of the operand and one of the indices."""
    return {
        "offset_dims": offset,
        "collapsed_slice_dims": collapsed,
        "operand_batching_dims": tuple(axis for axis, _ in batching),
        "start_indices_batching_dims": tuple(axis for _, axis in batching),
        "start_index_map": start,
        "index_vector_dim": vector,
    }


def gather(b: GraphBuilder, x: Value, at: Value, sizes: str, **how: Any) -> Value:
    return b.op("gather", (x, at), slice_sizes=shape(sizes), **numbers(**how))


def scatter(b: GraphBuilder, x: Value, at: Value, updates: Value, **how: Any) -> Value:
    body = make_region(b.facts, [(F32, ()), (F32, ())], lambda inner, xs: [inner.op("subtract", xs)])
    body = scalar_region(body) or body
    return b.op("scatter", (x, at, updates), **numbers(**how), unique=False, count=1, body=body)


def added(b: GraphBuilder, to: str, updates: Value, at: int, **how: Any) -> Value:
    zeros, body = b.op("broadcast", (number(b, 0),), shape=shape(to), dims=()), monoid_region("add", F32)
    kind = {**numbers(0, start=(0,), **how), "unique": True, "count": 1}
    return b.op("scatter", (zeros, places(b, at), updates), **kind, body=body)


def widened(b: GraphBuilder, x: Value, low: str, high: str) -> Value:
    return b.op("pad", (x, number(b, 0)), low=shape(low), high=shape(high), interior=shape("0, 0"))


def stored(b: GraphBuilder, x: Value, at: int, update: Value) -> Value:
    body = make_region(b.facts, [(F32, ()), (F32, ())], lambda inner, xs: [xs[1]])
    at = b.op("constant", value=np.array(at, np.int32))
    return b.op("scatter", (x, at, update), **numbers(0, (0,), (), (0,)), unique=False, count=1, body=body)


def places(b: GraphBuilder, *values: int) -> Value:
    return b.op("constant", value=np.array(values, np.int32))


def running(b: GraphBuilder, x: Value, axis: int) -> Value:
    return b.op("cumulative", (x, number(b, 0)), dim=axis, reverse=False, body=monoid_region("add", F32))


def part(b: GraphBuilder, x: Value, start: str, limit: str) -> Value:
    return b.op("slice", (x,), start=shape(start), limit=shape(limit), stride=(1,) * x.rank)


def scalar(b: GraphBuilder, x: Value, at: int) -> Value:
    return reshape(b, part(b, x, str(at), str(at + 1)), "")


def complex_number(b: GraphBuilder, value: complex) -> Value:
    return b.op("constant", value=np.array(value, C64))


def counted(b: GraphBuilder, to: str, axis: int) -> Value:
    return b.op("iota", shape=shape(to), dim=axis, dtype=C64)


def counts(b: GraphBuilder) -> Value:
    return b.op("iota", shape=shape("n"), dim=0, dtype=F32)


def pad(b: GraphBuilder, x: Value) -> Value:
    two, zero = shape("2, 0"), shape("0, 0")
    return b.op("pad", (x, number(b, 7)), low=two, high=zero, interior=two)


@dataclass
class Case:
    """A case of a rule: `fires` and `other` say the same, and are spelled alike; the rule does not fire on `not_`."""

    rule: str
    fires: Build
    other: Build
    not_: Build
    inputs: tuple[tuple[str, str], ...]


def nothing_scattered(updates: str) -> Build:
    def build(b: GraphBuilder, x: Value, i: Value, u: Value) -> Value:
        return scatter(
            b, x, reshape(b, i, "0"), reshape(b, u, updates), vector=1, start=(0,), offset=(1,), collapsed=(0,)
        )

    return build


CASES = [
    Case(
        "empty",
        lambda b, x, y: b.op("concatenate", (x, reshape(b, b.op("exponential", (x,)), "0, n")), dim=1),
        lambda b, x, y: b.op("broadcast", (number(b, 0),), shape=shape("0, 2*n"), dims=()),
        lambda b, x, y: b.op("exponential", (y,)),
        (("float32", "0, n"), ("float32", "n, n")),
    ),
    Case(
        "reduce or pad of nothing",
        lambda b, x, y: add(
            b,
            b.op("reduce", (x, number(b, 3)), dims=(0,), kind="add"),
            b.op("reduce", (pad(b, x), number(b, 0)), dims=(0,), kind="max"),
        ),
        lambda b, x, y: b.op("broadcast", (number(b, 10),), shape=shape("4"), dims=()),
        lambda b, x, y: add(b, b.op("reduce", (y, number(b, 3)), dims=(0,), kind="add"), number(b, 0)),
        (("float32", "0, 4"), ("float32", "n")),
    ),
    Case(
        "product of nothing",
        lambda b, x, y, z: dot(b, x, y, (), (1,), (), (0,)),
        lambda b, x, y, z: b.op("broadcast", (number(b, 0),), shape=shape("n, 5"), dims=()),
        lambda b, x, y, z: dot(b, z, z, (), (0,), (), (0,)),
        (("float32", "n, 0"), ("float32", "0, 5"), ("float32", "n, 2")),
    ),
    Case(
        "scatter of nothing",
        lambda b, x, i, u, at: scatter(b, x, i, u, vector=1, start=(0,), offset=(1,), collapsed=(0,)),
        lambda b, x, i, u, at: x,
        lambda b, x, i, u, at: scatter(b, x, at, x, vector=1, start=(0,), offset=(1,), collapsed=(0,)),
        (("float32", "n, 4"), ("int32", "0"), ("float32", "0, 4"), ("int32", "n")),
    ),
    Case(
        "cumulative of one",
        lambda b, x: running(b, reshape(b, x, "1, n, 1"), 0),
        lambda b, x: reshape(b, x, "1, n, 1"),
        lambda b, x: running(b, reshape(b, x, "1, n, 1"), 1),
        (("float32", "n"),),
    ),
    Case(
        "op beside unit dims",
        lambda b, x, y, z: add(b, reshape(b, x, "1, n, 1"), reshape(b, y, "1, n, 1")),
        lambda b, x, y, z: reshape(b, add(b, x, reshape(b, y, "n")), "1, n, 1"),
        lambda b, x, y, z: add(b, z, z),
        (("float32", "n"), ("float32", "1, n"), ("float32", "n, n")),
    ),
    Case(
        "reshape that drops unit dims of broadcast",
        lambda b, x, _: reshape(b, b.op("broadcast", (x,), shape=shape("n, 1, 4, 1, 5"), dims=(1, 2, 3)), "n, 4, 5"),
        lambda b, x, _: b.op("broadcast", (reshape(b, x, "4"),), shape=shape("n, 4, 5"), dims=(1,)),
        lambda b, x, _: reshape(
            b, b.op("broadcast", (x,), shape=shape("n, 1, 4, 1, 5"), dims=(1, 2, 3)), "n, 4, 5, 1, 1"
        ),
        (("float32", "1, 4, 1"), ("float32", "n")),
    ),
    Case(
        "dot_general of unit dims",
        lambda b, x, y: dot(b, x, y, (0, 1), (2,), (2, 0), (1,)),
        lambda b, x, y: reshape(
            b, dot(b, reshape(b, x, "n, 4, 3"), reshape(b, y, "n, 4"), (0,), (1,), (0,), (1,)), "1, n, 3"
        ),
        lambda b, x, y: dot(b, reshape(b, x, "n, 4, 3"), reshape(b, y, "n, 4"), (0,), (1,), (0,), (1,)),
        (("float32", "1, n, 4, 3"), ("float32", "n, 4, 1")),
    ),
    Case(
        "dot_general of unit dims",
        lambda b, x, y: dot(b, x, y, (), (0,), (), (1,)),
        lambda b, x, y: reshape(b, dot(b, reshape(b, x, ""), reshape(b, y, "n"), (), (), (), ()), "1, n"),
        lambda b, x, y: dot(b, reshape(b, x, ""), reshape(b, y, "n"), (), (), (), ()),
        (("float32", "1, 1"), ("float32", "n, 1")),
    ),
    Case(
        "op beside unit dims",
        lambda b, x, y: b.op("reduce", (reshape(b, x, "4, 1, n"), number(b, 0)), dims=(1, 2), kind="add"),
        lambda b, x, y: b.op("reduce", (reshape(b, x, "4, n"), number(b, 0)), dims=(1,), kind="add"),
        lambda b, x, y: b.op("reduce", (y, number(b, 0)), dims=(0,), kind="add"),
        (("float32", "1, 4, n"), ("float32", "1, n")),
    ),
    Case(
        "op beside unit dims",
        lambda b, x, y: b.op("reduce", (x, number(b, 0)), dims=(1,), kind="add"),
        lambda b, x, y: reshape(
            b, b.op("reduce", (reshape(b, x, "4, n"), number(b, 0)), dims=(0,), kind="add"), "1, n"
        ),
        lambda b, x, y: b.op("reduce", (y, number(b, 0)), dims=(0,), kind="add"),
        (("float32", "1, 4, n"), ("float32", "1, n")),
    ),
    Case(
        "scatter of everything",
        lambda b, x, u: stored(b, x, 0, u),
        lambda b, x, u: reshape(b, u, "1"),
        lambda b, x, u: stored(b, x, 1, u),
        (("float32", "1"), ("float32", "")),
    ),
    Case(
        "constant without elements",
        lambda b, x: b.op("concatenate", (x, b.op("constant", value=np.zeros((0, 1), F32))), dim=0),
        lambda b, x: b.op("broadcast", (number(b, 0),), shape=shape("0, 1"), dims=()),
        lambda b, x: b.op("concatenate", (x, b.op("constant", value=np.zeros((1, 1), F32))), dim=0),
        (("float32", "0, 1"),),
    ),
    Case(
        "gather from an axis of one",
        lambda b, x, i: gather(b, x, i, "1", vector=1, start=(0,), collapsed=(0,)),
        lambda b, x, i: gather(b, x, b.op("negate", (i,)), "1", vector=1, start=(0,), collapsed=(0,)),
        lambda b, x, i: gather(
            b, b.op("concatenate", (x, x), dim=0), reshape(b, i, "n, 1"), "1", vector=1, start=(0,), collapsed=(0,)
        ),
        (("float32", "1"), ("int32", "n")),
    ),
    Case(
        "index of one",  # jnp.take_along_axis(x, i, 1) of a batch, and of a batch of one
        lambda b, x, i: gather(b, x, i, "1, 1", vector=2, start=(1,), collapsed=(1,), batching=((0, 0),)),
        lambda b, x, i: reshape(
            b, gather(b, x, reshape(b, i, "n, 1"), "1, 1", vector=1, start=(1,), offset=(0,), collapsed=(1,)), "1, n"
        ),
        lambda b, x, i: gather(b, x, reshape(b, i, "n"), "1, 5", vector=1, start=(1,), offset=(1,), collapsed=(0,)),
        (("float32", "1, 5"), ("int32", "1, n")),
    ),
    Case(
        "index of one",
        lambda b, x, i, u: scatter(b, x, i, u, vector=2, start=(1,), collapsed=(1,), batching=((0, 0),)),
        lambda b, x, i, u: scatter(b, x, reshape(b, i, "n, 1"), u, vector=1, start=(1,), offset=(0,), collapsed=(1,)),
        lambda b, x, i, u: scatter(
            b, u, reshape(b, i, "n"), reshape(b, u, "n"), vector=1, start=(1,), collapsed=(0, 1)
        ),
        (("float32", "1, 5"), ("int32", "1, n"), ("float32", "1, n")),
    ),
    Case(
        "gather at a known place",
        lambda b, x: gather(b, x, places(b, 9, -1), "1, 3, 1", vector=0, start=(0, 1), offset=(0,), collapsed=(0, 2)),
        lambda b, x: reshape(b, part(b, x, "3, 0, 0", "4, 3, 1"), "3"),
        lambda b, x: gather(b, x, places(b, 9, -1), "1, 3, 1", vector=1, start=(0,), offset=(1,), collapsed=(0, 2)),
        (("float32", "4, 5, 2"),),
    ),
    Case(
        "gather at one place",
        lambda b, x, i: gather(b, x, i, "1, 2, 5", vector=0, start=(1, 0), offset=(0, 1), collapsed=(0,)),
        lambda b, x, i: reshape(
            b,
            b.op(
                "dynamic_slice",
                (x, scalar(b, i, 1), scalar(b, i, 0), reshape(b, places(b, 0), "")),
                sizes=shape("1, 2, 5"),
            ),
            "2, 5",
        ),
        lambda b, x, i: gather(b, x, i, "1, 2, 5", vector=1, start=(1,), offset=(1, 2), collapsed=(0,)),
        (("float32", "4, 3, 5"), ("int32", "2")),
    ),
    Case(
        "gather at one place",
        lambda b, x, i: gather(b, x, scalar(b, i, 0), "1", vector=0, start=(0,), collapsed=(0,)),
        lambda b, x, i: reshape(b, b.op("dynamic_slice", (x, scalar(b, i, 0)), sizes=shape("1")), ""),
        lambda b, x, i: gather(b, x, i, "1", vector=1, start=(0,), collapsed=(0,)),
        (("float32", "4"), ("int32", "2")),
    ),
    Case(
        "scatter to zeros",
        lambda b, x: added(b, "5, 4", x, 2, offset=(0,), collapsed=(0,)),
        lambda b, x: widened(b, reshape(b, x, "1, 4"), "2, 0", "2, 0"),
        lambda b, x: added(b, "5, 4", x, 5, offset=(0,), collapsed=(0,)),
        (("float32", "4"),),
    ),
    Case(
        "scatter to zeros",
        lambda b, x: added(b, "n + 3, 4", x, 0, offset=(0, 1)),
        lambda b, x: widened(b, x, "0, 0", "3, 0"),
        lambda b, x: added(b, "n, 4", x, 1, offset=(0, 1)),
        (("float32", "n, 4"),),
    ),
    Case(
        "scatter from the beginning",
        lambda b, x, u: scatter(b, x, places(b, 0, 0), u, vector=0, start=(1, 0), offset=(0,), collapsed=(0,)),
        lambda b, x, u: scatter(b, x, places(b), u, vector=0, offset=(0,), collapsed=(0,)),
        lambda b, x, u: scatter(b, x, places(b, 0, 1), u, vector=0, start=(1, 0), offset=(0,), collapsed=(0,)),
        (("float32", "4, 5"), ("float32", "3")),
    ),
    Case(
        "op beside unit dims",
        lambda b, x: b.op("transpose", (part(b, x, "0, 1, 0", "1, 3, n"),), perm=(0, 2, 1)),
        lambda b, x: reshape(
            b, b.op("transpose", (part(b, reshape(b, x, "4, n"), "1, 0", "3, n"),), perm=(1, 0)), "1, n, 2"
        ),
        lambda b, x: b.op("transpose", (reshape(b, x, "4, n"),), perm=(1, 0)),
        (("float32", "1, 4, n"),),
    ),
    Case(
        "op beside unit dims",  # which another axis of the result follows
        lambda b, x: b.op("transpose", (x,), perm=(2, 0, 1)),
        lambda b, x: reshape(b, b.op("transpose", (reshape(b, x, "4, n"),), perm=(1, 0)), "n, 1, 4"),
        lambda b, x: b.op("transpose", (reshape(b, x, "4, n"),), perm=(1, 0)),
        (("float32", "1, 4, n"),),
    ),
    Case(
        "op beside unit dims",  # an axis of one becomes another size where it is padded, joined or cut from more
        lambda b, x: b.op("concatenate", (widened(b, x, "0, 2", "0, n"), widened(b, x, "0, 0", "0, n + 2")), dim=1),
        lambda b, x: reshape(
            b,
            b.op(
                "concatenate",
                tuple(
                    b.op(
                        "pad", (reshape(b, x, "n"), number(b, 0)), low=shape(low), high=shape(high), interior=shape("0")
                    )
                    for low, high in (("2", "n"), ("0", "n + 2"))
                ),
                dim=0,
            ),
            "1, 4*n + 4",
        ),
        lambda b, x: part(b, b.op("concatenate", (x, widened(b, x, "0, 0", "1, 0")), dim=0), "2, 0", "3, n"),
        (("float32", "1, n"),),
    ),
    Case(
        "complex constant",
        lambda b, x: add(b, x, b.op("convert", (number(b, 2.5),), dtype=C64)),
        lambda b, x: add(b, x, complex_number(b, 2.5)),
        lambda b, x: add(b, x, b.op("convert", (b.op("real", (x,)),), dtype=C64)),
        (("complex64", ""),),
    ),
    Case(
        "complex arithmetic on counts",
        lambda b, x: add(b, x, b.op("multiply", (complex_number(b, 2), complex_number(b, 3)))),
        lambda b, x: add(b, x, complex_number(b, 6)),
        lambda b, x: add(b, x, b.op("multiply", (complex_number(b, 2.5), complex_number(b, 3)))),
        (("complex64", ""),),
    ),
    Case(
        "complex iota of one",
        lambda b, x: add(b, x, counted(b, "1, n", 0)),
        lambda b, x: add(b, x, b.op("broadcast", (complex_number(b, 0),), shape=shape("1, n"), dims=())),
        lambda b, x: add(b, x, counted(b, "1, n", 1)),
        (("complex64", "1, n"),),
    ),
    Case(
        "slice of broadcast",
        lambda b, x, _: part(b, b.op("broadcast", (x,), shape=shape("n, 4, 3"), dims=(2, 1)), "0, 1, 2", "n, 4, 3"),
        lambda b, x, _: b.op("broadcast", (part(b, x, "2, 1", "3, 4"),), shape=shape("n, 3, 1"), dims=(2, 1)),
        lambda b, x, _: part(b, b.op("transpose", (x,), perm=(1, 0)), "1, 2", "4, 3"),
        (("float32", "3, 4"), ("float32", "n")),
    ),
    Case(
        "count from zero",
        lambda b, x: add(b, x, add(b, b.op("broadcast", (number(b, 0),), shape=shape("n"), dims=()), counts(b))),
        lambda b, x: add(b, x, counts(b)),
        lambda b, x: add(b, x, add(b, b.op("broadcast", (number(b, 0),), shape=shape("n"), dims=()), x)),
        (("float32", "n"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_rule(case: Case) -> None:
    graphs = [make_graph(case.inputs, build) for build in (case.fires, case.other, case.not_)]
    (rule,) = (rule for rule in ALIKE_RULES if rule.name == case.rule)
    for graph, expected in zip((graphs[0], graphs[2]), (True, False), strict=True):
        fired = Counter[str]()
        rewrite(graph, [rule], fired)
        assert bool(fired[case.rule]) == expected
    assert equal(alike(graphs[0]), alike(graphs[1]))
    for graph in graphs:
        after = alike(graph)
        verify(after)
        for n in (0, 1, 3):
            arrays = sample(graph, {"n": n})
            for x, y in zip(evaluate(graph, arrays), evaluate(after, arrays), strict=True):
                np.testing.assert_array_equal(x, y, strict=True)


def test_loops_that_never_turn() -> None:
    """The body of a loop that never runs makes no sense: there is no index 0."""

    def build(b: GraphBuilder, x: Value, total: Value) -> Value:
        i32 = np.dtype(np.int32)
        zero, types = b.op("constant", value=np.zeros((), i32)), [(i32, ()), (F32, ()), (F32, x.shape)]
        cond = make_region(
            b.facts,
            types,
            lambda c, v: [c.op("compare", (v[0], c.op("dim", expr=x.shape[0], dtype=i32)), direction="LT")],
        )

        def turn(c: GraphBuilder, v: list[Value]) -> list[Value]:
            one = c.op("constant", value=np.ones((), i32))
            element = reshape(c, c.op("dynamic_slice", (v[2], v[0]), sizes=shape("1")), "")
            return [c.op("add", (v[0], one)), add(c, v[1], element)]

        body = make_region(b.facts, types, turn)
        return b.multi("while", (zero, total, x), cond=cond, body=body, carried=2)[1]

    graph = make_graph([("float32", "n"), ("float32", "")], build)
    facts = graph.facts.copy()
    facts.add_equal(shape("n")[0], shape("0")[0])
    assert not alike(replace(graph, facts=facts)).ops
    assert len(alike(graph).ops) > 1


def test_sorts_of_one() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        types = [(F32, ())] * 4
        body = make_region(b.facts, types, lambda c, v: [c.op("compare", (v[0], v[1]), direction="LT")])
        return b.multi("sort", (x, y), dim=0, stable=True, count=2, body=body)[1]

    assert not alike(make_graph([("float32", "1, n")] * 2, build)).ops
    assert alike(make_graph([("float32", "2, n")] * 2, build)).ops


@pytest.mark.parametrize("known", [True, False])
def test_results_that_are_known(known: bool) -> None:
    """The index of the largest of some numbers is known where the numbers are."""
    i32 = np.dtype(np.int32)

    def build(b: GraphBuilder, x: Value) -> Value:
        types = [(F32, ()), (i32, ())] * 2

        def larger(c: GraphBuilder, v: Sequence[Value]) -> list[Value]:
            later = c.op("compare", (v[0], v[2]), direction="LT")
            return [c.op("select", (later, v[2 + k], v[k])) for k in range(2)]

        values = b.op("constant", value=np.array([3, 7, 5], F32)) if known else x
        count = b.op("iota", shape=x.shape, dim=0, dtype=i32)
        start = number(b, 0), b.op("constant", value=np.zeros((), i32))
        body = make_region(b.facts, types, larger)
        at = b.multi("reduce_with", (values, count, *start), dims=(0,), body=body)[1]
        return add(b, x, b.op("broadcast", (b.op("convert", (at,), dtype=F32),), shape=x.shape, dims=()))

    graph = make_graph([("float32", "3")], build)
    after = alike(graph)
    verify(after)
    assert any(op.name == "reduce_with" for op in after.ops) != known
    arrays = sample(graph, {})
    np.testing.assert_array_equal(*(evaluate(g, arrays)[0] for g in (graph, after)), strict=True)


def shorter(b: GraphBuilder, x: Value, bound: Value) -> Value:
    """Halve x in a loop until its first element is small."""

    def first(c: GraphBuilder, value: Value) -> Value:
        return reshape(c, part(c, value, ", ".join("0" * value.rank), ", ".join("1" * value.rank)), "")

    def turn(c: GraphBuilder, v: Sequence[Value]) -> list[Value]:
        return [c.op("multiply", (v[0], c.op("broadcast", (number(c, 0.5),), shape=v[0].shape, dims=())))]

    def more(c: GraphBuilder, v: Sequence[Value]) -> list[Value]:
        return [c.op("compare", (first(c, v[0]), first(c, v[1])), direction="GT")]

    types = [(F32, x.shape), (F32, bound.shape)]
    regions = {"cond": make_region(b.facts, types, more), "body": make_region(b.facts, types, turn)}
    return b.multi("while", (x, bound), **regions, carried=1)[0]


def either(b: GraphBuilder, x: Value) -> Value:
    branches = (lambda c, v: [c.op("negate", v)], lambda c, v: v)
    regions = tuple(make_region(b.facts, [(F32, x.shape)], branch) for branch in branches)
    return b.multi("case", (b.op("constant", value=np.array(0, np.int32)), x), branches=regions)[0]


def smallest_first(b: GraphBuilder, x: Value, axis: int, sign: Value) -> Value:
    """Sort by values times `sign`, which the comparison reads."""
    types = [(F32, ()), (F32, ()), (F32, sign.shape)]

    def less(c: GraphBuilder, v: Sequence[Value]) -> list[Value]:
        signs = [c.op("multiply", (value, v[2])) for value in v[:2]]
        return [c.op("compare", signs, direction="LT")]

    body = make_region(b.facts, types, less)
    return b.multi("sort", (x, sign), dim=axis, stable=True, count=1, body=body)[0]


SEVERAL: list[tuple[Build, Build, tuple[tuple[str, str], ...]]] = [
    (
        lambda b, x, y: shorter(b, x, y),
        lambda b, x, y: reshape(b, shorter(b, reshape(b, x, "3"), reshape(b, y, "")), "1, 3"),
        (("float32", "1, 3"), ("float32", "1, 1")),
    ),
    (
        lambda b, x: either(b, x),
        lambda b, x: reshape(b, either(b, reshape(b, x, "n")), "1, n, 1"),
        (("float32", "1, n, 1"),),
    ),
    (
        lambda b, x, y: smallest_first(b, x, 1, y),
        lambda b, x, y: reshape(b, smallest_first(b, reshape(b, x, "4"), 0, y), "1, 4, 1"),
        (("float32", "1, 4, 1"), ("float32", "")),
    ),
    (
        lambda b, x: running(b, x, 1),
        lambda b, x: reshape(b, running(b, reshape(b, x, "4"), 0), "1, 4"),
        (("float32", "1, 4"),),
    ),
]


@pytest.mark.parametrize("wide, narrow, inputs", SEVERAL, ids=("while", "case", "sort", "cumulative"))
def test_ops_of_several_results_without_units(wide: Build, narrow: Build, inputs: tuple[tuple[str, str], ...]) -> None:
    one, other = (make_graph(inputs, build) for build in (wide, narrow))
    assert not equal(one, other)
    assert equal(alike(one), alike(other))
    for n in (0, 1, 3):
        arrays = sample(one, {"n": n})
        for graph in (alike(one), alike(other)):
            verify(graph)
            for x, y in zip(evaluate(one, arrays), evaluate(graph, arrays), strict=True):
                np.testing.assert_array_equal(x, y, strict=True)


WINDOWS = {"window": shape("1, 2"), "strides": (1, 1), "low": shape("0, 1"), "high": shape("0, 0"),
    "base_dilations": (1, 1), "window_dilations": (1, 1), "body": monoid_region("add", F32)}  # fmt: skip
ALONG: list[tuple[str, list[tuple[str, str]], dict[str, Any], bool]] = [
    ("dynamic_slice", [("float32", "1, 4"), ("int32", ""), ("int32", "")], {"sizes": shape("1, 3")}, True),
    ("dynamic_slice", [("float32", "n + 1, 4"), ("int32", ""), ("int32", "")], {"sizes": shape("1, 4")}, False),
    ("dynamic_update_slice", [("float32", "1, 4"), ("float32", "1, 2"), ("int32", ""), ("int32", "")], {}, True),
    ("dynamic_update_slice", [("float32", "3, 4"), ("float32", "1, 4"), ("int32", ""), ("int32", "")], {}, False),
    ("concatenate", [("float32", "1, n"), ("float32", "1, 2")], {"dim": 1}, True),
    ("concatenate", [("float32", "1, n"), ("float32", "1, n")], {"dim": 0}, False),
    ("pad", [("float32", "1, n"), ("float32", "")], {
        "low": shape("-1, 2"), "high": shape("1, 0"), "interior": shape("0, 1"),
    }, False),
    ("pad", [("float32", "1, n"), ("float32", "")], {
        "low": shape("0, 2"), "high": shape("0, 0"), "interior": shape("2, 1"),
    }, True),
    ("reverse", [("float32", "1, n")], {"dims": (0, 1)}, True),
    ("reduce_window", [("float32", "1, n"), ("float32", "")], WINDOWS, True),
    ("reduce_with", [("float32", "1, n, 3"), ("float32", "")], {"dims": (1,), "body": monoid_region("add", F32)}, True),
    ("iota", [], {"shape": shape("1, 4"), "dim": 1, "dtype": F32}, True),
    ("iota", [], {"shape": shape("1, 4"), "dim": 0, "dtype": F32}, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs", "leaves"), ALONG, ids=[name for name, *_ in ALONG])
def test_axes_of_one_leave_ops_that_do_nothing_along_them(
    name: str, inputs: list[tuple[str, str]], attrs: dict[str, Any], leaves: bool
) -> None:
    (rule,) = (rule for rule in ALIKE_RULES if rule.name == "op beside unit dims")
    graph = make_graph([*inputs, ("float32", "n")], lambda b, *xs: b.multi(name, xs[:-1], **attrs))
    after = rewrite(graph, [rule])
    (op,) = (op for op in after.ops if op.name == name)
    assert (op.result.rank < graph.outputs[0].rank) == leaves
    for n in (1, 3):
        arrays = sample(graph, {"n": n})
        for x, y in zip(evaluate(graph, arrays), evaluate(after, arrays), strict=True):
            np.testing.assert_array_equal(x, y, strict=True)


def test_every_rule_is_tested() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in ALIKE_RULES}
    assert len({rule.name for rule in ALIKE}) == len(ALIKE)
