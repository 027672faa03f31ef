"""The comparison of random graphs itself: it sees what is wrong, and does not see what only rounds differently."""

from __future__ import annotations

import numpy as np
from comparison.differential import Band, bands, inputs, wrong
from graphs.dhlo import make_graph
from graphs.random_graphs import graphs
from hypothesis import HealthCheck, Phase, given, seed, settings

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL
from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region


def test_wrong_numbers_are_seen():
    """An error of a thousandth, in nine of ten elements of any random graph that are there to compare."""
    counts = np.zeros(2)

    @seed(9)
    @settings(
        max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(graphs(min_ops=5, max_ops=40))
    def count(graph):
        for band in bands(graph, inputs(graph, {"b": 4, "s": 3})):
            if band.want.dtype in (np.float32, np.float64, np.int32):
                with np.errstate(invalid="ignore"):
                    off = band.want + (1 if band.want.dtype == np.int32 else np.abs(band.want) / 1000)
                    seen = ~band.free & (np.abs(off - band.want) > band.tolerance)
                is_there = np.isfinite(band.want) & (off != band.want)
                counts[:] += (seen & is_there).sum(), is_there.sum()

    count()
    assert counts[0] > 0.9 * counts[1] > 100


def by_exponentials(g: GraphBuilder, x: Value, y: Value) -> list[Value]:
    """y in the order of exp(x)."""

    def less(b: GraphBuilder, values: tuple[Value, ...]) -> list[Value]:
        return [b.op("compare", values[:2], direction="LT")]

    body: Region = make_region(g.facts, [(v.dtype, ()) for v in (x, x, y, y)], less)
    keys = g.op("exponential", [x])
    return [g.multi("sort", [keys, y], dim=0, stable=True, count=2, body=body)[1]]


def test_an_order_that_rounding_decides_is_not_compared():
    graph = make_graph([("float32", "b"), ("int32", "b")], by_exponentials)
    near = np.nextafter(np.float32(0.5), np.float32(1))
    x, y = np.array([0.5, 3, near, 2, 1], np.float32), np.arange(5, dtype=np.int32)
    (band,) = bands(graph, [x, y])
    assert band.free.tolist() == [True, True, False, False, False]
    assert wrong(np.array([2, 0, 4, 3, 1], np.int32), band) == ""
    assert wrong(np.array([0, 2, 4, 1, 3], np.int32), band) != ""


def test_numbers_that_may_be_equal_or_not():
    def build(g: GraphBuilder, x: Value, y: Value) -> list[Value]:
        near = g.op("subtract", [g.op("exponential", [x]), y])
        return [near, g.op("compare", [near, g.op("subtract", [y, y])], direction="EQ")]

    graph = make_graph([("float32", "b"), ("float32", "b")], build)
    x = np.array([0.3, 0.3], np.float32)
    found: list[Band] = bands(graph, [x, np.array([np.exp(x[0]), 7], np.float32)])
    assert found[1].want.dtype == BOOL
    assert [band.free.tolist() for band in found] == [[True, False], [True, False]]


def test_the_largest_of_two_zeros_has_either_sign():
    def build(g: GraphBuilder, x: Value, y: Value) -> list[Value]:
        reduced = g.op("reduce", [x, g.op("constant", [], value=np.array(-np.inf, np.float32))], dims=(1,), kind="max")
        return [g.op("divide", [y, m]) for m in (reduced, g.op("maximum", [y, reduced]))]

    graph = make_graph([("float32", "b, 2"), ("float32", "b")], build)
    y = np.array([1, 1], np.float32)
    (band, _), (sure, _) = (
        bands(graph, [np.array(x, np.float32), y]) for x in ([[0, -0.0], [0, -1]], [[0, 0], [0, -1]])
    )
    for sign in (1, -1):
        made = np.array([sign * np.inf, np.inf], np.float32)
        assert wrong(made, band) == ""
        assert (wrong(made, sure) == "") == (sign == 1)
