"""Attention in one kernel: layouts, masks, normalisations, few queries; and what must stay two dots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs.dhlo import make_graph, sample
from hand_written.fence import called_with_fenced
from hand_written.kernel_runner import KIND, levels
from stages import stitched
from test_tile import dot, launches, run, spread

import hlo_disc
from hlo_disc import jit, pipeline
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.executable import Executable
from hlo_disc.explain.text import plan_text
from hlo_disc.options import Options

# batch, heads, queries, keys, head size: 0, 1, primes, around the tiles, and rows enough for several blocks.
SIZES = [
    dict(zip("bhmnd", size, strict=True))
    for size in (
        (1, 1, 1, 1, 1), (2, 3, 5, 7, 9), (0, 2, 3, 4, 5), (2, 3, 0, 16, 70), (2, 2, 5, 0, 3), (2, 2, 40, 33, 65),
        (1, 2, 1, 20, 50), (1, 2, 3, 200, 64), (1, 3, 130, 65, 64),
    )
]  # fmt: skip
LAYOUTS = {
    "b, s, h, d": (((3,), (3,)), ((0, 2), (0, 2)), ((3,), (1,)), ((0, 1), (0, 2))),
    "b, h, s, d": (((3,), (3,)), ((0, 1), (0, 1)), ((3,), (2,)), ((0, 1), (0, 1))),
    "b, h, d, s": (((2,), (2,)), ((0, 1), (0, 1)), ((3,), (3,)), ((0, 1), (0, 1))),
}


def constant(b: GraphBuilder, x: float, like: Value) -> Value:
    return spread(b, b.op("constant", value=np.array(x, like.dtype)), like, ())


def softmax(b: GraphBuilder, x: Value) -> Value:
    """Return a softmax as JAX spells it: the maximum, once more with -inf, then exp, sum and quotient."""
    low, zero = (b.op("constant", value=np.array(v, x.dtype)) for v in (-np.inf, 0))
    dims = tuple(range(x.rank - 1))
    top = b.op("reduce", [x, low], dims=(x.rank - 1,), kind="max")
    top = b.op("maximum", [spread(b, low, top, ()), top])
    e = b.op("exponential", [b.op("subtract", [x, spread(b, top, x, dims)])])
    total = b.op("reduce", [e, zero], dims=(x.rank - 1,), kind="add")
    return b.op("divide", [e, spread(b, total, x, dims)])


def scaled(b: GraphBuilder, scores: Value, mask: Value | None) -> Value:
    return b.op("multiply", [scores, constant(b, 0.25, scores)])


def biased(b: GraphBuilder, scores: Value, mask: Value | None) -> Value:
    return b.op("add", [scaled(b, scores, mask), spread(b, mask, scores, (0, 3))])


def causal(b: GraphBuilder, scores: Value, mask: Value | None) -> Value:
    row, column = (b.op("iota", shape=scores.shape, dim=d, dtype=np.dtype(np.int32)) for d in (2, 3))
    seen = b.op("compare", [row, column], direction="GE")
    return b.op("select", [seen, scores, constant(b, -1e9, scores)])


def attention(
    layout: str,
    change: Callable[..., Value] = scaled,
    weights: Callable[..., Value] = softmax,
    dtype: Any = "float32",
    swapped: bool = False,
    static: dict[str, str] | None = None,
) -> Graph:
    first, first_batch, second, second_batch = LAYOUTS[layout]
    texts = [layout.replace("s", s) for s in "mnn"]
    for name, size in (static or {}).items():
        texts = [", ".join(size if d == name else d for d in text.split(", ")) for text in texts]

    def build(b: GraphBuilder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        p = weights(b, change(b, dot(b, q, k, first, first_batch), mask))
        if swapped:
            out = dot(b, v, p, second[::-1], second_batch[::-1])
            return b.op("transpose", [out], perm=(0, 3, 1, 2))
        return b.op("transpose", [dot(b, p, v, second, second_batch)], perm=(0, 2, 1, 3))

    return make_graph([(dtype, t) for t in texts] + [(dtype, "b, n")], build)


def kernels(graph: Graph) -> str:
    return plan_text(stitched(graph, Device(64, 32)).account)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("swapped", [False, True])
def test_layouts(layout: str, swapped: bool) -> None:
    graph = attention(layout, swapped=swapped)
    assert launches(graph) == 1 and "attention" in kernels(graph)
    run(graph, SIZES, 5e-6)


@pytest.mark.parametrize("change", [biased, causal])
def test_masks(change: Callable[..., Value]) -> None:
    graph = attention("b, s, h, d", change)
    assert launches(graph) == 1
    run(graph, SIZES, 5e-6)


@pytest.mark.parametrize(
    "static", [{"d": "64"}, {"d": "80", "h": "4"}, {"m": "1"}, {"m": "40", "n": "33"}, {"d": "1"}, {"n": "0"}]
)
def test_static_sizes(static: dict[str, str]) -> None:
    run(attention("b, s, h, d", static=static), SIZES, 5e-6)


def test_one_query_needs_one_form() -> None:
    assert "attention_few" in kernels(attention("b, s, h, d", static={"m": "1"}))
    both = attention("b, s, h, d")
    assert "attention_few if m <=" in kernels(both)
    self_attention = attention("b, s, h, d", static={"m": "40", "n": "40"})
    assert "attention_few" not in kernels(self_attention)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-14), ("float16", 2e-3)])
def test_element_types(dtype: str, tolerance: float) -> None:
    run(attention("b, s, h, d", dtype=dtype), SIZES[:6], tolerance)


@depth.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", [biased, causal])
def test_bf16(layout: str, change: Callable[..., Value]) -> None:
    """Each op rounds, as the reference does: integers have exact scores. The host may have registers of matrices."""
    graph = attention(layout, change, dtype="bfloat16")
    registers = "tile.dot" in str(stitched(graph, Device(64, 32, pair_dot=True, tile_dot=True)).kernels)
    assert registers == (layout != "b, h, d, s")  # queries are read as they lie, along K
    around_tiles = [dict(b=2, h=1, m=m, n=n, d=64) for m, n in ((31, 32), (32, 31), (33, 64), (64, 65))]
    sizes, calls = [*SIZES, *around_tiles], []
    for size in sizes:
        rng = np.random.default_rng(0)
        calls.append([rng.integers(-6, 7, x.shape).astype(x.dtype) for x in sample(graph, size)])
    wanted = [reference.evaluate(graph, arrays)[0].astype(np.float64) for arrays in calls]
    for level in levels():
        executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{level}")))
        made = called_with_fenced(executable.native, calls)
        for size, want, (found,) in zip(sizes, wanted, made, strict=True):
            found = found.astype(np.float64)
            # Sums of weights that are made in another order may be rounded to the next number.
            assert np.count_nonzero(found != want) <= 0.01 * want.size, f"{level} {size}"
            room = 1e-2 * np.abs(want).max(initial=0)
            np.testing.assert_allclose(found, want, rtol=0, atol=room, err_msg=f"{level} {size}")


def no_quotient(b: GraphBuilder, x: Value) -> Value:
    """Nothing can be left to the epilogue: the weights themselves must be computed."""
    zero = b.op("constant", value=np.array(0, x.dtype))
    total = b.op("reduce", [b.op("abs", [x]), zero], dims=(3,), kind="add")
    return b.op("tanh", [b.op("add", [x, spread(b, total, x, (0, 1, 2))])])


def scores_again(b: GraphBuilder, x: Value) -> Value:
    """The scores are needed after a value made of them has been reduced."""
    zero = b.op("constant", value=np.array(0, x.dtype))
    squares = b.op("reduce", [b.op("multiply", [x, x]), zero], dims=(3,), kind="add")
    scale = b.op("rsqrt", [b.op("add", [squares, constant(b, 1e-6, squares)])])
    return b.op("multiply", [x, spread(b, scale, x, (0, 1, 2))])


def two_sums_at_once(b: GraphBuilder, x: Value) -> Value:
    zero = b.op("constant", value=np.array(0, x.dtype))
    sums = [b.op("reduce", [b.op(name, [x]), zero], dims=(3,), kind="add") for name in ("abs", "cosine")]
    total = b.op("add", [sums[0], b.op("abs", [sums[1]])])
    total = b.op("add", [total, constant(b, 1, total)])
    return b.op("divide", [x, spread(b, total, x, (0, 1, 2))])


@pytest.mark.parametrize("weights", [no_quotient, scores_again, two_sums_at_once])
def test_other_weights(weights: Callable[..., Value]) -> None:
    graph = attention("b, s, h, d", weights=weights)
    assert launches(graph) == 1 and "attention" in kernels(graph)
    run(graph, SIZES[:7], 2e-5)


def test_scores_that_others_want_stay_in_memory() -> None:
    def build(b: GraphBuilder, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
        p = softmax(b, dot(b, q, k, ((3,), (3,)), ((0, 1), (0, 1))))
        return dot(b, p, v, ((3,), (2,)), ((0, 1), (0, 1))), p

    graph = make_graph([("float32", "b, h, m, d"), ("float32", "b, h, n, d"), ("float32", "b, h, n, d")], build)
    assert "attention" not in kernels(graph)
    run(graph, SIZES[:4], 5e-6)


def test_other_patterns_are_no_attention() -> None:
    def softmax_over_queries(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
        scores = dot(b, q, k, ((3,), (3,)), ((0, 1), (0, 1)))
        turned = b.op("transpose", [scores], perm=(0, 1, 3, 2))
        p = b.op("transpose", [softmax(b, turned)], perm=(0, 1, 3, 2))
        return dot(b, p, v, ((3,), (2,)), ((0, 1), (0, 1)))

    def no_reduction(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
        p = b.op("tanh", [dot(b, q, k, ((3,), (3,)), ((0, 1), (0, 1)))])
        return dot(b, p, v, ((3,), (2,)), ((0, 1), (0, 1)))

    inputs = [("float32", "b, h, m, d"), ("float32", "b, h, n, d"), ("float32", "b, h, n, d")]
    for build in (softmax_over_queries, no_reduction):
        graph = make_graph(inputs, build)
        assert "attention" not in kernels(graph)
        run(graph, SIZES[:4], 5e-6)


def test_masked_rows_are_as_in_xla() -> None:
    """A row without a key is NaN, and so is one with a NaN. Infinite and absent scores touch no other row."""

    def fn(q, k, v, mask):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
        scores = jnp.where(mask[:, None, None, :], scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)

    graph = attention("b, s, h, d")
    q, k, v, _ = sample(graph, dict(b=3, h=2, m=9, n=21, d=16))
    mask = np.random.default_rng(0).random((3, 21)) < 0.6
    mask[1] = False
    q[2, 4] = np.nan
    names = {"q": "b, m, h, d", "k": "b, n, h, d", "v": "b, n, h, d", "mask": "b, n"}
    for features in levels():
        compiled = jit(fn, dims={name: f"({text})" for name, text in names.items()}, target=f"{KIND}:{features}")
        found, expected = np.asarray(compiled(q, k, v, mask)), np.asarray(jax.jit(fn)(q, k, v, mask))
        assert "attention" in compiled.explain(full=True)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_grouped_queries() -> None:
    """Several query heads share the keys and values of one."""

    def fn(q, k, v):
        scores = jnp.einsum("bqgrd,bkgd->bgrqk", q, k)
        return jnp.einsum("bgrqk,bkgd->bqgrd", jax.nn.softmax(scores, axis=-1), v)

    compiled = jit(fn, dims={"q": "(b, m, g, r, d)", "k": "(b, n, g, d)", "v": "(b, n, g, d)"})
    rng = np.random.default_rng(1)
    for b, m, n, g, r, d in ((2, 7, 9, 2, 3, 16), (1, 1, 40, 1, 4, 64), (1, 70, 65, 2, 1, 32)):
        q, k, v = (rng.standard_normal(s, np.float32) for s in ((b, m, g, r, d), (b, n, g, d), (b, n, g, d)))
        np.testing.assert_allclose(np.asarray(compiled(q, k, v)), np.asarray(fn(q, k, v)), rtol=2e-5, atol=2e-6)
    assert "attention" in compiled.explain(full=True)


def test_weights_around_a_norm_are_no_attention():
    """A dot, a norm and a dot look like attention, but the weights are packed once, which is worth more."""

    def head(x, up, down):
        hidden = x @ up
        return (hidden / jnp.square(hidden).sum(-1, keepdims=True)) @ down

    f = hlo_disc.jit(head, dims={"x": "(n, _)"})
    x, up, down = (
        np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((5, 16), (16, 64), (64, 40))
    )
    np.testing.assert_allclose(f(x, up, down), jax.jit(head)(x, up, down), rtol=1e-4)
    plan = f.explain(full=True).partition("\nprogram")[2]
    assert plan and "attention" not in plan and "2 packed weights" in plan
