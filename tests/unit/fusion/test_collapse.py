"""Which axes of a group become one."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.dhlo import make_graph

from hlo_disc.dynamic_hlo.ir.graph import raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.collapse import collapse
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.space import row_space
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


def test_equal_sizes_in_two_spellings_merge_to_one():
    """That n // 16 is n // 16 - 2 (n // 32) + 2 from 32 to 63 facts see at each n, and of its square they do not."""
    facts = ShapeFacts()
    facts.add_at_least(Dim.symbol("n"), 32)
    facts.add_at_most(Dim.symbol("n"), 63)
    sizes = "floordiv(n, 16)", "floordiv(n, 16) - 2*floordiv(n, 32) + 2"
    assert facts.equal(*(Dim.parse(d) for d in sizes)) is Truth.YES
    assert facts.equal(*(Dim.parse(d) * Dim.parse(d) for d in sizes)) is not Truth.YES
    shapes = [f"b, {d}, {d}, 4" for d in sizes]

    def build(g, x, y):
        total = g.op("reduce", [g.op("multiply", [y, x]), g.op("constant", [], value=np.zeros((), np.float32))],
            dims=(3,), kind="add")  # fmt: skip
        return g.op("multiply", [x, g.op("broadcast", [total], shape=x.shape, dims=(0, 1, 2))])

    graph = make_graph([("float32", shape) for shape in shapes], build, facts, bindings={"n": raw_dim(0, 1)})
    made = collapse(Group.of(ROWS, graph.ops, graph.outputs), graph.facts)
    assert not isinstance(row_space(made.ops, made.outputs, graph.facts), str)
    assert made.outputs[0].rank == 2
