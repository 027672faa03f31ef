"""The verifier: a graph from the builder passes, each broken invariant is found and named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graphs.dhlo import make_graph, shape

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import CompileError

F32 = np.dtype(np.float32)
GOOD = Guard(raw_dim(0, 0), ">=", Dim.const(1), "x0 has {0} rows", (Dim.symbol("b"),))


def build(b: GraphBuilder, x: Value) -> Value:
    wide = b.op("broadcast", [x], "model.py:1", shape=shape("b, s, 3"), dims=(0, 1))
    return b.op("tanh", [b.op("transpose", [wide], "model.py:2", perm=(2, 1, 0))], "model.py:3")


@pytest.fixture
def graph() -> Graph:
    return make_graph([("float32", "b, s")], build, guards=[GOOD])


def made(name: str, operands, results, **attrs) -> Op:
    """An op with the result types that a broken pass might give it."""
    op = Op(name, tuple(operands), attrs, "model.py:9")
    values = tuple(Value(np.dtype(dtype), shape(text), op, i) for i, (dtype, text) in enumerate(results))
    object.__setattr__(op, "results", values)
    return op


def test_good_graphs_pass(graph):
    verify(graph)
    verify(dataclasses.replace(graph, outputs=(*graph.inputs, *graph.outputs, *graph.outputs)))


def test_order(graph):
    broken = dataclasses.replace(graph, ops=graph.ops[::-1])
    with pytest.raises(CompileError, match=r"tanh\(.*model.py:3: operand 0 .* result of transpose.*not defined"):
        verify(broken)


def test_output_that_nothing_defines(graph):
    with pytest.raises(CompileError, match="output 0 of test"):
        verify(dataclasses.replace(graph, ops=graph.ops[:-1]))


@pytest.mark.parametrize(
    "op, text",
    [
        (lambda x: made("tanh", [x], [("float32", "b, t")]), r"inferred float32\[b, s\]"),
        (lambda x: made("tanh", [x], [("float64", "b, s")]), r"results float64\[b, s\], inferred float32"),
        (lambda x: made("tanh", [x], []), "inferred"),
        (lambda x: made("tanh", [x, x], [("float32", "b, s")]), "2 operands, expected 1"),
        (lambda x: made("tanh", [x], [("float32", "b, s")], dims=(0,)), r"attributes \['dims'\], expected \[\]"),
        (lambda x: made("reverse", [x], [("float32", "b, s")], dims=[0]), "not a tuple of ints"),
        (lambda x: made("convert", [x], [("float32", "b, s")], dtype="float32"), "not a numpy.dtype"),
        (lambda x: made("warp", [x], [("float32", "b, s")]), "no such op"),
        (lambda x: made("iota", [], [("int32", "q")], shape=shape("q"), dim=0, dtype=np.dtype(np.int32)), "binds: q"),
        (lambda x: made("dim", [], [("int32", "")], expr=Dim.parse("q + r"), dtype=np.dtype(np.int32)), "binds: q, r"),
        (lambda x: made("reshape", [x], [("float32", "b, s + 1, b")], shape=shape("3")), "inferred"),
    ],
)
def test_malformed_ops(graph, op, text):
    with pytest.raises(CompileError, match=text) as caught:
        verify(dataclasses.replace(graph, ops=(*graph.ops, op(graph.inputs[0]))))
    assert "model.py:9" in str(caught.value)


def test_a_shape_error_inside_is_a_compile_error(graph):
    a, b = (made("constant", [], [("float32", str(n))], value=np.zeros(n, F32)) for n in (2, 3))
    add = made("add", [a.result, b.result], [("float32", "2")])
    with pytest.raises(CompileError, match="never agree: 2 and 3"):
        verify(dataclasses.replace(graph, ops=(*graph.ops, a, b, add)))


def test_results_name_their_op(graph):
    first = graph.ops[0]
    copy = Op(first.name, first.operands, first.attrs, first.loc)
    object.__setattr__(copy, "results", first.results)
    with pytest.raises(CompileError, match="another op"):
        verify(dataclasses.replace(graph, ops=(copy, *graph.ops[1:])))


@pytest.mark.parametrize(
    "changes, text",
    [
        (dict(input_names=()), "1 inputs and 0 names"),
        (dict(bindings={"b": raw_dim(0, 0)}), "nothing binds s"),
        (dict(bindings={"b": raw_dim(0, 0), "s": raw_dim(3, 0)}), "%3.0 is no input's size"),
        (dict(bindings={"b": raw_dim(0, 0), "s": Dim.symbol("b")}), "b is no input's size"),
        (dict(guards=(dataclasses.replace(GOOD, relation="=<"),)), "guard 0 .*relation"),
        (dict(guards=(GOOD, dataclasses.replace(GOOD, lhs=Dim.symbol("q")))), "guard 1 .*nothing binds q"),
        (dict(guards=(dataclasses.replace(GOOD, args=()),)), "does not fit 0 arguments"),
        (dict(guards=(dataclasses.replace(GOOD, message="{x}"),)), "does not fit"),
        (dict(guards=(dataclasses.replace(GOOD, message="{"),)), "does not fit"),
        (dict(inputs=(Value(F32, shape("b, s"), None, 1),)), "input 0"),
    ],
)
def test_signature(graph, changes, text):
    with pytest.raises(CompileError, match=text):
        verify(dataclasses.replace(graph, **changes))
