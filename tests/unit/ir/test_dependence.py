"""The dependences of a graph: backward slices in the order of their roots, and the ops that are live."""

from __future__ import annotations

import pytest
from graphs.dhlo import make_graph

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice, live_ops
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.sizes.dim import Dim


@pytest.fixture
def graph() -> Graph:
    def build(b, x, y):
        a = b.op("negate", [x])
        c = b.op("add", [y, a])
        b.op("sine", [c])  # nothing reads it
        d = b.op("multiply", [a, y])
        return [b.op("subtract", [d, c]), d]

    return make_graph([("float32", "n"), ("float32", "n")], build)


def names(ops):
    return [op.name for op in ops]


def test_operands_come_first_in_the_order_in_which_they_are_read(graph):
    last, other = graph.outputs
    assert names(backward_slice([last])) == ["negate", "multiply", "add", "subtract"]
    assert names(backward_slice([other, last])) == ["negate", "multiply", "add", "subtract"]
    assert names(backward_slice(graph.ops[1].results)) == ["negate", "add"]
    assert backward_slice(graph.inputs) == []


def test_a_slice_within_some_ops_ends_at_all_others(graph):
    negate, add, _, multiply, subtract = graph.ops
    assert backward_slice([graph.outputs[0]], {subtract, add, negate}) == [negate, add, subtract]
    assert backward_slice([graph.outputs[0]], {subtract, negate}) == [subtract]
    assert backward_slice([graph.outputs[0]], ()) == []


def test_what_counts_as_read_may_be_told(graph):
    sliced = backward_slice([graph.outputs[0]], reads=lambda op: op.operands[:1])
    assert names(sliced) == ["negate", "multiply", "subtract"]


def test_live_ops_keep_their_order_and_effects(graph):
    assert names(live_ops(graph.ops, graph.outputs)) == ["negate", "add", "multiply", "subtract"]

    def checked(b, x):
        b.multi("check", lhs=Dim.of("n"), relation=">=", rhs=Dim.of(1), message="", args=())
        b.op("negate", [x])
        return x

    ops = make_graph([("float32", "n")], checked).ops
    assert names(live_ops(ops, ())) == ["check"]
