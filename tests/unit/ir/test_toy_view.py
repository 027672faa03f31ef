"""A view is a row in the op table, which says where its elements come from, and a handler of the importer.

If no rule gives the index of an axis, the row says that it is elsewhere, and the view has a function among the kernels'
views. Without a rule, all its axes are kept. An op that assembles its result is a row with its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from graphs.dhlo import make_graph

import hlo_disc
from hlo_disc.benchmark.cost import work
from hlo_disc.dynamic_hlo.ir.attributes import Attributes, Ints
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, make_op
from hlo_disc.dynamic_hlo.ops.axes import (
    ELEMENTWISE,
    Affine,
    AxisRule,
    Elsewhere,
    Part,
    Relation,
    Same,
    assembly,
    follow,
    whole,
)
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.ops.table import OPS, axis_rule, register
from hlo_disc.dynamic_hlo.passes.alike import alike
from hlo_disc.dynamic_hlo.passes.rules.equal import equal
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.import_.handlers.calls import CUSTOM_CALLS
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.values.val import Val
from hlo_disc.stitch.codegen.views import VIEWS
from hlo_disc.stitch.fusion.collapse import collapse
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Joins, Schedule

HEAD = """
func.func public @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> RESULTS {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %flip = stablehlo.custom_call @toy.flip_last(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>
"""
MAP = """
  %0 = stablehlo.multiply %flip, %y : tensor<?x?xf32>
"""
ROWS = """
  %1 = stablehlo.multiply %flip, %y : tensor<?x?xf32>
  %0 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
"""
BEHIND = """
  %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %2 = stablehlo.custom_call @toy.flip_last(%1) : (tensor<?xf32>) -> tensor<?xf32>
  %3 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %0 = stablehlo.subtract %2, %3 : tensor<?xf32>
"""
PROGRAMS = [
    (MAP, "tensor<?x?xf32>", lambda x, y: x[:, ::-1] * y),
    (ROWS, "tensor<?xf32>", lambda x, y: (x[:, ::-1] * y).sum(1)),
    (BEHIND, "tensor<?xf32>", lambda x, y: x.sum(0)[::-1] - y.sum(0)),
]


def flipped(op: Op, facts: ShapeFacts) -> Relation:
    last = op.result.rank - 1
    return follow(op, [*map(Same, range(last)), Affine(((last, -1),), op.result.shape[last] - 1)])


def elsewhere(op: Op, facts: ShapeFacts) -> Relation:
    last = op.result.rank - 1
    return follow(op, [*map(Same, range(last)), Elsewhere(last)])


RULES = {"row": AxisRule(flipped, {}), "row and function": AxisRule(elsewhere, {}), "function": None}


def emit(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    *at, last = index
    turned = body.math.scale(last, -1).shift(body.sizes(op.result.shape[-1]) + (-1))
    return body.eval(op.operands[0], (*at, turned))


def read(r: Any, op: Any, operands: list[Any]) -> Any:
    return r.emit("flip_last", [r.data(x) for x in operands])


def read_twice(r: Any, op: Any, operands: list[Any]) -> Any:
    return r.emit("twice", [r.data(x) for x in operands])


def twice(op: Op) -> list[Part]:
    """Return the parts of the operand, and of the operand again behind itself along the last axis."""
    first = whole(*op.operands)
    return [first, first._replace(starts=(*first.starts[1:], first.value.shape[-1]))]


def infer_twice(op: Op, facts: ShapeFacts) -> list[tuple[np.dtype, Any]]:
    (x,) = op.operands
    return [(x.dtype, (*x.shape[:-1], x.shape[-1] * 2))]


def flip(x: np.ndarray) -> np.ndarray:
    return x[..., ::-1]


SHAPES = ((2, 3), (0, 3), (3, 0), (1, 1), (1, 9), (33, 1), (5, 33))


@pytest.fixture(params=RULES)
def rows(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    monkeypatch.setenv("HLO_DISC_CACHE", "")
    rule = RULES[request.param]
    joined = np.concatenate
    register([
        OpDef("flip_last", "view", 1, lambda op, _: [(op.operands[0].dtype, op.operands[0].shape)], flip, axes=rule),
        OpDef("twice", "assemble", 1, infer_twice, lambda x: joined([x, x], -1), axes=assembly(twice, {})),
    ])  # fmt: skip
    monkeypatch.setitem(CUSTOM_CALLS, "toy.flip_last", read)
    monkeypatch.setitem(CUSTOM_CALLS, "toy.twice", read_twice)
    if request.param != "row":
        monkeypatch.setitem(VIEWS, "flip_last", emit)
    yield request.param
    del OPS["flip_last"], OPS["twice"]


@pytest.mark.parametrize(("ops", "result", "meaning"), PROGRAMS, ids=["map", "rows", "behind a reduction"])
def test_a_program_with_it_is_computed_right(rows: str, ops: str, result: str, meaning: Any) -> None:
    text = f"{HEAD.replace('RESULTS', result)}{ops}  return %0 : {result}\n}}"
    compiled = hlo_disc.compile(text, dims={"args[0]": "(n, m)", "args[1]": "(n, m)"})
    if ops == MAP:
        assert "1 launches" in compiled.explain(full=True)
    for shape in SHAPES:
        x, y = np.random.default_rng(0).integers(-9, 9, (2, *shape)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x, y), meaning(x, y))


def test_few_elements_of_it_need_no_kernel(rows: str) -> None:
    text = f"{HEAD.replace('RESULTS', 'tensor<?x?xf32>')}{MAP}  return %0 : tensor<?x?xf32>\n}}"
    compiled = hlo_disc.compile(text.replace("?x?", "2x3"))
    assert "inline" in compiled.explain(full=True)
    x, y = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.testing.assert_array_equal(compiled(x, y), x[:, ::-1] * y)


def test_complex_numbers_are_moved_by_it(rows: str) -> None:
    text = f"{HEAD.replace('RESULTS', 'tensor<?x?xf32>')}{MAP}  return %0 : tensor<?x?xf32>\n}}"
    text = text.replace("f32", "complex<f32>").replace("dense<0.0>", "dense<(0.0, 0.0)>")
    compiled = hlo_disc.compile(text, dims={"args[0]": "(n, m)", "args[1]": "(n, m)"})
    x, y = np.arange(24, dtype=np.float32).reshape(2, 4, 3) + np.complex64(1j)
    np.testing.assert_array_equal(compiled(x, y), x[:, ::-1] * y)


def test_what_is_assembled_twice_is_computed_right(rows: str) -> None:
    text = """
func.func public @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %n = stablehlo.negate %x : tensor<?x?xf32>
  %t = stablehlo.custom_call @toy.twice(%n) : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = stablehlo.multiply %t, %y : tensor<?x?xf32>
  %1 = stablehlo.custom_call @toy.twice(%0) : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}
"""
    compiled = hlo_disc.compile(text, dims={"args[0]": "(n, m)", "args[1]": "(n, 2*m)"})
    for n, m in SHAPES:
        x, y = np.ones((n, m), np.float32), np.arange(2.0 * n * m, dtype=np.float32).reshape(n, 2 * m)
        np.testing.assert_array_equal(compiled(x, y), np.tile(np.tile(-x, 2) * y, 2))


@pytest.mark.parametrize("name", ["flip_last", "twice"])
def test_an_axis_of_one_is_no_axis_of_it(rows: str, name: str) -> None:
    def wide(g: Any, x: Value) -> Value:
        return g.op(name, [x])

    def narrow(g: Any, x: Value) -> Value:
        (y,) = [g.op(name, [g.op("reshape", [x], shape=x.shape[1:])])]
        return g.op("reshape", [y], shape=(Dim.const(1), *y.shape))

    graphs = [alike(make_graph([("float32", "1, b, c")], build)) for build in (wide, narrow)]
    assert equal(*graphs) == (rows != "function" or name == "twice")


def test_what_is_cut_from_it_counts_alone(rows: str) -> None:
    start, limit = ((Dim.const(0),) * 2, (Dim.const(2), Dim.const(3)))

    def build(g: Any, x: Value) -> Value:
        return g.op("slice", [g.op("flip_last", [x])], start=start, limit=limit, stride=(1, 1))

    assert work(make_graph([("float32", "9, 9")], build), [(9, 9)]).bytes == 2 * (2 * 3 * 4)


@pytest.mark.parametrize(
    ("shape", "merged", "elsewhere"),
    [("a, b, c", "a*b, c", "a*b, c"), ("a, b, 1", "a, b", "a*b"), ("a, 1, c", "a, c", "a, c")],
)
def test_the_axes_that_its_row_does_not_move_merge_with_their_neighbours(
    rows: str, shape: str, merged: str, elsewhere: str
) -> None:
    def build(g: Any, x: Any, y: Any) -> Any:
        return g.op("multiply", [g.op("negate", [g.op("flip_last", [x])]), y])

    graph = make_graph([("float32", shape), ("float32", shape)], build)
    made = collapse(Group.of(Schedule("row", None, Joins.ROWS, collapses=True), graph.ops, graph.outputs), graph.facts)
    kept = ", ".join(d for d in shape.split(", ") if d != "1")
    wanted = {"row": merged, "row and function": elsewhere, "function": kept}[rows]
    assert list(made.outputs[0].shape) == list(map(Dim.parse, wanted.split(", ")))
    (flip_last,) = (op for op in made.ops if op.name == "flip_last")
    assert flip_last.result.shape[-1] == Dim.parse(shape.split(", ")[-1])


def test_ops_have_their_axes_in_common_only_by_a_rule() -> None:
    """An op of which the table says nothing keeps all its axes."""
    for name, row in OPS.items():
        op = make_op(name, [Value(np.dtype(np.float32), (Dim.symbol("n"),))], {}, [(np.dtype(np.float32), ())], "")
        rule = axis_rule(op)
        if name == "bitcast_convert":
            assert rule is None  # of another rank
        elif row.kind == "elementwise":
            assert rule is ELEMENTWISE and row.axes is None, name
        else:
            assert rule is row.axes and rule is not ELEMENTWISE, name


def test_rules_name_the_attributes_that_speak_of_axes() -> None:
    """An attribute that numbers axes, or has an entry for each, changes when axes merge."""
    single = ("dim", "index_vector_dim")
    for name, row in OPS.items():
        if row.axes is not None and row.axes.attributes is not None:
            speaks = {a for a in row.attrs if a in single or Attributes.__annotations__[a] in (Ints, Shape)}
            assert speaks == set(row.axes.attributes), name


def test_views_have_one_operand() -> None:
    assert {row.operands for row in OPS.values() if row.kind == "view"} == {1}
