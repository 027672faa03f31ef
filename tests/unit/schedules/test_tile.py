"""Dots through the whole compiler: layouts, element types, packed and unpacked operands, epilogues, views, few rows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import depth
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from depth import examples
from graphs.dhlo import make_graph, sample, shape
from hand_written.fence import called_with_fenced
from hand_written.kernel_runner import CPU, KIND, levels
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import stitched

import hlo_disc
from hlo_disc import pipeline
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.explain.text import plan_text
from hlo_disc.options import Options
from hlo_disc.stitch.schedules.dot.choices import FEW_COLUMNS

F32 = np.dtype(np.float32)
# m, k, n: 0, 1, primes, around the row steps (6, 4, 2, 1) and the panels (64, 24 columns), and where rows are many.
SIZES = [
    (1, 1, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0), (5, 7, 9), (2, 300, 31), (17, 33, 64), (7, 64, 65), (1, 40, 33),
    (4, 17, 24), (100, 23, 130), (1, 5, 1100),
]  # fmt: skip
BATCHES = [(1, 1, 1, 1, 1), (2, 3, 5, 7, 9), (0, 2, 3, 4, 5), (2, 3, 7, 16, 70), (2, 2, 40, 33, 65), (1, 2, 1, 20, 50)]


def dot(b: GraphBuilder, x: Value, y: Value, contract: Any, batch: Any = ((), ()), dtype: Any = None) -> Value:
    return b.op(
        "dot_general",
        [x, y],
        lhs_batch=batch[0],
        rhs_batch=batch[1],
        lhs_contract=contract[0],
        rhs_contract=contract[1],
        dtype=np.dtype(dtype or x.dtype),
        tf32=False,
    )


def product(
    left: str, right: str, contract: Any, batch: Any = ((), ()), dtype: Any = "float32", result: Any = None
) -> Graph:
    inputs = [(dtype, left), (dtype, right)]
    return make_graph(inputs, lambda b, x, y: dot(b, x, y, contract, batch, result))


def run(graph: Graph, sizes: Sequence[dict[str, int]], tolerance: float = 2e-6, level: str = "") -> None:
    calls = [sample(graph, size) for size in sizes]
    wanted = [reference.evaluate(graph, arrays) for arrays in calls]
    for features in [level] if level else depth.ends(levels()):
        executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{features}")))
        made = called_with_fenced(executable, calls)
        for size, found, expected in zip(sizes, made, wanted, strict=True):
            for x, y in zip([found] if len(expected) == 1 else found, expected, strict=True):
                x, y = np.asarray(x).astype(np.float64), y.astype(np.float64)
                assert x.shape == y.shape
                room = tolerance * max(np.abs(y).max(initial=0), 1) * max(size.get("k", 1), 16) ** 0.5
                np.testing.assert_allclose(x, y, rtol=0, atol=room, err_msg=f"{features} {size}")


MATRICES = [dict(zip("mkn", size, strict=True)) for size in SIZES]
STACKS = [dict(zip("bhmkn", size, strict=True)) for size in BATCHES]


@pytest.mark.parametrize("left, right", list(itertools.product((0, 1), (0, 1))))
def test_matrices(left: int, right: int) -> None:
    run(product("k, m" if left == 0 else "m, k", "k, n" if right == 0 else "n, k", ((left,), (right,))), MATRICES)


@pytest.mark.parametrize("left, right", list(itertools.product((0, 1), (0, 1))))
def test_two_lanes(left: int, right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lanes of f64 fill a register of 16 bytes."""
    device = Device(simd_bytes=16, registers=32)
    monkeypatch.setattr(type(CPU.generator("host")), "device", property(lambda self: device))
    graph = product(
        "k, m" if left == 0 else "m, k", "k, n" if right == 0 else "n, k", ((left,), (right,)), dtype="float64"
    )
    run(graph, MATRICES, 1e-14, level=levels()[0])


@depth.sampled(2)
@pytest.mark.parametrize(
    "left, right, contract, batch",
    [
        ("b, m, h, k", "b, n, h, k", ((3,), (3,)), ((0, 2), (0, 2))),
        ("b, h, m, k", "b, k, h, n", ((3,), (1,)), ((0, 1), (0, 2))),
        ("m, k, b", "k, n, b", ((1,), (0,)), ((2,), (2,))),
        ("b, m, k", "k, n", ((2,), (0,)), ((), ())),
        ("b, k, m", "k, n", ((1,), (0,)), ((), ())),
        ("b, h, m, k", "h, k, n", ((3,), (1,)), ((1,), (0,))),
        ("b, m, h, k", "h, k, n", ((2, 3), (0, 1)), ((), ())),
        ("b, h, m, k", "h, k, n", ((1, 3), (0, 1)), ((), ())),
        ("b, m, h, k", "n, k, h", ((2, 3), (2, 1)), ((), ())),
        ("m, k", "k, h, n", ((1,), (0,)), ((), ())),
        ("m, k", "h, k, n", ((1,), (1,)), ((), ())),
        ("b, m", "b, m", ((1,), (1,)), ((0,), (0,))),
        ("m, k", "k", ((1,), (0,)), ((), ())),
        ("k", "k, n", ((0,), (0,)), ((), ())),
        ("k", "k", ((0,), (0,)), ((), ())),
        ("m", "n", ((), ()), ((), ())),
        ("m, 1, k", "1, k, 1, n", ((2,), (1,)), ((), ())),
    ],
)
def test_layouts(left: str, right: str, contract: Any, batch: Any) -> None:
    run(product(left, right, contract, batch), STACKS)


@st.composite
def random_dots(draw: st.DrawFn) -> tuple[Graph, dict[str, int]]:
    """Up to two axes of each kind, in any order, some of them static."""
    kinds = {kind: draw(st.integers(0, 2)) for kind in ("batch", "left", "right", "inner")}
    names = {f"{kind}{i}": kind for kind, n in kinds.items() for i in range(n)}
    sizes = {name: draw(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 40])) for name in names}
    static = {name for name in names if draw(st.booleans())}
    sides = [draw(st.permutations([n for n, kind in names.items() if kind != other])) for other in ("right", "left")]
    texts = [", ".join(str(sizes[n]) if n in static else n for n in side) for side in sides]
    inner, batch = ([n for n, kind in names.items() if kind == wanted] for wanted in ("inner", "batch"))
    at = [[tuple(side.index(n) for n in chosen) for side in sides] for chosen in (inner, batch)]
    return product(*texts, at[0], at[1]), {n: size for n, size in sizes.items() if n not in static}


@settings(max_examples=examples(8, 200), deadline=None)
@given(random_dots())
def test_random_layouts(case: tuple[Graph, dict[str, int]]) -> None:
    graph, sizes = case
    run(graph, [sizes], level=levels()[-1])


@depth.sampled(2)
@pytest.mark.parametrize("right", ["20, 1", "20, 3", "20, 17", "20, 64", "20, 130", "20, 4, 16", "20, 0"])
@pytest.mark.parametrize("stored", [False, True])
def test_weights(right: str, stored: bool) -> None:
    """A static operand is packed, whether it is an argument or a constant."""
    if not stored:
        graph = product("m, 20", right, ((1,), (0,)))
    else:
        weight = np.random.default_rng(0).standard_normal([d.value for d in shape(right)]).astype(np.float32)
        graph = make_graph([("float32", "m, 20")], lambda b, x: dot(b, x, b.op("constant", value=weight), ((1,), (0,))))
    run(graph, [{"m": m} for m in (0, 1, 6, 13, 100)])


@depth.sampled(2)
@pytest.mark.parametrize(
    "left, right, contract, batch",
    [
        ("m, 20", "33, 20", ((1,), (1,)), ((), ())),
        ("b, m, 20", "4, 20", ((2,), (1,)), ((), ())),
        ("b, m, 4, 16", "4, 16, 50", ((2, 3), (0, 1)), ((), ())),
        ("4, m, 10", "4, 10, 30", ((2,), (1,)), ((0,), (0,))),
        ("m, 7", "3, 7, 20", ((1,), (1,)), ((), ())),
        ("m, 7", "5, 2, 7", ((1,), (2,)), ((), ())),
    ],
)
def test_layouts_of_weights(left: str, right: str, contract: Any, batch: Any) -> None:
    run(product(left, right, contract, batch), [{"b": 2, "m": m} for m in (0, 1, 5, 19)])


@depth.sampled(3)
@pytest.mark.parametrize(
    "dtype, result, tolerance",
    [
        ("float64", None, 1e-14),
        ("float16", None, 1e-3),
        (ml_dtypes.bfloat16, None, 8e-3),
        ("float16", "float32", 2e-6),
        (ml_dtypes.bfloat16, "float32", 2e-6),
        ("int32", None, 0),
        ("int64", None, 0),
        ("int8", "int32", 0),
        ("int8", None, 0),
        ("uint8", None, 0),
        ("int16", None, 0),
        ("int8", "int16", 0),
        ("int64", "int32", 0),
        ("int32", "float32", 0),
        ("uint8", "uint32", 0),
        (ml_dtypes.int4, "int32", 0),
        (ml_dtypes.uint4, None, 0),
        ("bool", "bool", 0),
        ("bool", "int32", 0),
        ("float32", "float64", 1e-14),
        ("float64", "float32", 2e-7),
        (ml_dtypes.float8_e4m3fn, "float32", 2e-6),
        (ml_dtypes.float8_e5m2, None, 0.25),
    ],
)
def test_element_types(dtype: Any, result: Any, tolerance: float) -> None:
    some = MATRICES[:9]
    run(product("m, k", "k, n", ((1,), (0,)), dtype=np.dtype(dtype), result=result), some, tolerance)
    run(product("m, k", "n, k", ((1,), (1,)), dtype=np.dtype(dtype), result=result), some, tolerance)


def test_two_element_types() -> None:
    for left, right, result in (("uint8", "int8", "int32"), (ml_dtypes.bfloat16, "float32", "float32")):
        inputs = [(np.dtype(left), "m, k"), (np.dtype(right), "k, n")]
        run(make_graph(inputs, lambda b, x, y, r=result: dot(b, x, y, ((1,), (0,)), dtype=r)), MATRICES[:9])


def test_complex_has_no_schedule() -> None:
    with pytest.raises(UnsupportedOpError, match="complex"):
        stitched(product("m, k", "k, n", ((1,), (0,)), dtype="complex64"), Device(32, 16))


# Epilogues and views.


def spread(b: GraphBuilder, x: Value, like: Value, dims: tuple[int, ...]) -> Value:
    return b.op("broadcast", [x], shape=like.shape, dims=dims)


def bias_silu_residual(b: GraphBuilder, x: Value, y: Value, bias: Value, residual: Value) -> Value:
    z = dot(b, x, y, ((2,), (0,)))
    z = b.op("add", [z, spread(b, bias, z, (2,))])
    z = b.op("multiply", [z, b.op("logistic", [z])])
    return b.op("add", [z, residual])


def row_scale_and_compare(b: GraphBuilder, x: Value, y: Value, bias: Value, residual: Value) -> Value:
    z = dot(b, x, y, ((2,), (0,)))
    limit = b.op("broadcast", [b.op("constant", value=np.array(0.3, np.float32))], shape=z.shape, dims=())
    z = b.op("multiply", [z, spread(b, b.op("reduce", [residual, limit_of(b)], dims=(2,), kind="add"), z, (0, 1))])
    return b.op("convert", [b.op("compare", [z, limit], direction="GT")], dtype=F32)


def limit_of(b: GraphBuilder) -> Value:
    return b.op("constant", value=np.array(0, np.float32))


def position_in_epilogue(b: GraphBuilder, x: Value, y: Value, bias: Value, residual: Value) -> Value:
    z = dot(b, x, y, ((2,), (0,)))
    row = b.op("iota", shape=z.shape, dim=1, dtype=np.dtype(np.int32))
    column = b.op("iota", shape=z.shape, dim=2, dtype=np.dtype(np.int32))
    return b.op("select", [b.op("compare", [row, column], direction="GE"), z, residual])


def halves(b: GraphBuilder, x: Value, y: Value, bias: Value, residual: Value) -> Value:
    z = dot(b, x, y, ((2,), (0,)))
    return b.op("convert", [b.op("convert", [z], dtype=np.dtype(np.float16))], dtype=np.dtype(np.float64))


@pytest.mark.parametrize("build", [bias_silu_residual, row_scale_and_compare, position_in_epilogue, halves])
def test_epilogues(build: Callable[..., Value]) -> None:
    inputs = [("float32", "b, m, k"), ("float32", "k, n"), ("float32", "n"), ("float32", "b, m, n")]
    run(make_graph(inputs, build), STACKS, 1e-3 if build is halves else 2e-6)


def heads_out(b: GraphBuilder, x: Value, y: Value) -> Value:
    """Views on both operands, and a transpose after the dot that elementwise ops follow."""
    left = b.op("transpose", [x], perm=(0, 2, 1, 3))
    right = b.op("transpose", [y], perm=(0, 2, 3, 1))
    z = b.op("transpose", [dot(b, left, right, ((3,), (2,)), ((0, 1), (0, 1)))], perm=(0, 2, 1, 3))
    return b.op("tanh", [z])


def column_out(b: GraphBuilder, x: Value, y: Value) -> Value:
    z = dot(b, x, y, ((3,), (3,)), ((0, 2), (0, 2)))
    return b.op("transpose", [z], perm=(3, 0, 1, 2))


def two_readers(b: GraphBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return a dot that reads through a view, and the view, which another user wants."""
    left = b.op("transpose", [x], perm=(0, 2, 1, 3))
    return dot(b, left, y, ((3,), (3,)), ((0, 1), (0, 2))), left


@pytest.mark.parametrize("build", [heads_out, column_out, two_readers])
def test_views(build: Callable[..., Any]) -> None:
    run(make_graph([("float32", "b, m, h, k"), ("float32", "b, n, h, k")], build), STACKS)


def launches(graph: Graph) -> int:
    return len([line for line in plan_text(stitched(graph, Device(64, 32)).account).split("\n") if " -> " in line])


def test_views_and_epilogues_join_the_kernel() -> None:
    assert launches(make_graph([("float32", "b, m, h, k"), ("float32", "b, n, h, k")], heads_out)) == 1
    assert launches(make_graph([("float32", "b, m, h, k"), ("float32", "b, n, h, k")], two_readers)) == 2
    inputs = [("float32", "b, m, k"), ("float32", "k, n"), ("float32", "n"), ("float32", "b, m, n")]
    assert launches(make_graph(inputs, bias_silu_residual)) == 1


def slices_and_reshapes(b: GraphBuilder, x: Value, w: Value) -> Value:
    heads = b.op("transpose", [b.op("reshape", [x], shape=shape("b, m, 4, 10"))], perm=(0, 2, 1, 3))
    left = b.op("slice", [heads], start=shape("0, 1, 0, 0"), limit=shape("b, 3, m, 10"), stride=(1, 1, 1, 1))
    right = b.op("reshape", [w], shape=shape("4, 10, 60"))
    right = b.op("slice", [right], start=shape("1, 0, 10"), limit=shape("3, 10, 47"), stride=(1, 1, 1))
    return dot(b, left, right, ((1, 3), (0, 1)))


def spread_operand(b: GraphBuilder, x: Value, w: Value) -> Value:
    """Multiply a batch by one matrix for every element, and by an operand that is one number."""
    many = b.op("broadcast", [w], shape=(x.shape[0], *w.shape), dims=(1, 2))
    z = dot(b, x, many, ((2,), (1,)), ((0,), (0,)))
    ones = b.op("broadcast", [b.op("constant", value=np.array(1, np.float32))], shape=(Dim.const(60),), dims=())
    return dot(b, z, ones, ((2,), (0,)))


def strided_slices(b: GraphBuilder, x: Value, w: Value) -> Value:
    left = b.op("slice", [x], start=shape("0, 0, 1"), limit=shape("b, m, 40"), stride=(1, 1, 2))
    right = b.op("slice", [w], start=shape("1, 2"), limit=shape("40, 60"), stride=(2, 3))
    return dot(b, left, right, ((2,), (0,)))


@pytest.mark.parametrize("build", [slices_and_reshapes, strided_slices, spread_operand])
def test_operands_read_through_views(build: Callable[..., Value]) -> None:
    graph = make_graph([("float32", "b, m, 40"), ("float32", "40, 60")], build)
    run(graph, [{"b": b, "m": m} for b, m in ((0, 3), (1, 1), (2, 7), (3, 40))], 1e-5)


def test_an_operand_that_is_spread_when_the_call_says_so() -> None:
    """A size may be 1, or that of the result: no stride is right for both."""

    def build(b: GraphBuilder, x: Value, w: Value, y: Value) -> Value:
        many = b.op("broadcast", [x], shape=shape("m, 40"), dims=(0, 1))
        return b.op("add", [dot(b, many, w, ((1,), (0,))), y])

    graph = make_graph([("float32", "p, 40"), ("float32", "40, 60"), ("float32", "m, 60")], build)
    run(graph, [{"p": p, "m": m} for p, m in ((1, 0), (0, 0), (1, 1), (1, 9), (9, 9))], 1e-5)


def test_long_sums_are_accurate() -> None:
    """Over K = 3072 the error against float64 stays below that of plain f32 summation by far."""
    graph = product("m, k", "k, n", ((1,), (0,)))
    executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{levels()[-1]}")))
    rng = np.random.default_rng(0)
    x, y = (rng.random(s, np.float32) for s in ((9, 3072), (3072, 70)))
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert np.abs(executable(x, y) / exact - 1).max() < 2e-6


def test_equal_dots_share_their_kernels() -> None:
    def layers(b: GraphBuilder, x: Value, *weights: Value) -> Value:
        for w in weights:
            x = b.op("tanh", [dot(b, x, w, ((1,), (0,)))])
        return x

    few, many = (
        str(
            stitched(
                make_graph([("float32", "m, 64")] + [("float32", "64, 64")] * n, layers), Device(64, 32)
            ).code.module
        )
        for n in (1, 12)
    )
    assert few.count("gpu.func") == many.count("gpu.func")


def test_deep_sums_in_blocks() -> None:
    """K is copied block by block: fast memory does not grow with it."""
    graph = product("k, m", "k, n", ((0,), (0,)))
    run(graph, [{"m": m, "k": k, "n": n} for m, k, n in ((8, 5000, 8), (130, 2049, 70), (400, 2048, 3), (1, 4097, 64))])
    nested = product("m, h, k", "h, n, k", ((1, 2), (0, 2)))
    run(nested, [{"m": m, "h": h, "k": k, "n": n} for m, h, k, n in ((5, 3, 2100, 9), (100, 0, 7, 3), (100, 5, 0, 70))])
    executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{levels()[-1]}", threads=1)))
    assert executable.memory(m=8, k=10**7, n=8).temporary < 2 << 20


# Around the block of K, the rows that are brought together, the rows of a block, and where blocks share K.
LONG = [
    (1, 257, 5), (3, 255, 70), (47, 256, 64), (48, 300, 1), (49, 513, 130), (385, 300, 66), (770, 31, 3),
    (5, 8191, 7), (5, 8192, 7), (64, 8193, 65), (1, 20000, 1), (2, 9000, 300), (300, 8200, 300), (3, 9000, 0),
    (0, 9000, 3),
]  # fmt: skip


@depth.sampled(3)
@pytest.mark.parametrize("left, right", list(itertools.product((0, 1), (0, 1))))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_long_sums(left: int, right: int, dtype: str) -> None:
    graph = product(
        "k, m" if left == 0 else "m, k", "k, n" if right == 0 else "n, k", ((left,), (right,)), dtype=dtype,
        result="float32" if dtype == "bfloat16" else dtype,
    )  # fmt: skip
    level = "" if dtype == "float32" else levels()[-1]
    run(graph, [dict(zip("mkn", size, strict=True)) for size in LONG], level=level)


def test_long_sums_with_an_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
        sums = dot(b, x, y, ((1,), (1,)), ((0,), (0,)))
        shifted = b.op("add", [sums, b.op("broadcast", [bias], shape=sums.shape, dims=(2,))])
        return b.op("tanh", [b.op("multiply", [shifted, b.op("broadcast", [bias], shape=sums.shape, dims=(2,))])])

    graph = make_graph([("float32", "b, k, m"), ("float32", "b, k, n"), ("float32", "n")], build)
    sizes = [(1, 3, 8193, 5), (3, 4, 9000, 6), (2, 70, 8200, 65), (2, 49, 257, 65), (0, 3, 9000, 4), (2, 1, 0, 3)]
    run(graph, [dict(zip("bmkn", size, strict=True)) for size in sizes], tolerance=2e-5)


# Around the most columns that become rows, the panels, the block of K, and where blocks share K.
FEW = [
    (m, k, n)
    for n in (0, 1, 2, 6, 7, FEW_COLUMNS - 1, FEW_COLUMNS, FEW_COLUMNS + 1)
    for m, k in ((1, 3), (63, 40), (65, 0), (130, 2049), (64, 8193), (5000, 5))
]


@pytest.mark.parametrize("right", ["k, n", "n, k"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_columns_of_a_transposed_operand(right: str, dtype: str) -> None:
    graph = product("k, m", right, ((0,), (int(right == "n, k"),)), dtype=dtype, result="float32")
    run(graph, [dict(zip("mkn", size, strict=True)) for size in FEW], level=levels()[-1])


def test_few_columns_of_a_transposed_operand_with_an_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
        sums = dot(b, x, y, ((1,), (1,)), ((0,), (0,)))
        shifted = b.op("add", [sums, b.op("broadcast", [bias], shape=sums.shape, dims=(1,))])
        return b.op("transpose", [b.op("tanh", [shifted])], perm=(0, 2, 1))

    graph = make_graph([("float32", "b, k, m"), ("float32", "b, k, n"), ("float32", "m")], build)
    run(graph, [{"b": 2, "m": m, "k": k, "n": n} for m, k, n in FEW if k < 2049], tolerance=2e-5)


@pytest.mark.parametrize("n", [3, FEW_COLUMNS, FEW_COLUMNS + 1, "n"])
def test_the_form_for_few_columns(n: int | str) -> None:
    forms = plan_text(pipeline.compile(product("k, m", f"k, {n}", ((0,), (0,))), Options(target="cpu")).account)
    assert ("dot_across" in forms) == (n != FEW_COLUMNS + 1)
    assert ("dot_open" in forms) == (n in (FEW_COLUMNS + 1, "n"))


def test_what_lies_behind_the_last_column_costs_nothing() -> None:
    fill, denormal = hlo_disc.compile(lambda x: -x, "f32[n]"), np.full(128 * 16, 1e-42, np.float32)
    x, seconds = np.ones((64, 128), np.float32), {}
    for columns in (10, 16):
        f, w = hlo_disc.jit(lambda w, x: x @ w.T), jnp.ones((columns, 128))
        f(w, x)
        blocks = [fill(denormal) for _ in range(50)]
        del blocks  # of which one becomes the panel
        times = []
        for _ in range(60):
            start = time.thread_time()
            f(w, x)
            times.append(time.thread_time() - start)
        seconds[columns] = min(times)
    assert seconds[10] < 4 * seconds[16]  # 30 times where nothing clears the panel
