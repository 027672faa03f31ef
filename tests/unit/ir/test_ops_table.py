"""docs/ops.md is what the op table says, and nothing of StableHLO is missing from it."""

import re
import sys
from pathlib import Path

import pytest

from hlo_disc.dynamic_hlo.ops.families import private
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.ops.table import OPS

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import ops_table


def test_the_table_is_current() -> None:
    assert ops_table.TARGET.read_text() == ops_table.document(), "run python tools/ops_table.py"


def test_every_op_of_the_dialects_is_known() -> None:
    unsupported = {name for name in ops_table.dialect_ops() if ops_table.status(name) == "unsupported"}
    host = {f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv")}
    quantized = {f"stablehlo.uniform_{name}" for name in ("quantize", "dequantize")}
    assert unsupported == host | quantized | set(ops_table.ASYNC)


@pytest.mark.parametrize("name", sorted(set(ops_table.OPS) - set(ops_table.FIXED)))
def test_every_op_takes_some_type(name: str) -> None:
    assert any(ops_table.takes(name, dtype) for group in ops_table.GROUPS.values() for dtype in group)


def test_every_kind_is_described() -> None:
    (kinds,) = re.findall(r"kind: (.*?)\n    operands:", OpDef.__doc__ or "", re.DOTALL)
    assert {row.kind for row in OPS.values()} <= set(re.findall(r"\w+", kinds))


def test_ops_of_the_compiler_are_described() -> None:
    described = dict(re.findall(r"^(\w+)(?: \([^)]*\)(?: \{([^}]*)\})?)?:", private.__doc__ or "", re.MULTILINE))
    described["sort_first"] = ", ".join(OPS["sort_first"].attrs)  # in words
    assert described == {row.name: ", ".join(row.attrs) for row in private.ROWS}
