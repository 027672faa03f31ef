"""Which axes of a group become one."""

from __future__ import annotations

import pytest
from dhlo import make_graph

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.stitch.fusion.collapse import collapse
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Joins, Schedule

ROWS = Schedule("row", None, Joins.ROWS, collapses=True)


@pytest.mark.parametrize(
    ("shape", "other", "left"),
    [
        ("6, 4", "3, 2, 4", "6, 4"),
        ("6, 4", "3, 2, 2, 2", "6, 4"),
        ("a, b", "a, 1, b", "a, b"),
        ("2*a, b", "2, a, b", "2*a, b"),
        ("8, 4", "2, 2, 2, 4", "8, 4"),
    ],
)
def test_a_boundary_of_a_reshape_is_the_one_with_as_many_elements_before_it(shape, other, left):
    """A row that is spread keeps one boundary, on both sides of the reshape; the others go."""
    target, wanted = ([Dim.parse(d) for d in text.split(",")] for text in (other, left))

    def build(g, x, row):
        biased = g.op("add", [x, g.op("broadcast", [row], shape=x.shape, dims=(1,))])
        return g.op("exponential", [g.op("reshape", [biased], shape=tuple(target))])

    graph = make_graph([("float32", shape), ("float32", shape.split(",")[1])], build)
    made = collapse(Group.of(ROWS, graph.ops, graph.outputs), graph.facts)
    assert list(made.outputs[0].shape) == wanted
    (reshape,) = (op for op in made.ops if op.name == "reshape")
    assert list(reshape.operands[0].shape) == wanted
