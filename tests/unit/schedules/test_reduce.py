"""Reductions with any region, prefix sums and windows through the whole compiler, each binary at all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import depth
import numpy as np
import pytest
from comparison.by_xla import run_stablehlo
from graphs.dhlo import make_graph, shape
from graphs.graph_cases import GraphCases, constant
from hand_written.kernel_runner import levels

from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

F32, I32, U8, BOOL = (np.dtype(t) for t in ("float32", "int32", "uint8", "bool"))
# (a, b, c): sizes 0 and 1, primes, around the vector widths, few columns, and some that blocks share, of which the
# last gets nothing.
SIZES = [(1, 1, 1), (0, 3, 2), (7, 31, 5), (33, 32, 17), (2, 257, 3), (5, 4, 33), (64, 0, 2), (545, 5, 1)]

case = GraphCases()


def region(types: Sequence[np.dtype], build: Callable[..., Sequence[Value]], captured: int = 0) -> Region:
    """Return a region of `build(builder, left, right, captured)` with one value a type on either side."""
    n = len(types)

    def whole(g: GraphBuilder, inputs: tuple[Value, ...]) -> Sequence[Value]:
        return build(g, inputs[:n], inputs[n : 2 * n], *inputs[2 * n :])

    return make_region(ShapeFacts(), [(t, ()) for t in (*types, *types, *[types[0]] * captured)], whole)


def larger(g, left, right):
    """Return argmax: the larger value with its index; of equal ones the first."""
    more = g.op("compare", [left[0], right[0]], direction="GT")
    same = g.op("compare", [left[0], right[0]], direction="EQ")
    before = g.op("compare", [left[1], right[1]], direction="LT")
    keep = g.op("or", [more, g.op("and", [same, before])])
    return [g.op("select", [more, left[0], right[0]]), g.op("select", [keep, left[1], right[1]])]


def affine(g, left, right):
    """x -> a*x + b, one after the other: associative, and the order matters."""
    return [
        g.op("multiply", [left[0], right[0]]),
        g.op("add", [g.op("multiply", [left[1], right[0]]), right[1]]),
    ]


def by_name(name: str, dtype: np.dtype = F32) -> Region:
    return region([dtype], lambda g, left, right: [g.op(name, [left[0], right[0]])])


ARGMAX, AFFINE = region([F32, I32], larger), region([I32, I32], affine)


def argmax(g: GraphBuilder, x: Value, dims: tuple[int, ...]) -> tuple[Value, ...]:
    places = g.op("iota", shape=x.shape, dim=dims[-1], dtype=I32)
    inits = constant(g, -np.inf), constant(g, 0, I32)
    return g.multi("reduce_with", [x, places, *inits], dims=dims, body=ARGMAX)


def composed(g: GraphBuilder, x: Value, y: Value, dims: tuple[int, ...]) -> tuple[Value, ...]:
    return g.multi("reduce_with", [x, y, constant(g, 1, I32), constant(g, 0, I32)], dims=dims, body=AFFINE)


@case("a, b")
def sums_from_two_on(g, x):
    """The initial value changes the result, and is in it once."""
    return [g.multi("reduce_with", [x, constant(g, 2)], dims=(d,), body=by_name("add"))[0] for d in (0, 1)]


@case("a, b, c")
def argmax_of_columns(g, x):
    return argmax(g, x, (2,))


@case("a, b, c")
def argmax_of_rows(g, x):
    return argmax(g, x, (0,))[1]


@case("a, b")
def argmax_of_exponentials(g, x):
    return argmax(g, g.op("exponential", [x]), (1,))[1]


@case(("int32", "a, b, c"), ("int32", "a, b, c"))
def composed_over_columns(g, x, y):
    return composed(g, x, y, (2,))


@case(("int32", "a, b, c"), ("int32", "a, b, c"))
def composed_over_the_outside(g, x, y):
    return composed(g, x, y, (0, 2))


@case(("int32", "a, b"), ("int32", "a, b"))
def composed_over_rows(g, x, y):
    return composed(g, x, y, (0,))[1]


@case("a, b", "")
def captured_and_not_neutral(g, x, limit):
    def build(g, left, right, limit):
        return [g.op("minimum", [g.op("maximum", [left[0], right[0]]), limit])]

    body = region([F32], build, captured=1)
    return g.multi("reduce_with", [x, constant(g, -1), limit], dims=(1,), body=body)


@case("a, b", ("uint8", "a, b"))
def two_types_at_once(g, x, y):
    def build(g, left, right):
        return [g.op("minimum", [left[0], right[0]]), g.op("xor", [left[1], right[1]])]

    inits = constant(g, np.inf), constant(g, 0, U8)
    return g.multi("reduce_with", [x, y, *inits], dims=(1,), body=region([F32, U8], build))


@case(("bool", "a, b"), ("int32", "a, b"))
def parities(g, x, y):
    return [g.op("reduce", [v, constant(g, 0, v.dtype)], dims=(d,), kind="xor") for v in (x, y) for d in (0, 1)]


def cumulative(g: GraphBuilder, xs: Sequence[Value], inits: Sequence[float], dim: int, body: Region, reverse=False):
    starts = [constant(g, i, x.dtype) for x, i in zip(xs, inits, strict=True)]
    return g.multi("cumulative", [*xs, *starts], dim=dim, reverse=reverse, body=body)


@case("a, b, c")
def running_sums(g, x):
    return [cumulative(g, [x], [0], dim, by_name("add"), way)[0] for dim in range(3) for way in (False, True)]


@case("a, b")
def running_sum_of_exponentials_and_its_share(g, x):
    (total,) = cumulative(g, [g.op("exponential", [x])], [0], 1, by_name("add"))
    last = g.op("reduce", [total, constant(g, 0)], dims=(1,), kind="max")
    return g.op("divide", [total, g.op("broadcast", [last], shape=x.shape, dims=(0,))])


@case("a, b")
def running_maximum_of_a_running_sum(g, x):
    (total,) = cumulative(g, [x], [0], 1, by_name("add"))
    return g.op("add", [total, cumulative(g, [total], [-np.inf], 1, by_name("maximum"))[0]])


@case("a, b")
def running_sums_from_both_ends(g, x):
    return g.op("add", [cumulative(g, [x], [0], 1, by_name("add"), way)[0] for way in (False, True)])


@case(("int32", "a, b"), ("int32", "a, b"))
def running_composition(g, x, y):
    return [v for dim in (0, 1) for way in (False, True) for v in cumulative(g, [x, y], [1, 0], dim, AFFINE, way)]


@case(("int32", "a, 1, c"), ("int32", "a, 1, c"))
def running_sums_of_one_element(g, x, y):
    (total,) = cumulative(g, [g.op("negate", [x])], [0], 1, by_name("add", x.dtype))
    return [g.op("add", [total, y]), *cumulative(g, [x, y], [1, 0], 1, AFFINE)]


def window(
    g: GraphBuilder, xs: Sequence[Value], inits: Sequence[Value], body: Region, size, stride=1, pads=(0, 0), **more
):
    rank = xs[0].rank

    def each(x):
        return tuple(x) if isinstance(x, Sequence) else (x,) * rank

    low, high = (tuple(map(Dim.of, each(p))) for p in pads)
    return g.multi(
        "reduce_window",
        [*xs, *inits],
        window=tuple(map(Dim.of, each(size))),
        strides=each(stride),
        low=low,
        high=high,
        base_dilations=each(more.get("base", 1)),
        window_dilations=each(more.get("holes", 1)),
        body=body,
    )


@case("a, b, c")
def largest_of_windows(g, x):
    lowest = [constant(g, -np.inf)]
    body = by_name("maximum")
    padded = ((1, 1, 0), (1, 1, 0))
    channels_last = window(g, [x], lowest, body, (3, 3, 1), (2, 2, 1), padded)
    channels_first = window(g, [x], lowest, body, (1, 3, 3), (1, 2, 2), ((0, 1, 1), (0, 1, 2)))
    return *channels_last, *channels_first


@case("a, b, c", "")
def an_initial_value_that_is_a_result(g, x, init):
    start = g.op("negate", [init])
    return [g.op("reduce", [x, start], dims=(0, 1, 2), kind="add"), start]


@case("a, b, c")
def windows_of_views_that_may_be_empty(g, x):
    joined = g.op("reshape", [g.op("negate", [x])], shape=shape("a, b*c"))
    return window(g, [joined], [constant(g, np.inf)], by_name("minimum"), (1, 2), (1, 2), ((0, 1), (0, 2)))


@case("a, b, c")
def windows_with_holes(g, x):
    zero, body = [constant(g, 0)], by_name("add")
    return [
        *window(g, [x], zero, body, (2, 2, 3), (1, 2, 1), ((2, 1, 2), (1, 2, 3)), holes=(1, 2, 2)),
        *window(g, [x], zero, body, (2, 1, 2), (2, 1, 1), ((2, 0, 2), (1, 0, 3)), base=(3, 1, 2)),
        *window(g, [x], zero, body, (1, 1, 2), 2, ((0, 0, 3), (0, 0, 1)), base=(1, 2, 3)),
    ]


@case("a, b, c")
def windows_of_what_is_not_neutral(g, x):
    def build(g, left, right):
        return [g.op("add", [g.op("multiply", [left[0], constant(g, 0.5)]), right[0]])]

    body, init = region([F32], build), [constant(g, 2)]
    return [
        *window(g, [x], init, body, (2, 2, 1), 1, ((1, 1, 0), (0, 2, 0))),
        *window(g, [x], init, body, (1, 2, 2), 1, ((0, 1, 1), (0, 0, 1))),
    ]


@case("a, b, c")
def places_of_the_largest(g, x):
    places = g.op("iota", shape=x.shape, dim=1, dtype=I32)
    inits = constant(g, -np.inf), constant(g, 0, I32)
    return window(g, [x, places], inits, ARGMAX, (1, 3, 1), (1, 2, 1), ((0, 1, 0), (0, 1, 0)))


@case("a, b, c")
def windows_of_windows(g, x):
    zero, body = [constant(g, 0)], by_name("add")
    once = window(g, [g.op("exponential", [x])], zero, body, (1, 3, 1), 1, ((0, 1, 0), (0, 1, 0)))
    (twice,) = window(g, once, zero, body, (3, 1, 1), 1, ((1, 0, 0), (1, 0, 0)))
    total = g.op("reduce", [twice, zero[0]], dims=(2,), kind="add")
    return g.op("subtract", [twice, g.op("broadcast", [total], shape=twice.shape, dims=(0, 1))])


@case("a, b, c")
def sums_over_a_window_of_any_size(g, x):
    zero, n = [constant(g, 0)], x.shape[2]
    return window(g, [x], zero, by_name("add"), (1, 1, n + 1), 1, ((0, 0, n), (0, 0, 2)))


def scattered(g: GraphBuilder, x: Value, source: Value, size, stride, pads, direction: str, body: Region):
    select = region([F32], lambda g, left, right: [g.op("compare", [left[0], right[0]], direction=direction)])
    low, high = (tuple(map(Dim.of, p)) for p in pads)
    attrs = {"window": tuple(map(Dim.of, size)), "strides": stride, "low": low, "high": high}
    return g.op("select_and_scatter", [x, source, constant(g, 0.5)], **attrs, select=select, body=body)


@case("a, b, c", "a, b, c")
def select_and_scatter(g, x, y):
    def cut(like: Value, size, stride, pads) -> Value:
        """Return as many elements of y as there are windows, taken where they are."""
        (windows,) = window(g, [like], [constant(g, 0)], by_name("add"), size, stride, pads)
        big = window(g, [y], [constant(g, 0)], by_name("add"), size, stride, pads)
        return g.op("add", [windows, *big])

    results = []
    for size, stride, pads, direction in (
        ((1, 3, 1), (1, 2, 1), ((0, 1, 0), (0, 1, 0)), "GE"),
        ((1, 3, 3), (1, 1, 2), ((0, 1, 1), (0, 1, 1)), "GE"),
        ((2, 1, 2), (1, 1, 3), ((1, 0, 2), (1, 0, 1)), "LT"),
    ):
        source = cut(x, size, stride, pads)
        results.append(scattered(g, x, source, size, stride, pads, direction, by_name("add")))
    return results


@pytest.mark.parametrize("name, features", depth.crossed(list(case), levels()))
def test_against_reference(name: str, features: str) -> None:
    case.check(name, features, SIZES)


PRINTED = [name for name in case if name != "select_and_scatter"]  # StableHLO has it for constant sizes only
# XLA takes what lies outside a window for neutral, whatever the initial value is, and no region that captures.
NOT_IN_XLA = ("windows_of_what_is_not_neutral", "captured_and_not_neutral")


@pytest.mark.parametrize("name", PRINTED)
def test_printed_as_stablehlo(name):
    graph = case[name]
    text = to_stablehlo(graph)
    arrays = case.arguments(name, (3, 5, 4))
    expected = reference.evaluate(graph, arrays)
    again = [reference.evaluate(read_module(load_module(text)), arrays)]
    if name not in NOT_IN_XLA:
        again.append(run_stablehlo(text, arrays))
    for results in again:
        for ours, theirs in zip(expected, results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_running_sum_reads_back_as_one():
    graph = make_graph([("float32", "a, b")], lambda g, x: cumulative(g, [x], [0], 1, by_name("add"), True))
    again = read_module(load_module(to_stablehlo(graph)))
    assert [op.name for op in again.ops] == ["constant", "cumulative"]
    for sizes in ((2, 0), (0, 3), (2, 3)):
        assert reference.evaluate(again, [np.ones(sizes, np.float32)])[0].shape == sizes
