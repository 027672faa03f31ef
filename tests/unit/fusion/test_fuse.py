"""The ops that become one kernel, by schedules that are no more than their rows."""

from __future__ import annotations

import numpy as np
from graphs.dhlo import make_graph

from hlo_disc.stitch.fusion.fuse import fuse
from hlo_disc.stitch.prepare.normalise import normalise
from hlo_disc.stitch.schedule import HOST, Joins, Schedule

SCHEDULES = {
    "row": Schedule("row", None, Joins.ROWS, collapses=True),
    "dot": Schedule("dot", None, Joins.READ, once=lambda result: result.shape, most_ops=None),
    "sort": Schedule("sort", None, Joins.READ, once=lambda result: result.shape),
}
DOT = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,), "tf32": False}


def groups(build, *inputs):
    """Return each group's schedule, and the sorted names of its ops that compute something."""
    made = fuse(normalise(make_graph(inputs, build)), SCHEDULES)
    views = {"reshape", "broadcast", "constant", "slice", "transpose"}
    return [
        (group.schedule.name, sorted(op.name for op in group.ops if op.name not in views))
        for group in made.scope.groups
        if group.schedule is not HOST
    ]


def total(g, x, kind="add", axis=1):
    init = g.op("constant", [], value=np.array(0 if kind == "add" else -np.inf, np.float32))
    return g.op("reduce", [x, init], dims=(axis,), kind=kind)


def product(g, x, y):
    return g.op("dot_general", [x, y], dtype=np.dtype(np.float32), **DOT)


def softmax(g, x):
    largest = g.op("broadcast", [total(g, x, "max")], shape=x.shape, dims=(0,))
    e = g.op("exponential", [g.op("subtract", [x, largest])])
    return g.op("divide", [e, g.op("broadcast", [total(g, e)], shape=x.shape, dims=(0,))])


ROWS = ("float32", "m, n")


def test_elementwise_ops_are_one_kernel():
    made = groups(lambda g, x: g.op("exponential", [g.op("tanh", [g.op("negate", [x])])]), ROWS)
    assert made == [("row", ["exponential", "negate", "tanh"])]


def test_a_softmax_is_one_kernel():
    assert groups(softmax, ROWS) == [("row", ["divide", "exponential", "reduce", "reduce", "subtract"])]


def test_sums_of_rows_and_of_columns_are_two():
    made = groups(lambda g, x: (total(g, x), total(g, x, axis=0)), ROWS)
    assert made == [("row", ["reduce"])] * 2


def test_what_reads_a_product_joins_it():
    made = groups(lambda g, x, w: g.op("tanh", [product(g, x, w)]), ROWS, ("float32", "n, k"))
    assert [name for name, _ in made] == ["dot"] and made[0][1] == ["dot_general", "tanh"]


def test_a_softmax_of_a_product_is_two():
    made = groups(lambda g, x, w: softmax(g, product(g, x, w)), ROWS, ("float32", "n, k"))
    assert [name for name, _ in made] == ["dot", "row"]


def test_what_sizes_do_not_tie_together_is_apart():
    made = groups(lambda g, x, y: (g.op("tanh", [x]), g.op("tanh", [y])), ("float32", "m"), ("float32", "k"))
    assert made == [("row", ["tanh"])] * 2


def test_what_a_product_reads_is_computed_with_what_else_reads_it():
    def build(g, x, w):
        y = g.op("add", [x, x])
        return g.op("tanh", [y]), product(g, y, w)

    assert groups(build, ROWS, ("float32", "n, k")) == [("row", ["add", "tanh"]), ("dot", ["dot_general"])]


def test_a_chain_of_results_is_in_order():
    made = groups(lambda g, x, w: total(g, product(g, g.op("tanh", [x]), w)), ROWS, ("float32", "n, k"))
    assert made == [("row", ["tanh"]), ("dot", ["dot_general"]), ("row", ["reduce"])]
