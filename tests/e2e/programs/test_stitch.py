"""Row groups through the whole compiler: schedules and views, at sizes on both sides of each variant's predicate."""

from __future__ import annotations

import re
from collections.abc import Sequence

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs.dhlo import make_graph
from graphs.graph_cases import Build, GraphCases, constant
from hand_written.fence import called_with_fenced
from hand_written.kernel_runner import KIND, levels
from jax import lax

import hlo_disc
from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.executable import Executable
from hlo_disc.explain.text import plan_text
from hlo_disc.options import Options

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
IDENTITY = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}
# (a, b, c): sizes 0 and 1, primes, around the vector widths, few columns, and long enough to be shared among blocks.
SIZES = [
    (0, 3, 2), (1, 1, 1), (7, 31, 5), (33, 32, 17), (2, 257, 3), (5, 4, 1), (64, 0, 2), (3, 5, 0),
    (2000, 40, 3), (3, 70001, 1), (4001, 3, 2), (1, 7, 600),
]  # fmt: skip

case = GraphCases()


def reduce(g: GraphBuilder, x: Value, dims: tuple[int, ...], kind: str = "add", init: float | None = None) -> Value:
    start = constant(g, IDENTITY[kind] if init is None else init, x.dtype)
    return g.op("reduce", [x, start], dims=dims, kind=kind)


def spread(g: GraphBuilder, x: Value, like: Value, dims: tuple[int, ...] = ()) -> Value:
    return g.op("broadcast", [x], shape=like.shape, dims=dims)


@case("a, b", "b")
def bias(g, x, y):
    return g.op("tanh", [g.op("add", [x, spread(g, y, x, (1,))])])


@case("a, b", "a, b")
def two_softmaxes(g, x, y):
    """Two values that are expensive, and kept from one sweep for the next."""
    powers = [g.op("exponential", [v]) for v in (x, y)]
    shares = [g.op("divide", [e, spread(g, reduce(g, e, (1,)), e, (0,))]) for e in powers]
    return g.op("subtract", shares)


@case("a", "a, b")
def rows_beside_columns(g, x, y):
    """The rows are there where there are no columns."""
    t = g.op("negate", [x])
    return g.op("add", [spread(g, t, y, (0,)), y]), t


@case("a", "a, b, c")
def some_rows_beside_all(g, x, y):
    """One axis of rows is there where the other is empty."""
    u, s = g.op("negate", [x]), reduce(g, y, (2,))
    return g.op("add", [s, spread(g, u, s, (0,))]), u


@case("a, b")
def without_sums_of_rows_and_columns(g, x):
    """Two reductions over different axes, read together."""
    rows = g.op("subtract", [x, spread(g, reduce(g, x, (1,)), x, (0,))])
    return g.op("subtract", [rows, spread(g, reduce(g, x, (0,)), x, (1,))])


@case("a, b", "b, a")
def sums_both_ways(g, x, y):
    """Both axes are reduced, in one order and the other."""
    back = g.op("transpose", [y], perm=(1, 0))
    return reduce(g, g.op("multiply", [x, back]), (0, 1)), reduce(g, back, (0, 1)), reduce(g, x, (0, 1))


@case("a, b, c", "c, b, a")
def outer_sums_both_ways(g, x, y):
    back = g.op("transpose", [y], perm=(2, 1, 0))
    both = reduce(g, g.op("multiply", [x, back]), (0, 2))
    return both, g.op("subtract", [reduce(g, back, (0, 2)), reduce(g, x, (0, 2))])


@case("a, b")
def column_sum(g, x):
    return reduce(g, x, (0,))


@case("a, b")
def row_maximum(g, x):
    return reduce(g, x, (1,), "max")


@case("a, b, c")
def middle_sum(g, x):
    return reduce(g, x, (1,))


@case("a, b, c")
def outer_and_inner_sum(g, x):
    return reduce(g, x, (0, 2))


@case("a, b")
def sums_in_all_directions(g, x):
    return reduce(g, x, (0, 1)), reduce(g, x, (0,), "min"), reduce(g, x, (1,), init=2.5)


@case("a, b")
def mean_and_square_of_columns(g, x):
    n = spread(g, g.op("convert", [g.op("dim", expr=Dim.symbol("a"), dtype=I32)], dtype=F32), reduce(g, x, (0,)))
    return g.op("add", [g.op("divide", [reduce(g, x, (0,)), n]), reduce(g, g.op("multiply", [x, x]), (0,))])


@case("a, b, c")
def transpose(g, x):
    return g.op("transpose", [x], perm=(2, 0, 1))


@case("a, b", "a, c")
def concatenate_columns(g, x, y):
    return g.op("concatenate", [g.op("negate", [x]), y, x], dim=1)


@case("a, b", "c, b")
def concatenate_rows(g, x, y):
    return g.op("concatenate", [x, y], dim=0)


def sizes(*numbers: int) -> tuple[Dim, ...]:
    return tuple(map(Dim.of, numbers))


@case("a, b")
def pad(g, x):
    low, high = sizes(1, 0), sizes(2, 3)
    return g.op("pad", [x, constant(g, 7)], low=low, high=high, interior=sizes(0, 1))


@case("a, b")
def pad_and_cut(g, x):
    low, high = sizes(-1, -2), sizes(3, 1)
    wide = g.op("pad", [x, constant(g, 7)], low=sizes(2, 4), high=sizes(2, 3), interior=sizes(0, 0))
    return [g.op("pad", [wide, constant(g, 5)], low=low, high=high, interior=sizes(*i)) for i in ((0, 0), (1, 2))]


@case("a, b")
def inputs_and_duplicates(g, x):
    y = g.op("negate", [x])
    return x, x, y, y, g.op("reshape", [y], shape=(x.shape[0] * x.shape[1],)), constant(g, 3)


@case("a, b")
def softmax_of_columns(g, x):
    e = g.op("exponential", [g.op("subtract", [x, spread(g, reduce(g, x, (0,), "max"), x, (1,))])])
    return g.op("divide", [e, spread(g, reduce(g, e, (0,)), x, (1,))])


@case("a, b")
def softmax(g, x):
    e = g.op("exponential", [g.op("subtract", [x, spread(g, reduce(g, x, (1,), "max"), x, (0,))])])
    return g.op("divide", [e, spread(g, reduce(g, e, (1,)), x, (0,))])


@case("a, b")
def log_sum_exp(g, x):
    m = reduce(g, x, (1,), "max")
    e = g.op("exponential", [g.op("subtract", [x, spread(g, m, x, (0,))])])
    return g.op("add", [g.op("log", [reduce(g, e, (1,))]), m])


@case("a, b, c", "a, c")
def masked_softmax(g, x, mask):
    y = g.op("add", [x, spread(g, mask, x, (0, 2))])
    e = g.op("exponential", [g.op("subtract", [y, spread(g, reduce(g, y, (2,), "max"), x, (0, 1))])])
    return g.op("divide", [e, spread(g, reduce(g, e, (2,)), x, (0, 1))])


@case("a, b, c", "a, b, c", "c")
def residual_and_layer_norm(g, x, y, scale):
    h = g.op("add", [x, y])
    rows = reduce(g, h, (2,))
    n = spread(g, g.op("convert", [g.op("dim", expr=Dim.symbol("c"), dtype=I32)], dtype=F32), rows)
    d = g.op("subtract", [h, spread(g, g.op("divide", [rows, n]), h, (0, 1))])
    v = g.op("divide", [reduce(g, g.op("multiply", [d, d]), (2,)), n])
    r = g.op("rsqrt", [g.op("add", [v, spread(g, constant(g, 1e-5), v)])])
    scaled = g.op("multiply", [g.op("multiply", [d, spread(g, r, h, (0, 1))]), spread(g, scale, h, (2,))])
    return h, scaled


@case("a, b")
def transpose_then_flatten(g, x):
    t = g.op("transpose", [x], perm=(1, 0))
    return g.op("exponential", [g.op("reshape", [t], shape=(x.shape[0] * x.shape[1],))])


@case("a, b")
def slices(g, x):
    zero = Dim.of(0)
    strided = g.op("slice", [x], start=(zero, zero), limit=x.shape, stride=(2, 3))
    return strided, g.op("reverse", [x], dims=(0, 1)), g.op("reverse", [x], dims=(1,))


@case("a, b")
def causal(g, x):
    i, j = (g.op("iota", shape=x.shape, dim=d, dtype=I32) for d in (1, 0))
    return g.op("select", [g.op("compare", [i, j], direction="LE"), x, spread(g, constant(g, -9), x)])


@case("a, b")
def conversions(g, x):
    big = g.op("multiply", [x, spread(g, constant(g, 1000), x)])
    positive = g.op("compare", [x, spread(g, constant(g, 0), x)], direction="GT")
    to = [g.op("convert", [big], dtype=np.dtype(t)) for t in ("int8", "uint8", "int32", "float16", "float64")]
    return positive, g.op("convert", [positive], dtype=I32), *to


@case("a, b", ("int32", ""))
def update_slice(g, x, start):
    half = g.op("slice", [x], start=(Dim.of(0),) * 2, limit=(x.shape[0] // 2, x.shape[1]), stride=(1, 1))
    updated = g.op("dynamic_update_slice", [x, g.op("negate", [half]), start, start])
    return updated, g.op("dynamic_slice", [x, start, start], sizes=half.shape)


@case("", "a")
def scalars(g, x, y):
    return g.op("add", [x, constant(g, 2)]), g.op("multiply", [y, spread(g, x, y)])


@case("4, 6", ("int32", "a, b"))
def gather_rows(g, table, ids):
    attrs = {"operand_batching_dims": (), "start_indices_batching_dims": (), "start_index_map": (0,)}
    sizes = (Dim.of(1), Dim.of(6))
    ids = g.op("reshape", [ids], shape=(*ids.shape, Dim.of(1)))
    return g.op(
        "gather",
        [table, ids],
        offset_dims=(2,),
        collapsed_slice_dims=(0,),
        index_vector_dim=2,
        slice_sizes=sizes,
        **attrs,
    )


@pytest.mark.parametrize("name, features", depth.crossed(list(case), levels()))
def test_against_reference(name: str, features: str) -> None:
    case.check(name, features, SIZES)


def widened(g, x, y):
    return g.op("add", [spread(g, x, y, (0, 1)), y])


def sums(g, x, y):
    rows = reduce(g, y, (1,))
    return g.op("add", [rows, spread(g, reduce(g, x, (1,)), rows, (0,))])


def cut(g, x, y):
    return g.op("add", [g.op("slice", [x], start=(Dim.const(0),) * 2, limit=y.shape, stride=(1, 1)), y])


@pytest.mark.parametrize(
    "build, left",
    [
        (widened, (1, 5)),
        (widened, (3, 1)),
        (widened, (3, 5)),
        (sums, (1, 5)),
        (sums, (3, 2)),
        (cut, (3, 9)),
        (cut, (8, 5)),
        (cut, (3, 5)),
    ],
)
def test_axes_whose_sizes_are_equal_or_not(build, left):
    """The axes that may merge depend on sizes that only a call knows."""
    graph = make_graph([("float32", "p, q"), ("float32", "a, b")], build)
    arrays = [np.arange(float(np.prod(n))).astype(np.float32).reshape(n) for n in (left, (3, 5))]
    (expected,) = reference.evaluate(graph, arrays)
    np.testing.assert_array_equal(Executable(pipeline.compile(graph, Options()))(*arrays), expected)


@pytest.mark.parametrize("features", levels())
@pytest.mark.parametrize("step", [2, 3, 4])
def test_vectors_of_every_other_element_end_with_the_array(step: int, features: str) -> None:
    """Whole vectors of 8, 16 and more, whose last element is the array's last."""
    limit = (Dim.parse("a"),)

    def build(g: GraphBuilder, x: Value) -> Sequence[Value]:
        every = g.op("slice", [x], start=(Dim.const(0),), limit=limit, stride=(step,))
        return every, g.op("reverse", [every], dims=(0,))

    graph = make_graph([("float32", "a")], build)
    executable = Executable(pipeline.compile(graph, Options(target=f"{KIND}:{features}")))
    xs = [np.arange((count - 1) * step + 1, dtype=np.float32) for count in (1, 2, 4, 8, 16, 32, 64, 128)]
    for x, (found, back) in zip(xs, called_with_fenced(executable, [[x] for x in xs]), strict=True):
        np.testing.assert_array_equal(found, x[::step])
        np.testing.assert_array_equal(back, x[::step][::-1])


def test_nan_reaches_the_maximum():
    graph = make_graph([("float32", "a, b")], lambda g, x: (reduce(g, x, (1,), "max"), reduce(g, x, (0,), "min")))
    executable = Executable(pipeline.compile(graph, Options()))
    for columns in (1, 3, 16, 33, 100):
        x = np.zeros((5, columns), np.float32)
        x[2, columns // 2] = np.nan
        rows, cols = executable(x)
        assert np.isnan(rows).tolist() == [False, False, True, False, False]
        assert np.isnan(cols).sum() == 1 and np.isnan(cols[columns // 2])


def kernels(build: Build) -> int:
    program = pipeline.compile(make_graph([("float32", "a, b")], build), Options())
    (count,) = re.findall(r"(\d+) kernels", plan_text(program.account))
    return int(count)


def test_equal_groups_share_a_kernel():
    def normalise(times: int) -> Build:
        def build(g: GraphBuilder, x: Value) -> Value:
            for _ in range(times):
                for kept in (0, 1):
                    x = g.op("divide", [x, spread(g, reduce(g, x, (1 - kept,)), x, (kept,))])
            return x

        return build

    assert kernels(normalise(3)) == kernels(normalise(2))


def test_layer_norm_is_one_launch():
    assert "\n1 launches" in plan_text(pipeline.compile(case["residual_and_layer_norm"], Options()).account)


@pytest.mark.parametrize("n", [0, 1, 7, 33])
def test_what_is_read_under_another_shape_is_made_before(n: int):
    """The value is in memory for the reshape; whoever else reads it comes after what follows from the reshape."""

    def build(g: GraphBuilder, x: Value) -> Value:
        half = g.op("multiply", [x, x])
        flat = g.op("sqrt", [g.op("reshape", [half], shape=(x.shape[0] * x.shape[1],))])
        shares = g.op("divide", [flat, spread(g, reduce(g, flat, (0,)), flat)])
        return g.op("add", [half, g.op("reshape", [shares], shape=x.shape)])

    executable = Executable(pipeline.compile(make_graph([("float32", "n, 3")], build), Options()))
    x = np.linspace(-1, 2, 3 * n, dtype=np.float32).reshape(n, 3)
    wanted = x * x + np.abs(x) / np.abs(x).sum()
    np.testing.assert_allclose(executable(x), wanted, rtol=1e-5)


ROOTS = {
    "of a size": (lambda x: x / jnp.sqrt(x.shape[1] * 1.0), 1),
    "of a constant": (lambda x: (x * jnp.sqrt(jnp.float32(2)), x - 1), 2),
    "of positions": (lambda x: x * jnp.sqrt(jnp.arange(x.shape[1], dtype="f4")), 2),
    "of columns": (lambda x: jnp.tanh(x + lax.rsqrt(x[0] ** 2 + 1)), 2),
    "of rows": (lambda x: x * lax.rsqrt((x * x).sum(1, keepdims=True) + 1), 1),
    "of elements": (lambda x: jnp.sqrt(x * x + 1) - x[0], 1),
    "of an imaginary part": (lambda x: lax.complex(x, -x) / jnp.sqrt(x.shape[0] * x.shape[1] * 1.0), 1),
}


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_that_is_the_same_in_all_rows_is_not_computed_for_each(name: str):
    fn, launches = ROOTS[name]
    compiled = hlo_disc.jit(fn, dims={"x": "(m, n)"})
    for m, n in ((3, 40), (1, 1), (17, 5), (0, 3), (2, 300)):
        x = np.random.default_rng(n).standard_normal((m, n), np.float32)
        if m:  # of no row there is no first one
            for got, want in zip(jax.tree.leaves(compiled(x)), jax.tree.leaves(fn(jnp.asarray(x))), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert f"{launches} launches" in str(compiled.explain(full=True))
