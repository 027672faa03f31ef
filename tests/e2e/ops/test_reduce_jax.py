"""Reductions as JAX writes them, and ops that are expanded at import, from one binary against `jax.jit` at any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs, commutes, monoid_kind, selects
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ShapeError, UnsupportedOpError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

NAMES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32",
}  # fmt: skip
MATRICES = [(1, 1), (3, 7), (7, 31), (5, 32), (2, 33), (31, 257), (257, 3), (70, 65)]
LONG = [(2, 70001), (70001, 2), (1, 131073), (600, 40)]
IMAGES = [(1, 5, 5, 1), (2, 9, 8, 3), (1, 7, 31, 33), (1, 4, 6, 70)]


def values(shape: Sequence[int], dtype: np.dtype, special: bool = False) -> np.ndarray:
    """Small numbers with many ties; among floats, with `special`, NaN and infinities."""
    rng = np.random.default_rng(sum(shape))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -5, 9, shape).astype(dtype)
    x = rng.integers(-9, 10, shape) / 4
    if special:
        x[rng.random(shape) < 0.02] = np.nan
        x[rng.random(shape) < 0.05] = np.inf
        x[rng.random(shape) < 0.05] = -np.inf
    return x.astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """Numbers of a type of which numpy knows all."""
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def of_types(shapes: Any, arrays: Any) -> Any:
    return jax.tree.map(lambda shape, x: x.astype(shape.dtype), shapes, arrays)


def check(
    fn: Callable[..., Any],
    dims: str,
    shapes: Sequence[tuple[int, ...]],
    dtype: str = "float32",
    special=False,
    numpy: Callable[[np.ndarray], Any] | None = None,
    **tol,
) -> None:
    """One binary at all shapes. Tolerances are in units of the largest value.

    numpy: what it computes of numbers that are wider, where XLA, which compiles for each shape, need not be asked.
    """
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with jax.enable_x64(dtype in ("int64", "float64")):
        executable = hlo_disc.compile(fn, f"{NAMES[dtype]}[{dims}]")
        expected = jax.jit(fn) if numpy is None else lambda x: of_types(jax.eval_shape(fn, x), numpy(wide(x)))
        for shape in shapes:
            x = values(shape, kind, special)
            ours, theirs = jax.tree.leaves(executable(x)), jax.tree.leaves(expected(x))
            for a, b in zip(ours, map(np.asarray, theirs), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                if b.dtype.kind in "biu":
                    np.testing.assert_array_equal(a, b, err_msg=str(shape))
                    continue
                a, b = a.astype(np.float64), b.astype(np.float64)
                largest = np.abs(b[np.isfinite(b)]).max(initial=1)
                np.testing.assert_allclose(a, b, rtol=0, atol=tol.get("tol", 1e-5) * largest, err_msg=str(shape))


@depth.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "float64"])
def test_argmax_takes_the_first_and_nan(dtype):
    shapes = MATRICES + (LONG if dtype == "float32" else [])
    check(lambda x: jnp.argmax(x, 1), "a, b", shapes, dtype, True, lambda x: x.argmax(1))
    fn = lambda x: (jnp.argmin(x, 0), jnp.argmax(x))  # noqa: E731
    check(fn, "a, b", shapes, dtype, True, lambda x: (x.argmin(0), x.argmax()))


def test_what_follows_a_long_reduction_may_know_other_sizes():
    def fn(x, y):
        return jnp.argmax(x) + y.shape[0], x.sum() * y.shape[0]

    ours = hlo_disc.compile(fn, "f32[s]", "f32[b]")
    for s, b in ((1, 0), (7, 3), (70001, 2)):
        x, y = values((s,), np.dtype(np.float32)), np.zeros(b, np.float32)
        for a, expected in zip(ours(x, y), fn(x, y), strict=True):
            np.testing.assert_allclose(a, expected, rtol=1e-5)


def test_argmax_of_a_softmax_is_one_kernel():
    executable = hlo_disc.compile(lambda x: jnp.argmax(jax.nn.softmax(x, -1), -1), "f32[a, b]")
    assert "\n1 launches" in executable.explain(full=True)
    x = np.random.default_rng(0).standard_normal((9, 77)).astype(np.float32)
    np.testing.assert_array_equal(executable(x), x.argmax(1))


def from_the_end(combined: np.ufunc, axis: int, x: np.ndarray) -> np.ndarray:
    return np.flip(combined.accumulate(np.flip(x, axis), axis), axis)


@depth.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint16"])
def test_cumulative(dtype):
    tol = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-13}.get(dtype, 3e-5)
    shapes = MATRICES + (LONG if dtype == "float32" else [])
    for axis in (0, 1):
        sums, most = partial(lax.cumsum, axis=axis), partial(lax.cummax, axis=axis, reverse=True)
        check(sums, "a, b", shapes, dtype, numpy=partial(np.cumsum, axis=axis), tol=tol)
        check(most, "a, b", shapes, dtype, numpy=partial(from_the_end, np.maximum, axis), tol=0)


def test_cumulative_regions():
    shapes = [*MATRICES, (1, 70001)]

    def twice(of: Any, x: Any) -> Any:
        return of.cumsum(of.exp(-of.cumsum(x * x, 1)), 1)[:, ::-1]

    fn = lambda x: (lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x, 0, reverse=True))  # noqa: E731
    logs = lambda x: (np.logaddexp.accumulate(x, 1), from_the_end(np.logaddexp, 0, x))  # noqa: E731
    check(fn, "a, b", shapes, numpy=logs, tol=2e-5)
    check(partial(twice, jnp), "a, b", shapes, numpy=partial(twice, np))
    check(jnp.cumsum, "a, b", shapes, numpy=np.cumsum)
    check(lambda x: lax.associative_scan(jnp.add, x, axis=1), "a, 37", [(1, 37), (5, 37)])


@pytest.mark.parametrize("dims", ["f32[2, 1, 2]", "f32[n, 1, n]", "f32[n, 1, m]"])
def test_a_prefix_sum_and_its_transpose(dims):
    """Square once the axis of size 1 is gone: then the outputs have one shape, but not one order."""

    def fn(x):
        sums = jnp.cumsum(x, 2) * 2
        return sums, sums.transpose(1, 2, 0) + 1

    ours, x = hlo_disc.compile(fn, dims), values((2, 1, 2), np.dtype(np.float32))
    for a, b in zip(ours(x), fn(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_long_sum_is_no_less_exact_than_in_xla():
    x = np.random.default_rng(0).random(300_000).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    ours = hlo_disc.compile(jnp.cumsum, "f32[n]")(x)
    theirs = np.asarray(jax.jit(jnp.cumsum)(x))
    assert np.abs(ours - exact).max() <= 2 * np.abs(theirs - exact).max()


def pool(kind: str, size, stride, padding, **more) -> Callable[[jax.Array], jax.Array]:
    def fn(x):
        if kind == "sum":
            return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, size, stride, padding, **more)
        low = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        return lax.reduce_window(x, np.array(low, x.dtype), lax.max, size, stride, padding, **more)

    return fn


RESNET = pool("max", (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
POOLS = {
    "resnet": RESNET,
    "same": pool("sum", (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
    "channels first": pool("max", (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))),
    "not padded": pool("sum", (1, 1, 1, 2), (1, 1, 1, 2), "VALID"),
    "cut": pool("max", (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0), (-1, 0), (0, -1), (0, 0))),
    "dilated": pool("sum", (1, 2, 2, 1), (1, 1, 2, 1), "SAME", window_dilation=(1, 2, 2, 1)),
    "spread": pool("sum", (1, 2, 2, 2), (1, 1, 2, 1), "SAME", base_dilation=(1, 2, 3, 1)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name):
    check(POOLS[name], "n, h, w, c", IMAGES)


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "uint8", "float16"])
def test_pooling_of_types(dtype):
    check(RESNET, "n, h, w, c", IMAGES, dtype)


@pytest.mark.parametrize("name", ["resnet", "same", "channels first", "not padded"])
def test_gradient_of_pooling(name):
    check(jax.grad(lambda x: (POOLS[name](x) ** 2).sum()), "n, h, w, c", IMAGES)


def test_a_window_over_everything_is_a_reduction():
    executable = hlo_disc.compile(pool("max", (1, 7, 7, 1), (1, 1, 1, 1), "VALID"), "f32[n, 7, 7, c]")
    assert "reduce_window" not in executable.explain(full=True)
    x = values((2, 7, 7, 5), np.dtype(np.float32))
    np.testing.assert_array_equal(executable(x), x.max((1, 2), keepdims=True))


def module(text: str, *dims: str):
    """A StableHLO module compiled, and its graph for the reference."""
    return hlo_disc.compile(text, dims=dims), read_module(load_module(text), dims=dims)


def test_batch_norm():
    text = """
    func.func @main(%x: tensor<?x4x?xf32>, %s: tensor<4xf32>, %o: tensor<4xf32>, %g: tensor<?x4x?xf32>)
        -> (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<4xf32>,
            tensor<4xf32>) {
      %t:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
        : (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>)
      %i = "stablehlo.batch_norm_inference"(%x, %s, %o, %t#1, %t#2) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
        : (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x?xf32>
      %d:3 = "stablehlo.batch_norm_grad"(%x, %s, %t#1, %t#2, %g) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
        : (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<?x4x?xf32>)
        -> (tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>)
      return %t#0, %t#1, %t#2, %i, %d#0, %d#1, %d#2 : tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>,
        tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<4xf32>, tensor<4xf32>
    }"""

    def normalised(x, scale, offset):
        mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
        y = (x - mean) / jnp.sqrt(var + 0.001) * scale[:, None] + offset[:, None]
        return y, mean[0, :, 0], var[0, :, 0]

    executable, _ = module(text, "(n, 4, w)", "4", "4", "(n, 4, w)")
    rng = np.random.default_rng(0)
    for n, w in ((1, 1), (3, 5), (2, 130)):
        x, grad = (rng.standard_normal((n, 4, w)).astype(np.float32) for _ in range(2))
        scale, offset = (rng.standard_normal(4).astype(np.float32) for _ in range(2))
        forward, back = jax.vjp(lambda *a: normalised(*a)[0], x, scale, offset)
        y, mean, var = normalised(x, scale, offset)
        expected = (y, mean, var, forward, *back(jnp.asarray(grad)))
        for ours, theirs in zip(executable(x, scale, offset, grad), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_map():
    text = """
    func.func @main(%x: tensor<?x?xi32>, %y: tensor<?x?xi32>, %c: tensor<i32>) -> tensor<?x?xi32> {
      %r = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %two = stablehlo.constant dense<2> : tensor<i32>
        %p = stablehlo.multiply %a, %two : tensor<i32>
        %q = stablehlo.add %p, %b : tensor<i32>
        %s = stablehlo.subtract %q, %c : tensor<i32>
        stablehlo.return %s : tensor<i32>
      }) : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi32>
      return %r : tensor<?x?xi32>
    }"""
    executable, graph = module(text, "(a, b)", "(a, b)", "")
    for shape in ((0, 3), (1, 1), (5, 33)):
        arrays = [values(shape, np.dtype(np.int32)), values(shape, np.dtype(np.int32)) + 3, np.array(4, np.int32)]
        np.testing.assert_array_equal(executable(*arrays), 2 * arrays[0] + arrays[1] - 4)
        np.testing.assert_array_equal(reference.evaluate(graph, arrays)[0], 2 * arrays[0] + arrays[1] - 4)


def test_a_sum_of_bf16_in_f32():
    text = """
    func.func @main(%x: tensor<?x8xbf16>) -> tensor<8xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<?x8xbf16>, tensor<f32>) -> tensor<8xf32>
      return %r : tensor<8xf32>
    }"""
    executable, _ = module(text, "(n, 8)")
    for n in (0, 1, 1000):
        x = values((n, 8), np.dtype(ml_dtypes.bfloat16))
        np.testing.assert_array_equal(executable(x), x.astype(np.float32).sum(0))


def bad(body: str, **dims: str) -> str:
    return f"""
    func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce_window"(%x, %z) <{{{body}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32> loc("pool.py":7:3)
      return %r : tensor<?x?xf32>
    }}"""


def test_a_window_that_cuts_more_than_there_is():
    text = bad("window_dimensions = array<i64: 1, 2>, padding = dense<[[0, 0], [-3, 0]]> : tensor<2x2xi64>")
    executable, _ = module(text, "(a, b)")
    assert executable(np.ones((2, 6), np.float32)).shape == (2, 2)
    with pytest.raises(ShapeError, match=r"reduce_window at pool.py:7:3.* padded to the size -1"):
        executable(np.ones((2, 2), np.float32))


def test_a_region_on_tensors_is_refused():
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %p = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
        %q = stablehlo.reduce(%p init: %b) applies stablehlo.add across dimensions = [0]
          : (tensor<1xf32>, tensor<f32>) -> tensor<f32>
        stablehlo.return %q : tensor<f32>
      }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32> loc("sum.py":3:1)
      return %r : tensor<f32>
    }"""
    with pytest.raises(UnsupportedOpError, match=r"stablehlo.reduce .*sum.py:3:1: its region must compute on scalars"):
        hlo_disc.compile(text)


def combiner(types: Sequence[str], build: Callable[..., Any]):
    n = len(types)
    kinds = [(np.dtype(getattr(ml_dtypes, t, t)), ()) for t in types]
    return make_region(ShapeFacts(), kinds * 2, lambda g, v: build(g, v[:n], v[n:]))


def test_what_is_known_of_regions():
    def named(name: str, dtype: str, **attrs):
        return combiner([dtype], lambda g, a, b: [g.op(name, [a[0], b[0]], **attrs)])

    assert monoid_kind(named("maximum", "float32")) == "max"
    assert monoid_kind(named("add", "bool")) == "or"
    assert monoid_kind(named("subtract", "float32")) is None

    def larger(g, a, b):
        return [g.op("select", [g.op("compare", [a[0], b[0]], direction="LT"), b[0], a[0]])]

    assert monoid_kind(combiner(["int16"], larger)) == "max"
    assert monoid_kind(combiner(["float32"], larger)) is None  # NaN

    def widened(g, a, b):
        wide = [g.op("convert", [v[0]], dtype=np.dtype(np.float32)) for v in (a, b)]
        return [g.op("convert", [g.op("add", wide)], dtype=a[0].dtype)]

    assert monoid_kind(combiner(["bfloat16"], widened)) == "add"
    assert commutes(named("add", "float32")) and not commutes(named("subtract", "int32"))
    assert not commutes(named("power", "float32"))
    assert commutes(combiner(["int16"], larger)) and selects(combiner(["int16"], larger))
    assert selects(combiner(["float32", "int32"], lambda g, a, b: b)) and not selects(named("add", "uint8"))
    g = GraphBuilder(ShapeFacts())

    def start(x: float, dtype: str):
        return [g.op("constant", value=np.array(x, dtype))]

    assert absorbs(named("add", "float32"), start(0, "float32")) and not absorbs(
        named("add", "int32"), start(1, "int32")
    )
    assert absorbs(named("maximum", "float32"), start(-np.inf, "float32"))
    assert not absorbs(named("maximum", "float32"), start(0, "float32"))
