"""Gathers, scatters and slices at places that are data, at many sizes from one binary, against numpy and XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import run_stablehlo
from depth import examples
from forked import holds_in_child
from graphs.dhlo import make_graph, shape
from graphs.layouts import Layout, layouts
from hand_written.fence import fenced
from hand_written.kernel_runner import KIND, levels
from hypothesis import given, note, settings
from hypothesis import strategies as st
from jax import lax

import hlo_disc
from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph, Region
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import HloDiscError
from hlo_disc.executable import Executable
from hlo_disc.options import Options

DTYPES = tuple(map(np.dtype, ("float32", "int32", "int8", "float16", ml_dtypes.bfloat16, "float64", "uint16", "bool")))
SIZES = ((1, 3, 2, 5, 4), (2, 2, 7, 3, 2), (17, 5, 33, 2, 3), (3, 40, 4, 19, 2))


def test_a_part_of_rows_leaves_the_others_alone():
    """Rows are divided, and the last part is a smaller one: what comes behind it is another's, or nobody's."""
    compiled = hlo_disc.compile(lambda x, at, u: x.at[at].add(u), "f32[m, n]", "i32[k]", "f32[k, n]")

    def is_right(n: int) -> bool:
        x, at, u = np.ones((3, n), np.float32), np.array([2, 0, 1, 2], np.int32), np.ones((4, n), np.float32)
        return bool((compiled(x, at, u) == np.array([[2.0], [2.0], [3.0]], np.float32)).all())

    assert holds_in_child(lambda: all(map(is_right, (33, 290, 300, 1000))))


def bodies(dtypes: list[np.dtype]) -> dict[str, Region]:
    """Ways to combine an old element and an update, one after the other when there are several operands."""
    types, count = [(t, ()) for t in (*dtypes, *dtypes)], len(dtypes)

    def plain(name: str):
        return lambda b, x: [b.op(name, [x[i], x[count + i]]) for i in range(count)]

    def crossed(b, x):
        """Each operand's new element depends on all old ones."""
        first = b.op("compare", [x[0], x[count]], direction="LT")
        return [b.op("select", [first, x[count + i], x[i]]) for i in range(count)]

    made = {
        "overwrite": lambda b, x: x[count:],
        "keep": lambda b, x: x[:count],
        "crossed": crossed,
        **{name: plain(name) for name in ("add", "multiply", "minimum", "maximum")},
    }
    return {name: make_region(ShapeFacts(), types, build) for name, build in made.items()}


def scatter_graph(layout: Layout, dtypes: list[np.dtype], body: str) -> Graph:
    inputs = [(t.name, layout.text(layout.operand)) for t in dtypes]
    inputs += [(layout.dtype, layout.text(layout.indices))]
    inputs += [(t.name, layout.text(layout.moved)) for t in dtypes]
    attrs = {**layout.numbers, "unique": False, "count": len(dtypes), "body": bodies(dtypes)[body]}
    return make_graph(inputs, lambda b, *xs: b.multi("scatter", xs, **attrs))


def arrays_for(graph: Graph, layout: Layout, sizes: dict[str, int], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        shape = tuple(d.evaluate(sizes) for d in value.shape)
        if value.shape == layout.indices and value.dtype == layout.dtype:
            arrays.append(layout.starts(shape, sizes, rng))
        else:  # small integers: sums and products are exact
            arrays.append(rng.integers(0, 3, shape).astype(value.dtype))
    return arrays


def check(graph: Graph, layout: Layout, level: str, xla: bool) -> None:
    """One binary at many sizes; windows always fit."""
    verify(graph)
    note(to_stablehlo(graph))
    executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{level}")))
    names = sorted(graph.bindings)
    tried = [dict.fromkeys(names, layout.smallest), *(dict(zip(names, sizes * 2, strict=False)) for sizes in SIZES)]
    for seed, sizes in enumerate(tried):
        sizes = {name: max(size, layout.smallest) for name, size in sizes.items()}
        arrays = arrays_for(graph, layout, sizes, seed)
        expected = reference.evaluate(graph, arrays)
        if xla and seed == 2:
            for want, theirs in zip(expected, run_stablehlo(to_stablehlo(graph), arrays), strict=True):
                np.testing.assert_array_equal(want, theirs)
        results = executable(*map(fenced, arrays))
        for result, want in zip(results if isinstance(results, tuple) else [results], expected, strict=True):
            np.testing.assert_array_equal(result, want)


@settings(max_examples=examples(15, 300), deadline=None)
@given(layouts(), st.data())
def test_gather(layout, data):
    dtype = data.draw(st.sampled_from(DTYPES))
    inputs = [(dtype.name, layout.text(layout.operand)), (layout.dtype, layout.text(layout.indices))]
    attrs = {**layout.numbers, "slice_sizes": layout.sizes}
    graph = make_graph(inputs, lambda b, x, i: b.op("gather", [x, i], **attrs))
    assert graph.outputs[0].shape == layout.moved
    check(graph, layout, data.draw(st.sampled_from(("host", levels()[0]))), xla=data.draw(st.booleans()))


@settings(max_examples=examples(25, 300), deadline=None)
@given(layouts(), st.data())
def test_scatter(layout, data):
    dtypes = data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2))
    body = data.draw(st.sampled_from(sorted(bodies(dtypes))))
    level = data.draw(st.sampled_from(("host", levels()[0])))
    # XLA cannot compile one over several operands of which some are halves.
    check(scatter_graph(layout, dtypes, body), layout, level, xla=len(dtypes) == 1 and data.draw(st.booleans()))


# ------------------------------------------------------------------------------------------------- as JAX writes them

N = (0, 1, 2, 7, 31, 64, 257)


def compare(fn, specs, *calls, exact: bool = True, **options) -> hlo_disc.Executable:
    """Compile once, and compare with XLA for each call."""
    compiled = hlo_disc.compile(fn, *specs, **options)
    for arrays in calls:
        ours, theirs = jax.tree.leaves(compiled(*arrays)), jax.tree.leaves(jax.jit(fn)(*arrays))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if exact:
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return compiled


def rows(n: int, m: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, indices of which some are negative or too large, and updates."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-8, 9, (n, m)).astype(np.float32)
    return x, rng.integers(-n - 3, n + 3, k).astype(np.int32), rng.integers(-8, 9, (k, m)).astype(np.float32)


ROWS = [rows(*sizes) for sizes in ((1, 1, 1), (7, 3, 0), (5, 2, 9), (31, 64, 100), (3, 1000, 7), (200, 33, 64))]


@pytest.mark.parametrize("mode", [None, "clip", "drop", "promise_in_bounds"])
@pytest.mark.parametrize("method", ["set", "add", "mul", "min", "max"])
def test_updates_at_rows(method, mode):
    calls = ROWS
    if mode == "promise_in_bounds":
        calls = [(x, i % len(x), u) for x, i, u in ROWS]
    fn = lambda x, i, u: getattr(x.at[i], method)(u, mode=mode)  # noqa: E731
    compare(fn, ("f32[n, m]", "i32[k]", "f32[k, m]"), *calls)


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_reads_of_rows(mode):
    kept = {"fill_value": -1.0} if mode == "fill" else {}
    compare(lambda x, i: jnp.take(x, i, axis=0, mode=mode, **kept), ("f32[n, m]", "i32[k]"), *[r[:2] for r in ROWS])


def test_indices_that_wrap():
    calls = [(x, i) for x, i, _ in ROWS if len(x) == 7]  # JAX needs the size
    compare(lambda x, i: jnp.take(x, i, axis=0, mode="wrap"), ("f32[7, m]", "i32[k]"), *calls)


INDEXING = {
    "column": lambda x, i, u: x[:, i % x.shape[1]],
    "pairs": lambda x, i, u: x[i, i % 3],
    "with slices": lambda x, i, u: x[i, ::2],
    "with None": lambda x, i, u: x[i, None, :],
    "table of indices": lambda x, i, u: x[jnp.stack([i, i[::-1]])],
    "along an axis": lambda x, i, u: jnp.take_along_axis(x, jnp.broadcast_to(i[:, None], u.shape), 0),
    "columns set": lambda x, i, u: x.at[:, i % x.shape[1]].set(2.0),
    "pairs added": lambda x, i, u: x.at[i, i % 3].add(u[:, 0]),
    "slices added": lambda x, i, u: x.at[i, ::2].add(u[:, ::2]),
    "part set": lambda x, i, u: x.at[1:, 1:].set(0.0),
    "one row": lambda x, i, u: x.at[3].multiply(u[0]),
    "read and written": lambda x, i, u: x.at[i].add(jnp.sin(x)[i] * u),
    "twice": lambda x, i, u: x.at[i].add(u).at[i].max(u + 1),
    "of a sum": lambda x, i, u: (x + 1).at[i].add(u) * 2,
    "into zeros": lambda x, i, u: jnp.zeros_like(x).at[i].add(u),
    "segments": lambda x, i, u: jax.ops.segment_sum(u, i, num_segments=5),
    "segment maxima": lambda x, i, u: jax.ops.segment_max(u, i, num_segments=5),
    "one hot": lambda x, i, u: jax.nn.one_hot(i, 7),
    "each row its own": lambda x, i, u: jax.vmap(lambda r, j: r.at[j].add(1.0))(u, i),
    "batches of slices": lambda x, i, u: jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (2,)))(u, i),
    "batches of updates": lambda x, i, u: jax.vmap(lambda r, j: lax.dynamic_update_slice(r, r[:2] + 1, (j,)))(u, i),
    "a slice at data": lambda x, i, u: lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
    "an update at data": lambda x, i, u: lax.dynamic_update_slice(x, u[:2, :2], (i[0], i[1])),
    "triangle": lambda x, i, u: jnp.tril(x) + jnp.triu(x, 1),
    "rolled": lambda x, i, u: jnp.roll(x, 2, axis=0) + jnp.roll(x, -1, axis=1),
    "flipped": lambda x, i, u: jnp.flip(x) + x[::-1],
}
LARGER = [rows(*sizes) for sizes in ((5, 4, 9), (31, 64, 100), (8, 1000, 7), (200, 33, 64))]


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    exact = "sin" not in name and name != "read and written"
    least = ("n >= 4", "m >= 4", "k >= 2")
    compare(INDEXING[name], ("f32[n, m]", "i32[k]", "f32[k, m]"), *LARGER, exact=exact, constraints=least)


COUNTS = {
    "counts": lambda x: jnp.bincount(x, length=5),
    "weights": lambda x: jnp.bincount(x, weights=x / 2.0, length=12),
    "places": lambda x: jnp.nonzero(x > 4, size=20, fill_value=-1),
    "histogram": lambda x: jnp.histogram(x.astype(jnp.float32), bins=4, range=(0.0, 8.0)),
    "search": lambda x: jnp.searchsorted(jnp.arange(0, 12, 3), x),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    x = np.random.default_rng(0).integers(0, 9, 1000).astype(np.int32)
    compare(COUNTS[name], ("i32[n]",), *[(x[:n],) for n in (1, 7, 64, 1000)], constraints=["n <= 100000"])


def test_a_window_that_lies_outside_in_part_changes_nothing():
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    fn = lambda x, i, u: lax.scatter_add(x, i, u, numbers)  # noqa: E731
    x, i, u = np.zeros(5, np.float32), np.array([[-1], [2], [4], [3]], np.int32), np.ones((4, 2), np.float32)
    compiled = compare(fn, ("f32[n]", "i32[k, 1]", "f32[k, 2]"), (x, i, u), constraints=["n >= 2"])
    assert compiled(x, i, u).tolist() == [0, 0, 1, 2, 1]


def test_wide_sums_of_narrow_elements():
    """The region computes, and the result has, a wider type than the operand."""
    text = """
    func.func @main(%x: tensor<?xf16>, %i: tensor<?x1xi32>, %u: tensor<?xf16>) -> tensor<?xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) : (tensor<?xf16>, tensor<?x1xi32>, tensor<?xf16>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    compiled = hlo_disc.compile(text)
    i, u = np.zeros((3000, 1), np.int32), np.ones(3000, np.float16)
    assert compiled(np.zeros(2, np.float16), i, u).tolist() == [3000, 0]


def test_captured_scalars():
    text = """
    func.func @main(%x: tensor<?xf32>, %i: tensor<?x1xi32>, %u: tensor<?xf32>, %c: tensor<f32>) -> tensor<?xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %p = stablehlo.multiply %b, %c : tensor<f32>
          %s = stablehlo.add %a, %p : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) : (tensor<?xf32>, tensor<?x1xi32>, tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    compiled = hlo_disc.compile(text)
    x, i, u = np.zeros(3, np.float32), np.array([[2], [0], [2]], np.int32), np.array([1, 2, 3], np.float32)
    assert compiled(x, i, u, np.float32(10)).tolist() == [20, 0, 40]


@pytest.mark.parametrize(
    "op, error",
    [
        ("index_vector_dim = 7", "index_vector_dim"),
        ("scatter_dims_to_operand_dims = [3], index_vector_dim = 1", "dims"),
        ("scatter_dims_to_operand_dims = [0, 0], index_vector_dim = 1", "dims"),
    ],
)
def test_bad_numbers(op, error):
    text = f"""
    func.func @main(%x: tensor<?xf32>, %i: tensor<?x1xi32>, %u: tensor<?xf32>) -> tensor<?xf32> {{
      %0 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          {op}>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          stablehlo.return %b : tensor<f32>
      }}) : (tensor<?xf32>, tensor<?x1xi32>, tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }}"""
    with pytest.raises(HloDiscError, match=error):
        hlo_disc.compile(text)


@pytest.mark.parametrize("level", ["host", levels()[0]])
def test_an_element_of_bf16_in_all_lanes(level):
    """LLVM would put such lanes together by a function that there is not."""
    numbers = dict.fromkeys(("collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims"), ())
    attrs = {**numbers, "offset_dims": (0,), "start_index_map": (), "index_vector_dim": 0, "slice_sizes": shape("a")}
    inputs = [("bfloat16", "a"), ("int32", "0, b")]
    executable = Executable(
        pipeline.compile(
            make_graph(inputs, lambda b, x, i: b.op("gather", [x, i], **attrs)), Options(target=f"{KIND}:{level}")
        )
    )
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(executable(x, np.zeros((0, 70), np.int32)), np.repeat(x[:, None], 70, 1))
