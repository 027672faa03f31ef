"""The graphs that come of normalising: they are verified, and mean what the graph meant before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs.dhlo import make_graph, sample

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, make_op
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.table import OPS, register
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError
from hlo_disc.stitch.prepare.normalise import normalise

F32 = np.dtype(np.float32)
ZERO, ONE = Dim.const(0), Dim.const(1)


def combine(name: str, **attrs: str):
    return make_region(ShapeFacts(), [(F32, ())] * 2, lambda b, x: [b.op(name, x, **attrs)])


def pad(b: GraphBuilder, x: Value) -> Value:
    value = b.op("constant", value=np.array(9, F32))
    return b.op("pad", [x, value], low=(Dim.of("a"), ONE), high=(ZERO, Dim.const(-1)), interior=(ONE, ZERO))


def convolution(b: GraphBuilder, x: Value, w: Value) -> Value:
    attrs = dict(lhs_spec=(0, 2, 1), rhs_spec=(2, 1, 0), out_spec=(0, 2, 1), strides=(2,), low=(ONE,), high=(ZERO,))
    more = dict(base_dilations=(1,), window_dilations=(2,), reversal=(), feature_groups=1, batch_groups=1, dtype=F32)
    return b.op("convolution", [x, w], **attrs, **more)


def select_and_scatter(b: GraphBuilder, x: Value, source: Value) -> Value:
    zero = b.op("constant", value=np.zeros((), F32))
    two = Dim.const(2)
    window = dict(window=(two, ONE), strides=(2, 1), low=(ZERO, ZERO), high=(ONE, ZERO))
    regions = dict(select=combine("compare", direction="GE"), body=combine("add"))
    return b.op("select_and_scatter", [x, source, zero], **window, **regions)


def top(b: GraphBuilder, x: Value) -> Value:
    body = combine("compare", direction="LT")
    ordered = b.op("sort", [x], dim=1, stable=True, count=1, body=body)
    return b.op("slice", [ordered], start=(ZERO, ZERO), limit=(x.shape[0], Dim.const(2)), stride=(1, 1))


CASES = {
    "place": ([("float32", "a, b")], pad, [{"a": 3, "b": 4}, {"a": 0, "b": 1}]),
    "window": ([("float32", "a, b, 3"), ("float32", "2, 3, 5")], convolution, [{"a": 2, "b": 7}, {"a": 1, "b": 0}]),
    "window_scatter": ([("float32", "7, b"), ("float32", "4, b")], select_and_scatter, [{"b": 3}, {"b": 0}]),
    "sort_first": ([("float32", "a, 6")], top, [{"a": 3}, {"a": 0}]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_normalised_graph_is_verified_and_means_the_same(name: str) -> None:
    inputs, build, calls = CASES[name]
    graph = make_graph(inputs, build)
    normal = normalise(graph)
    assert name in {op.name for op in normal.ops}
    verify(normal)
    for sizes in calls:
        arrays = sample(graph, sizes)
        for got, want in zip(evaluate(normal, arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def broken(graph: Graph, change: Op, by: Op) -> Graph:
    values = dict(zip(change.results, by.results, strict=True))
    assert change is graph.ops[-1]
    return graph.with_roots(values, ops=(*graph.ops[:-1], by))


def test_a_wrong_private_op_is_found() -> None:
    normal = normalise(make_graph(*CASES["sort_first"][:2]))
    (op,) = normal.ops
    wrong = make_op(op.name, op.operands, op.attrs, [(F32, (*op.result.shape[:1], Dim.const(3)))], "")
    with pytest.raises(CompileError, match="sort_first.*inferred"):
        verify(broken(normal, op, wrong))
    attrs = {**op.attrs, "first": 2}
    with pytest.raises(CompileError, match="attribute first = 2 is not a Dim"):
        verify(broken(normal, op, make_op(op.name, op.operands, attrs, [(F32, op.result.shape)], "")))


def test_registered_rows_are_checked() -> None:
    row = OPS["abs"]
    with pytest.raises(CompileError, match="there is an op abs already"):
        register([row])
    with pytest.raises(CompileError, match="nothing says what its attribute colour is"):
        register([replace(row, name="painted", attrs=("colour",))])


@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_is_allowed_where_a_machine_rounds_to_it(tf32: bool) -> None:
    numbers = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,), "dtype": F32}
    inputs = [("float32", "a, b"), ("float32", "b, 3")]
    normal = normalise(make_graph(inputs, lambda g, *xs: g.op("dot_general", xs, **numbers, tf32=True)), tf32)
    verify(normal)
    assert [op.attrs["tf32"] for op in normal.ops] == [tf32]
