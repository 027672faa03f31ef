"""Views as an offset and strides: element by element, next to the reference of each op; or none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from graphs.dhlo import make_graph

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.reference import apply_all
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.fusion.strided import strided

SIZES = {"m": 4, "n": 6}


def dims(*sizes: object) -> tuple[Dim, ...]:
    return tuple(Dim.parse(str(size)) for size in sizes)


def sliced(g: GraphBuilder, x: Value, start: tuple[int, ...], stride: tuple[int, ...], *limit: object) -> Value:
    return g.op("slice", [x], start=dims(*start), stride=stride, limit=dims(*limit))


View = Callable[[GraphBuilder, Value], Value]
WALKS: dict[str, View] = {
    "transposed": lambda g, x: g.op("transpose", [x], perm=(1, 0)),
    "every other column": lambda g, x: sliced(g, x, (0, 1), (1, 2), "m", "n"),
    "rows from the second on": lambda g, x: sliced(g, x, (1, 0), (1, 1), "m", "n"),
    "repeated": lambda g, x: g.op("broadcast", [x], shape=dims(5, "m", "n"), dims=(1, 2)),
    "split": lambda g, x: g.op("reshape", [x], shape=dims("m", 1, "n")),
    "joined": lambda g, x: g.op("reshape", [x], shape=dims("m*n")),
    "a part, transposed": lambda g, x: g.op("transpose", [sliced(g, x, (1, 2), (2, 1), "m", "n")], perm=(1, 0)),
}
NO_WALKS: dict[str, View] = {
    "reversed": lambda g, x: g.op("reverse", [x], dims=(1,)),
    "joined after a transpose": lambda g, x: g.op("reshape", [g.op("transpose", [x], perm=(1, 0))], shape=dims("m*n")),
    "joined after a slice": lambda g, x: g.op(
        "reshape", [sliced(g, x, (0, 0), (1, 1), "m", "n - 1")], shape=dims("m*n - m")
    ),
    "a sum": lambda g, x: g.op("add", [x, x]),
}


def walked(view: View):
    graph = make_graph([("float32", "m, n")], view)
    return graph, strided(graph.outputs[0], graph.ops, graph.facts)


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_reads_what_the_views_give(name):
    graph, walk = walked(WALKS[name])
    assert walk is not None and walk.source is graph.inputs[0] and walk.shape == graph.outputs[0].shape
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    values = {graph.inputs[0]: x}
    for op in graph.ops:
        values.update(zip(op.results, apply_all(op, [values[v] for v in op.operands], SIZES), strict=True))
    shape, offset, strides = (
        [d.evaluate(SIZES) for d in sizes] for sizes in (walk.shape, (walk.offset,), walk.strides)
    )
    for index in product(*map(range, shape)):
        at = offset[0] + sum(i * stride for i, stride in zip(index, strides, strict=True))
        assert x.ravel()[at] == values[graph.outputs[0]][index]


@pytest.mark.parametrize("name", NO_WALKS)
def test_others_are_none(name):
    """A walk goes forward, so that vectors can be loaded from it; axes that do not lie evenly are not joined."""
    assert walked(NO_WALKS[name])[1] is None
