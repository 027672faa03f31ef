"""Sorts by any comparator, and the first elements of sorts, at many sizes from one binary, against numpy and XLA."""

from __future__ import annotations

from collections.abc import Callable

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each, run_stablehlo
from graphs.dhlo import make_graph
from hand_written.fence import fenced
from hand_written.kernel_runner import KIND, levels
from jax import lax

import hlo_disc
from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Region
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import HloDiscError
from hlo_disc.executable import Executable
from hlo_disc.options import Options
from hlo_disc.stitch.schedules.sort.comparator import comparator

# Around the columns and runs that are sorted in fast memory, and the tiles of merges.
LENGTHS = (0, 1, 2, 7, 8, 9, 127, 128, 131, 1023, 1024, 1025, 4097, 20011)
DTYPES = tuple(map(np.dtype, ("float32", "float64", "float16", ml_dtypes.bfloat16, "int32", "int8", "uint64", "bool")))


def awkward(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return values of which some are equal, and some are ordered by floats in a way of their own."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iub":
        x = rng.integers(0, 2 if dtype.kind == "b" else 50, shape)
        return np.where(rng.random(shape) < 0.1, 0 if dtype.kind == "b" else np.iinfo(dtype).max, x).astype(dtype)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], shape)
    return np.where(rng.random(shape) < 0.2, special, np.round(rng.standard_normal(shape) * 4, 1)).astype(dtype)


def same(ours, theirs) -> None:
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, map(np.asarray, theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "uint64": "u64", "bool": "bool"}


def spec(dtype: np.dtype, shape: str) -> str:
    return f"{NAMES.get(dtype.name) or dtype.name.replace('int', 'i')}[{shape}]"


@depth.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort_and_argsort(dtype):
    fn = lambda x: (jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True))  # noqa: E731
    with jax.enable_x64(True):
        compiled = hlo_disc.compile(fn, spec(dtype, "n"))
        for n in depth.some(LENGTHS, DTYPES.index(dtype), 2):
            x = awkward(dtype, (n,), n)
            same(compiled(x), jax.jit(fn)(x))


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis(axis, level):
    fn = lambda x, y: lax.sort((x, y), dimension=axis, num_keys=1)  # noqa: E731
    compiled = hlo_disc.compile(fn, "i32[a, b, c]", "f32[a, b, c]", target=f"{KIND}:{level}")
    for shape in ((0, 3, 2), (1, 1, 1), (5, 7, 3), (1200, 2, 3), (2, 1300, 2), (3, 1, 5000)):
        x, y = awkward(np.dtype(np.int32), shape), awkward(np.dtype(np.float32), shape, 1)
        same(compiled(x, y), fn(x, y))


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_several_operands(keys):
    """Operands have 1, 4, 8 and 2 bytes. More keys than one order equal elements."""
    dtypes = tuple(map(np.dtype, ("int8", "float32", "float64", "float16")))
    with jax.enable_x64(True):
        fn = lambda *xs: lax.sort(xs, num_keys=keys)  # noqa: E731
        compiled = hlo_disc.compile(fn, *(spec(t, "n") for t in dtypes))
        for n in (0, 1, 100, 1024, 5000):
            xs = [awkward(t, (n,), i) for i, t in enumerate(dtypes)]
            same(compiled(*xs), jax.jit(fn)(*xs))


def different(x: jax.Array) -> jax.Array:
    """Make equal elements different, because XLA takes any of them."""
    return x + jnp.arange(x.shape[0]) / 8192


PROGRAMS: dict[str, Callable] = {
    "lexsort": lambda x: jnp.lexsort((x, x % 3)),
    "ranks": lambda x: jnp.argsort(jnp.argsort(x)),
    "unique": lambda x: jnp.unique(x, size=20, fill_value=-1, return_inverse=True, return_counts=True),
    "median": lambda x: (jnp.median(x), jnp.quantile(x, 0.3), jnp.percentile(x, jnp.array([10.0, 50.0]))),
    "partition": lambda x: jnp.partition(x, 3)[3],
    "of computed keys": lambda x: jnp.sort(jnp.sin(x) * 3)[::-1],
    "read elsewhere": lambda x: (jnp.sort(x * 2) + x, x * 2),
    "sorted sums": lambda x: jnp.cumsum(jnp.sort(x)).sum(),
    "rows of a sort": lambda x: jnp.sort(jnp.outer(x[:7], x), axis=1).sum(0),
    "smallest": lambda x: jnp.sort(x)[:3],
    "smallest and where": lambda x: tuple(y[:2] for y in lax.sort((x, jnp.arange(x.shape[0])), num_keys=1)),
    "all and smallest": lambda x: (jnp.sort(x)[:3], jnp.sort(x)),
    "largest": lambda x: lax.top_k(x, 4),
    "all but one": lambda x: lax.top_k(x, x.shape[0] - 1),
    "about the largest": lambda x: (lax.approx_max_k(different(x), 3), lax.approx_min_k(different(x), 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    compiled = hlo_disc.compile(PROGRAMS[name], "f32[n]", constraints=["n >= 7"])
    calls = [[np.random.default_rng(n).integers(-50, 50, n).astype(np.float32)] for n in (7, 64, 1025, 3000)]
    for (x,), wanted in zip(calls, at_each(PROGRAMS[name], calls), strict=True):
        for ours, theirs in zip(jax.tree.leaves(compiled(x)), jax.tree.leaves(wanted), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@depth.sampled(2)
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("k", [1, 10, 300, 5000])
def test_top_k(k, level):
    """Elements are kept while scanning, or all are sorted: of one row and several, of one part and of several."""
    compiled = hlo_disc.compile(
        lambda x: lax.top_k(x, k), "f32[a, n]", constraints=[f"n >= {k}"], target=f"{KIND}:{level}"
    )
    for rows, n in ((3, k), (1, k + 1), (0, k), (2, 6000), (3, 20000), (1, 70000), (100, k + 17)):
        for x in (awkward(np.dtype(np.float32), (rows, n)), np.arange(rows * n, dtype=np.float32).reshape(rows, n)):
            same(compiled(x), lax.top_k(x, k))


def test_top_k_of_other_types():
    for dtype in (np.dtype(np.uint8), np.dtype(np.int64), np.dtype(ml_dtypes.bfloat16), np.dtype(bool)):
        with jax.enable_x64(True):
            compiled = hlo_disc.compile(lambda x: lax.top_k(x, 3), spec(dtype, "n"), constraints=["n >= 3"])
            for n in (3, 100, 5000):
                x = awkward(dtype, (n,))
                same(compiled(x), lax.top_k(x, 3))


# -------------------------------------------------------------------------------------------------- any comparator


def region(build: Callable, count: int = 1, captured: int = 0) -> Region:
    types = [(np.dtype(np.int32), ())] * (2 * count + captured)
    return make_region(ShapeFacts(), types, lambda b, x: [build(b, *x)])


def compare(b, x, y, direction="LT"):
    return b.op("compare", [x, y], direction=direction)


def absolute(b, x):
    return b.op("abs", [x])


COMPARATORS = {
    "descending": region(lambda b, x, y: compare(b, x, y, "GT")),
    "by size": region(lambda b, x, y: compare(b, absolute(b, x), absolute(b, y))),
    "distance from": region(
        lambda b, x, y, c: compare(b, *(absolute(b, b.op("subtract", [v, c])) for v in (x, y))), captured=1
    ),
    "sum": region(lambda b, x, y, u, v: compare(b, b.op("add", [x, u]), b.op("add", [y, v])), count=2),
    "mixed": region(lambda b, x, y, u, v: compare(b, b.op("subtract", [x, v]), b.op("subtract", [y, u])), count=2),
    "difference": region(lambda b, x, y: compare(b, b.op("subtract", [x, y]), b.op("subtract", [y, y]))),
    "second alone": region(lambda b, x, y, u, v: compare(b, u, v), count=2),
    "nothing": region(lambda b, x, y: compare(b, x, x)),
}


@pytest.mark.parametrize("name", COMPARATORS)
def test_any_comparator(name):
    body = COMPARATORS[name]
    captured = 1 if name == "distance from" else 0
    count = (len(body.inputs) - captured) // 2
    inputs = [("int32", "n")] * count + [("int32", "")] * captured
    attrs = dict(dim=0, stable=True, count=count, body=body)
    graph = make_graph(inputs, lambda b, *xs: b.multi("sort", xs, **attrs))
    executable = Executable(pipeline.compile(graph, Options()))
    for n in (0, 1, 2, 9, 130, 1100):
        rng = np.random.default_rng(n)
        xs = [rng.integers(-30, 30, n).astype(np.int32) for _ in range(count)] + [np.array(7, np.int32)] * captured
        expected = reference.evaluate(graph, xs)
        same(executable(*map(fenced, xs)), expected)
        if n == 9 and not captured:  # XLA wants regions that read nothing from outside
            same(run_stablehlo(to_stablehlo(graph), xs), expected)


def test_keys_are_computed_once_an_element():
    parts = comparator(COMPARATORS["by size"], 1)
    assert [op.name for op in parts.keys.ops] == ["abs"] and [op.name for op in parts.less.ops] == ["compare"]
    assert parts.given == (None,)
    parts = comparator(COMPARATORS["second alone"], 2)
    assert not parts.keys.ops and parts.given == (None, 0)
    parts = comparator(COMPARATORS["difference"], 1)
    assert parts.given == (0,) and [op.name for op in parts.less.ops] == ["subtract", "compare"]


@pytest.mark.parametrize("direction", ["LE", "GE"])
def test_what_is_no_strict_order_still_gives_all_elements(direction):
    body = region(lambda b, x, y: compare(b, x, y, direction))
    attrs = dict(dim=0, stable=False, count=1, body=body)
    graph = make_graph([("int32", "n")], lambda b, x: b.op("sort", [x], **attrs))
    executable = Executable(pipeline.compile(graph, Options()))
    for n in (0, 1, 9, 1100, 10000):
        x = np.random.default_rng(n).integers(0, 5, n).astype(np.int32)
        assert sorted(executable(x)) == sorted(x)


def test_results_that_nothing_needs_take_no_memory():
    both = lambda x: lax.sort((x, jnp.arange(x.shape[0])), num_keys=1)  # noqa: E731
    one, two = (hlo_disc.compile(f, "f32[n]") for f in (lambda x: both(x)[1], both))
    assert one.memory(n=1 << 20).temporary < two.memory(n=1 << 20).temporary


@pytest.mark.parametrize(
    "dimension, body, error",
    [
        ("3", "stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", "dim"),
        ("0", "func.call @other(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<i1>", "on scalars"),
    ],
)
def test_bad_sorts(dimension, body, error):
    text = f"""
    func.func private @other(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {{
      %v = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %s = stablehlo.slice %v [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %x = stablehlo.reshape %s : (tensor<1xf32>) -> tensor<f32>
      %r = stablehlo.compare LT, %x, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %r : tensor<i1>
    }}
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
      %0 = "stablehlo.sort"(%x) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %r = {body}
          stablehlo.return %r : tensor<i1>
      }}) : (tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }}"""
    with pytest.raises(HloDiscError, match=error):
        hlo_disc.compile(text)
