"""An elementwise op is three rows: in the op table, among the handlers of the importer, in the emitter's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hlo_disc
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.families.elementwise import infer_elementwise, rounded
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.ops.table import OPS, register
from hlo_disc.import_.handlers.calls import CUSTOM_CALLS
from hlo_disc.mlir import math
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.elementwise import ELEMENTWISE
from hlo_disc.stitch.codegen.values.val import Val

PROGRAM = """
func.func public @main(%x: tensor<?x?xTYPE>, %y: tensor<?x?xTYPE>) -> tensor<?xTYPE> {
  %zero = stablehlo.constant dense<0.0> : tensor<TYPE>
  %sign = stablehlo.custom_call @toy.softsign(%x) : (tensor<?x?xTYPE>) -> tensor<?x?xTYPE>
  %product = stablehlo.multiply %sign, %y : tensor<?x?xTYPE>
  %sum = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<?x?xTYPE>, tensor<TYPE>) -> tensor<?xTYPE>
  return %sum : tensor<?xTYPE>
}
"""


def softsign(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def emit(b: Builder, op: Op, x: list[Val]) -> Val:
    return b.binary("/", x[0], b.binary("+", b.apply(math.AbsFOp, x[0]), 1.0))


def read(r: Any, op: Any, operands: list[Any]) -> Any:
    return r.emit("softsign", [r.data(x) for x in operands])


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register([OpDef("softsign", "elementwise", 1, infer_elementwise("float"), rounded(softsign))])
    monkeypatch.setitem(CUSTOM_CALLS, "toy.softsign", read)
    monkeypatch.setitem(ELEMENTWISE, "softsign", emit)
    yield
    del OPS["softsign"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_program_with_it_is_compiled_and_fused(rows: None, dtype: Any) -> None:
    text = PROGRAM.replace("TYPE", {4: "f32", 8: "f64"}[np.dtype(dtype).itemsize])
    compiled = hlo_disc.compile(text, dims={"args[0]": "(n, m)", "args[1]": "(n, m)"})
    assert "1 launches" in compiled.explain(full=True)
    for shape in ((0, 3), (3, 0), (1, 1), (5, 33)):
        x, y = np.random.default_rng(0).standard_normal((2, *shape)).astype(dtype)
        wanted = (softsign(x) * y).sum(1)
        np.testing.assert_allclose(compiled(x, y), wanted, rtol=0, atol=64 * np.finfo(dtype).eps)


def test_its_row_is_asked_what_it_takes(rows: None) -> None:
    with pytest.raises(hlo_disc.UnsupportedOpError, match="dtype int32 is none of float"):
        hlo_disc.compile(PROGRAM.replace("TYPE", "i32").replace("0.0", "0"))


def test_without_the_rows_there_is_no_such_op() -> None:
    assert "softsign" not in OPS
    with pytest.raises(hlo_disc.UnsupportedOpError, match="there is no custom call @toy.softsign"):
        hlo_disc.compile(PROGRAM.replace("TYPE", "f32"))
