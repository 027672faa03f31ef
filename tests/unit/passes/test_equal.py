"""Graphs that compute the same are equal, whatever their names, lines and order; all others are not."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.dhlo import make_graph

from hlo_disc.dynamic_hlo.passes.rules.equal import equal

F32 = np.dtype(np.float32)


def constant(b, value):
    return b.op("constant", value=np.asarray(value, np.float32))


def sums(b, x, y):
    return [b.op("add", [x, y], "here"), b.op("multiply", [x, y])]


def sums_in_another_order(b, x, y):
    product = b.op("multiply", [x, y], "there")
    return [b.op("add", [x, y]), product]


OTHERS = {
    "another op": lambda b, x, y: [b.op("subtract", [x, y]), b.op("multiply", [x, y])],
    "other operands": lambda b, x, y: [b.op("add", [y, x]), b.op("multiply", [x, y])],
    "other outputs": lambda b, x, y: sums(b, x, y)[::-1],
    "fewer outputs": lambda b, x, y: sums(b, x, y)[:1],
    "an attribute": lambda b, x, y: [b.op("add", [x, y]), b.op("reverse", [x], dims=(0,))],
}


def graph(build, shape="n"):
    return make_graph([("float32", shape), ("float32", shape)], build)


def test_equal_graphs():
    assert equal(graph(sums), graph(sums))
    assert equal(graph(sums), graph(sums_in_another_order))


@pytest.mark.parametrize("name", OTHERS)
def test_other_graphs(name):
    assert not equal(graph(sums), graph(OTHERS[name]))


def test_other_shapes():
    assert not equal(graph(sums), graph(sums, "m"))
    assert not equal(graph(sums, "n"), graph(sums, "3"))


def test_constants_are_compared_by_their_bits():
    def with_constant(value):
        return graph(lambda b, x, y: [constant(b, value)])

    assert equal(with_constant([1, 2]), with_constant([1, 2]))
    for other in ([1, 3], [1], [[1, 2]], [1, np.nan]):
        assert not equal(with_constant([1, 2]), with_constant(other))
    assert not equal(with_constant(0.0), with_constant(-0.0))
