"""Tables that say something of the same things: a row too few or too many is named when they are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

OP = "from hlo_disc.dynamic_hlo.ops import table; table.OPS['frob'] = table.OPS['{}']; "
CHANGES = {
    "an op without code": (OP.format("tanh") + "import hlo_disc.stitch.codegen.values.elementwise", "frob"),
    "an op with attributes that is not imported": (
        OP.format("convert") + "import hlo_disc.import_.handlers",
        "stablehlo.frob",
    ),
    "an op that is not printed": (OP.format("slice") + "import hlo_disc.dynamic_hlo.print.stablehlo", "frob"),
    "a reduction without code": (
        "from hlo_disc.dynamic_hlo.ops import table; table.REDUCERS['frob'] = 'add'; "
        "import hlo_disc.stitch.codegen.values.elementwise",
        "frob",
    ),
    "a reduction without a reference": (
        "from hlo_disc.dynamic_hlo.ops.families import reductions; del reductions.UFUNCS['xor']; "
        "import hlo_disc.dynamic_hlo.ops.table",
        "xor",
    ),
    "a comparison without a reference": (
        "from hlo_disc.dynamic_hlo.ops.families import elementwise; del elementwise.COMPARE['LT']; "
        "import hlo_disc.dynamic_hlo.ops.table",
        "LT",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_one_table_is_found_at_import(name: str) -> None:
    code, row = CHANGES[name]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.endswith(f"AssertionError: {{'{row}'}}\n"), result.stderr
