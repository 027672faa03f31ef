"""A view is three rows: in the op table, among the handlers of the importer, in the table of views.

Nothing else knows it, so that its axes are kept as they are, and what it moves is never taken for elements in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hlo_disc
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.ops.table import OPS, register
from hlo_disc.import_.handlers.calls import CUSTOM_CALLS
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.val import Val
from hlo_disc.stitch.codegen.views import VIEWS

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


def emit(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    *at, last = index
    turned = body.math.scale(last, -1).shift(body.sizes(op.result.shape[-1]) + (-1))
    return body.eval(op.operands[0], (*at, turned))


def read(r: Any, op: Any, operands: list[Any]) -> Any:
    return r.emit("flip_last", [r.data(x) for x in operands])


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HLO_DISC_CACHE", "")
    register([OpDef("flip_last", "view", 1, lambda op, _: [(op.operands[0].dtype, op.operands[0].shape)], flip)])
    monkeypatch.setitem(CUSTOM_CALLS, "toy.flip_last", read)
    monkeypatch.setitem(VIEWS, "flip_last", emit)
    yield
    del OPS["flip_last"]


def flip(x: np.ndarray) -> np.ndarray:
    return x[..., ::-1]


@pytest.mark.parametrize(("ops", "result", "meaning"), PROGRAMS, ids=["map", "rows", "behind a reduction"])
def test_what_fusion_does_not_know_is_computed_right(rows: None, ops: str, result: str, meaning: Any) -> None:
    text = f"{HEAD.replace('RESULTS', result)}{ops}  return %0 : {result}\n}}"
    compiled = hlo_disc.compile(text, dims={"args[0]": "(n, m)", "args[1]": "(n, m)"})
    for shape in ((2, 3), (0, 3), (3, 0), (1, 1), (1, 9), (33, 1), (5, 33)):
        x, y = np.random.default_rng(0).integers(-9, 9, (2, *shape)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x, y), meaning(x, y))
