"""DHLO printed as StableHLO: MLIR accepts the text, and what XLA computes from it is what the reference computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import run_stablehlo
from comparison.differential import bands, wrong
from depth import examples
from graphs.dhlo import make_graph, sample, shape
from graphs.random_graphs import graphs
from hypothesis import given, note, settings
from hypothesis import strategies as st
from op_rows import ROWS

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ir.dtypes import element_type
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.print.dhlo import to_text
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.print.text import dense
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.import_.stablehlo.module import read_module

F32, I32, I64 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)


def legal(graph: Graph) -> str:
    """The graph's text, after MLIR has parsed and verified it."""
    verify(graph)
    text = to_stablehlo(graph)
    with mlir.context():
        assert mlir.ir.Module.parse(text).operation.verify()
    return text


def check(graph: Graph, *symbols: dict[str, int], seed: int = 0) -> str:
    """Run text and graph at several sizes and compare."""
    text = legal(graph)
    for sizes in symbols:
        arrays = sample(graph, sizes, seed)
        for ours, theirs in zip(evaluate(graph, arrays), run_stablehlo(text, arrays), strict=True):
            assert ours.shape == theirs.shape
            wide = np.complex128 if ours.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=1e-5, atol=1e-6)
    return text


# The sizes that break things: none, one, a prime.
BS = [dict(b=b, s=s) for b, s in [(0, 3), (3, 0), (1, 1), (2, 1), (1, 5), (3, 7)]]


def scalar(builder: GraphBuilder, value: float, dtype: np.dtype = F32) -> Value:
    return builder.op("constant", value=np.array(value, dtype))


def unary(name: str, **attrs):
    return lambda b, x: b.op(name, [x], **attrs)


def slice_out(b: GraphBuilder, x: Value) -> list[Value]:
    return [
        b.op("slice", [x], start=shape("0, floordiv(s, 2)"), limit=shape("b, s"), stride=(1, 2)),
        b.op("slice", [x], start=shape("0, 0"), limit=shape("floordiv(b, 2), s"), stride=(1, 1)),
    ]


def pads(b: GraphBuilder, x: Value) -> list[Value]:
    value = scalar(b, -1.5)
    return [
        b.op("pad", [x, value], low=shape("1, 0"), high=shape("0, 2"), interior=shape("0, 1")),
        b.op("pad", [x, value], low=shape("0, 0"), high=shape("s, 1"), interior=shape("0, b")),
    ]


def gathers(b: GraphBuilder, x: Value, i: Value) -> list[Value]:
    common = dict(
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
    )
    return [
        b.op("gather", [x, i], offset_dims=(1,), index_vector_dim=1, slice_sizes=shape("1, s"), **common),
        b.op("gather", [x, i], offset_dims=(0,), index_vector_dim=1, slice_sizes=shape("1, 1"), **common),
    ]


def dots(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
    batched = dict(lhs_batch=(0,), rhs_batch=(1,), lhs_contract=(1,), rhs_contract=(0,), dtype=F32, tf32=True)
    flat = dict(lhs_batch=(), rhs_batch=(), lhs_contract=(0, 1), rhs_contract=(1, 0), dtype=F32, tf32=False)
    return [b.op("dot_general", [x, y], **batched), b.op("dot_general", [x, y], **flat)]


def updates(b: GraphBuilder, x: Value, update: Value, i: Value) -> list[Value]:
    zero = scalar(b, 0, I32)
    return [
        b.op("dynamic_update_slice", [x, update, i, zero]),
        b.op("dynamic_slice", [x, i, zero], sizes=shape("1, 2")),
        b.op("dynamic_slice", [x, i, zero], sizes=shape("1, s")),
    ]


def sources(b: GraphBuilder, x: Value) -> list[Value]:
    return [
        b.op("iota", shape=shape("s, b"), dim=1, dtype=I32),
        b.op("iota", shape=shape("3, 2"), dim=0, dtype=F32),
        b.op("dim", expr=Dim.parse("b*s - 2*s + 7"), dtype=I32),
        b.op("constant", value=np.arange(100, dtype=np.int64).reshape(4, 25)),
    ]


PROGRAMS = {
    "sources": ([("float32", "b, s")], sources),
    "broadcast": (
        [("float32", "s"), ("int8", "b")],
        lambda b, x, _: b.op("broadcast", [x], shape=shape("b, s, 2"), dims=(1,)),
    ),
    "broadcast_static": ([("float32", "3")], unary("broadcast", shape=shape("2, 3"), dims=(1,))),
    "reshape": ([("float32", "b, s, 4")], lambda b, x: [b.op("reshape", [x], shape=shape("s*b, 2, 2"))]),
    "transpose": ([("float32", "b, s, 4")], unary("transpose", perm=(2, 0, 1))),
    "reverse": ([("float32", "b, s")], unary("reverse", dims=(1,))),
    "slice": ([("float32", "b, s")], slice_out),
    "slice_static": ([("float32", "b, 9")], unary("slice", start=shape("0, 1"), limit=shape("b, 9"), stride=(1, 3))),
    "pad": ([("float32", "b, s")], pads),
    "concatenate": ([("float32", "b, s"), ("float32", "b, 2")], lambda b, x, y: b.op("concatenate", [x, y, x], dim=1)),
    "reduce_add": ([("float32", "b, s")], lambda b, x: b.op("reduce", [x, scalar(b, 0)], dims=(1,), kind="add")),
    "reduce_max": ([("int32", "b, s")], lambda b, x: b.op("reduce", [x, scalar(b, -9, I32)], dims=(0, 1), kind="max")),
    "reduce_or": (
        [("bool", "b, s")],
        lambda b, x: b.op("reduce", [x, scalar(b, 0, np.dtype(bool))], dims=(0,), kind="or"),
    ),
    "dot_general": ([("float32", "b, s, 3"), ("float32", "s, b, 4")], dots),
    "select": (
        [("bool", "b"), ("float32", "b"), ("float32", "b")],
        lambda b, p, x, y: [b.op("select", [p, x, y]), b.op("clamp", [x, y, y])],
    ),
    "convert": ([("float32", "b")], lambda b, x: [b.op("convert", [x], dtype=np.dtype(t)) for t in ("int32", "bool")]),
    "bitcast": ([("float32", "b")], unary("bitcast_convert", dtype=I32)),
    "sizes": (
        [("float32", "b, s")],
        lambda b, x: [
            b.op("dim", expr=Dim.parse(text), dtype=I64)
            for text in (
                "min(b, s)",
                "max(b - 3, 2)",
                "floordiv(b - s, s + 1)",
                "mod(b - s - 1, b + 1)",
                "floordiv(b*s, 2)",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_like_the_reference(name):
    graph = make_graph(*PROGRAMS[name])
    symbols = {symbol for value in graph.inputs for dim in value.shape for symbol in dim.symbols}
    check(graph, *([{k: v for k, v in sizes.items() if k in symbols} for sizes in BS] if symbols else [{}]))


def test_gather():
    check(
        make_graph([("float32", "v, s"), ("int32", "b, 1")], gathers), *(dict(sizes, v=6) for sizes in BS if sizes["s"])
    )


def test_dynamic_slices_clamp():
    graph = make_graph([("float32", "b, s"), ("float32", "1, 2"), ("int32", "")], updates)
    for seed in range(3):
        check(graph, dict(b=3, s=4), dict(b=1, s=2), seed=seed)


UNARY_FLOAT = [name for name, row in OPS.items() if row.kind == "elementwise" and row.operands == 1 and not row.attrs]


def test_every_elementwise_op_is_legal():
    def build(b: GraphBuilder, x: Value, y: Value, i: Value, j: Value) -> list[Value]:
        integers = ("not", "popcnt", "count_leading_zeros")
        z = b.op("complex", [x, y])
        of_type = {**dict.fromkeys(integers, i), "real": z, "imag": z}
        results = [b.op(name, [of_type.get(name, x)]) for name in UNARY_FLOAT]
        for name, row in OPS.items():
            if row.kind == "elementwise" and row.operands == 2 and not row.attrs:
                integer = name in ("and", "or", "xor") or name.startswith("shift")
                results.append(b.op(name, [i, j] if integer else [x, y]))
        return results + [b.op("compare", [x, y], direction=d) for d in ("EQ", "NE", "GE", "GT", "LE", "LT")]

    graph = make_graph([("float32", "b, s"), ("float32", "b, s"), ("int32", "b, s"), ("int32", "b, s")], build)
    check(graph, dict(b=2, s=3))


def test_operands_typed_differently_agree():
    """A dim known on one side only: `?` meets a constant."""
    graph = make_graph([("float32", "n"), ("float32", "4")], lambda b, x, y: b.op("add", [x, y]))
    assert graph.outputs[0].shape == shape("4")
    check(graph, dict(n=4))


def test_guards_are_shape_assertions():
    guard = Guard(raw_dim(1, 0), "==", Dim.parse("s + 1"), 'y "{0}", not {1}', (raw_dim(1, 0), Dim.parse("s + 1")))
    graph = make_graph([("float32", "s"), ("float32", "t")], lambda b, x, y: [x, y], guards=[guard])
    text = check(graph, dict(s=3, t=4))
    assert "@shape_assertion" in text
    with pytest.raises(Exception, match='y "3", not 4'):
        run_stablehlo(text, [np.ones(3, np.float32)] * 2)


def test_names_and_places_are_kept():
    graph = make_graph([("float32", "b, 2*s")], lambda b, x: b.op("tanh", [x], loc='model.py:3 "tanh"'), bindings={
        "b": raw_dim(0, 0), "s": raw_dim(0, 1) // 2})  # fmt: skip
    text = legal(graph)
    assert '{hlo_disc.shape = "(b, 2*s)"}' in text and 'loc("x0")' in text
    with mlir.context():
        module = mlir.ir.Module.parse(text)
        (*_, tanh, _) = module.body.operations[0].regions[0].blocks[0].operations
        assert tanh.location.name_str == 'model.py:3 "tanh"'


def test_each_size_is_computed_once():
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        one = scalar(b, 1)
        return [b.op("broadcast", [one], shape=shape(text), dims=()) for text in ("b, b*s", "b*s, b", "b, b*s")]

    text = legal(make_graph([("float32", "b, s")], build))
    assert text.count("get_dimension_size") == 2 and text.count("stablehlo.multiply") == 1
    assert text.count("stablehlo.concatenate") == 2 and text.count("stablehlo.reshape") == 2


def test_sizes_that_cannot_be_negative_divide_plainly():
    def sizes(*texts: str):
        return lambda b, x: [b.op("dim", expr=Dim.parse(text), dtype=I64) for text in texts]

    text = legal(make_graph([("float32", "s")], sizes("floordiv(s + 1, 2)", "mod(s, 8)")))
    assert "call @" not in text
    text = legal(make_graph([("float32", "s")], sizes("floordiv(s - 4, s + 1)", "mod(s - 5, s + 1)")))
    assert "call @floor_divide" in text and "call @remainder" in text


def test_ops_that_stablehlo_does_not_have_are_shown():
    less = make_region(ShapeFacts(), [(F32, ())] * 2, lambda b, xs: [b.op("compare", xs, direction="LT")])

    def build(b: GraphBuilder, x: Value) -> Value:
        size = b.op("dim", expr=Dim.parse("n"), dtype=I64)
        b.multi("define", [size], symbol="k", effect=True)
        first = b.op("sort_first", [x], dim=0, stable=True, count=1, first=Dim.parse("min(n, 3)"), body=less)
        base = b.op("constant", value=np.zeros((2, 2), np.float32))
        return b.op("place", [b.op("reshape", [base], shape=shape("4")), first], starts=shape("1"), steps=shape("1"))

    text = to_text(make_graph([("float32", "n")], build))
    assert text.splitlines() == [
        "inputs  %x0: float32[n]",
        "%0: int64[] = dim() {expr=n}",
        "define(%0) {symbol=k, effect=True}",
        "%1: float32[min(n, 3)] = sort_first(%x0) {dim=0, stable=True, count=1, first=min(n, 3)}",
        "    inputs  %2: float32[], %3: float32[]",
        "    %4: bool[] = compare(%2, %3) {direction=LT}",
        "    outputs %4",
        "%5: float32[2, 2] = constant() {value=[[0. 0.] [0. 0.]]}",
        "%6: float32[4] = reshape(%5)",
        "%7: float32[4] = place(%6, %1) {starts=(1,), steps=(1,)}",
        "outputs %7",
    ]


def test_no_inputs_and_no_outputs():
    legal(make_graph([], lambda b: []))
    check(make_graph([], lambda b: b.op("constant", value=np.eye(3, dtype=np.float32))), {})


DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]


@pytest.mark.parametrize("name", DTYPES)
def test_element_types(name):
    expected = {"bool": "i1", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert element_type(dtype) == expected.get(name, name.replace("uint", "ui").replace("int", "i"))
    assert element_type(np.dtype(ml_dtypes.float8_e4m3fn)) == "f8E4M3FN"


@settings(max_examples=examples(60, 500), deadline=None)
@given(st.data())
def test_constants_are_exact(data):
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES[:-1])))
    dims = data.draw(st.lists(st.integers(0, 5), max_size=3))
    raw = data.draw(st.binary(min_size=64, max_size=64)) * 16
    count = int(np.prod(dims))
    if dtype.kind == "b":
        array = np.frombuffer(raw, np.uint8, count).reshape(dims) > 127
    else:
        array = np.frombuffer(raw, dtype, count).reshape(dims)
    array = np.full_like(array, array.reshape(-1)[0]) if count and data.draw(st.booleans()) else array
    with mlir.context():
        text = f"{dense(array)} : tensor<{''.join(f'{d}x' for d in dims)}{element_type(dtype)}>"
        back = np.array(mlir.ir.DenseElementsAttr(mlir.ir.Attribute.parse(text))).reshape(dims)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    np.testing.assert_array_equal(back.view(unsigned), np.ascontiguousarray(array).reshape(dims).view(unsigned))


@pytest.mark.parametrize("value", [1.0, 0.1, -0.0, np.inf, -np.inf, np.nan, 3.0e38, 1e-40])
def test_special_floats(value):
    graph = make_graph([], lambda b: b.op("constant", value=np.array([value, 1], np.float32)))
    check(graph, {})
    bf16 = np.dtype(ml_dtypes.bfloat16)
    legal(make_graph([], lambda b: b.op("constant", value=np.array([value, 1]).astype(bf16))))


def read(text: str) -> Graph:
    with mlir.context():
        graph = read_module(mlir.ir.Module.parse(text))
    verify(graph)
    return graph


# An integer quotient of sizes is read as a size, for which a divisor of 0 counts as 1.
READ_BACK = tuple(name for name in ROWS if name not in ("divide", "remainder"))


@settings(max_examples=examples(15, 300), deadline=None)
@given(graphs(ops=READ_BACK), st.sampled_from((0, 1, 4)), st.sampled_from((0, 1, 3)))
def test_random_graphs_are_read_back(graph, b, s):
    """The graph read back from its text computes what the graph does: no attribute is lost.

    XLA, which can abort on random programs, runs them in processes of their own: `fuzz.py --xla`.
    """
    text = legal(graph)
    note(text)
    arrays = sample(graph, dict(b=b, s=s))
    for got, band in zip(evaluate(read(text), arrays), bands(graph, arrays), strict=True):
        assert got.dtype == band.want.dtype and not wrong(got, band)
