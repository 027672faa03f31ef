"""The axes of a group that become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs.dhlo import make_graph, shape

from hlo_disc.dynamic_hlo.ir.graph import raw_dim
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.ops.families.combiners import monoid_region
from hlo_disc.dynamic_hlo.ops.reference import apply_all
from hlo_disc.dynamic_hlo.ops.table import OPS
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
    """A row that is broadcast keeps one boundary, on both sides of the reshape; the others go."""
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
    """Facts see, n by n from 32 to 63, that n // 16 is n // 16 - 2 (n // 32) + 2. For its square they do not."""
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


F32 = np.dtype(np.float32)
NUMBERS = {"operand_batching_dims": (), "start_indices_batching_dims": (), "index_vector_dim": 1}
WINDOWS = {
    "window": shape("1, 1, 2, 1"),
    "strides": (1, 1, 1, 1),
    "low": shape("0, 0, 1, 0"),
    "high": shape("0, 0, 0, 0"),
}
LESS = make_region(ShapeFacts(), [(F32, ()), (F32, ())], lambda b, xs: [b.op("compare", xs, direction="LT")])
SUM = monoid_region("add", F32)
# Ops on 2 x 3 x 4 x 5, what they read beside it, their attributes, and the axes of their results that are left.
OPERATIONS: list[tuple[str, list[str], dict[str, Any], list[int]]] = [
    ("broadcast", [], {"shape": shape("7, 2, 3, 4, 5"), "dims": (1, 2, 3, 4)}, [7, 120]),
    ("reshape", [], {"shape": shape("6, 1, 2, 2, 5")}, [120]),
    ("transpose", [], {"perm": (2, 0, 1, 3)}, [4, 6, 5]),
    ("slice", [], {"start": shape("0, 0, 1, 0"), "limit": shape("2, 3, 4, 5"), "stride": (1, 1, 2, 1)}, [6, 2, 5]),
    ("reverse", [], {"dims": (2,)}, [6, 4, 5]),
    ("concatenate", ["2, 3, 2, 5"], {"dim": 2}, [6, 6, 5]),
    ("pad", [""], {
        "low": shape("0, 0, 1, 0"), "high": shape("0, 0, 2, 0"), "interior": shape("0, 0, 1, 0"),
    }, [6, 10, 5]),
    ("place", ["2, 3, 2, 5"], {"starts": shape("0, 0, 1, 0"), "steps": shape("1, 1, 2, 1")}, [6, 4, 5]),
    ("dynamic_slice", ["int32"] * 4, {"sizes": shape("2, 3, 2, 5")}, [6, 2, 5]),
    ("dynamic_update_slice", ["2, 3, 2, 5", *["int32"] * 4], {}, [6, 4, 5]),
    ("gather", ["int32 7, 1"], {
        **NUMBERS, "offset_dims": (0, 1, 2), "collapsed_slice_dims": (2,), "start_index_map": (2,),
        "slice_sizes": shape("2, 3, 1, 5"),
    }, [6, 5, 7]),
    ("reduce", [""], {"dims": (2,), "kind": "max"}, [6, 5]),
    ("reduce_with", [""], {"dims": (2, 3), "body": SUM}, [6]),
    ("cumulative", [""], {"dim": 2, "reverse": True, "body": SUM}, [6, 4, 5]),
    ("sort", [], {"dim": 2, "stable": True, "count": 1, "body": LESS}, [6, 4, 5]),
    ("window", [], {
        "dims": (2,), "sizes": shape("2"), "window": shape("3"), "strides": (1,), "dilations": (1,),
    }, [6, 2, 5, 3]),
    ("reduce_window", [""], {
        **WINDOWS, "base_dilations": (1, 1, 1, 1), "window_dilations": (1, 1, 1, 1), "body": SUM,
    }, [6, 4, 5]),
    ("select_windows", [], {**WINDOWS, "shape": shape("2, 3, 4, 5"), "body": LESS}, [6, 4, 5]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "others", "attrs", "left"), OPERATIONS, ids=[name for name, *_ in OPERATIONS])
def test_an_op_on_fewer_axes_computes_the_same(
    name: str, others: list[str], attrs: dict[str, Any], left: list[int]
) -> None:
    inputs = [
        ("int32", text[5:]) if text.startswith("int32") else ("float32", text) for text in ["2, 3, 4, 5", *others]
    ]
    graph = make_graph(inputs, lambda g, *xs: g.multi(name, xs, **attrs))
    made = collapse(Group.of(ROWS, graph.ops, graph.outputs), graph.facts)
    assert [n.value for n in made.outputs[0].shape] == left
    rng = np.random.default_rng(0)
    extents = [[n.value for n in x.shape] for x in graph.inputs]
    arrays = [rng.integers(0, 4, shape).astype(x.dtype) for x, shape in zip(graph.inputs, extents, strict=True)]
    results = apply_all(graph.ops[-1], arrays)
    known = {v: arrays[v.index].reshape([n.value for n in v.shape]) for v in made.inputs}
    for op in made.ops:
        known.update(zip(op.results, apply_all(op, [known[x] for x in op.operands]), strict=True))
    for value, expected in zip(made.outputs, results, strict=True):
        np.testing.assert_array_equal(known[value], expected.reshape(known[value].shape))


def test_all_ops_whose_axes_merge_are_tested() -> None:
    """All ops whose axes merge are tested, but for those that write their operands in places that data say."""
    tested = {name for name, *_ in OPERATIONS} | {"constant", "iota", "dim", "scatter", "window_scatter"}
    assert tested == {name for name, row in OPS.items() if row.axes is not None and row.axes.attributes is not None}
