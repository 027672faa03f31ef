"""Every op of the table with random attributes, types and shapes: one binary at many sizes, against numpy and XLA."""

from __future__ import annotations

import pytest
import remote
from comparison.differential import check
from depth import examples
from graphs.random_graphs import single_ops
from hypothesis import HealthCheck, given, note, settings
from op_rows import ON_THE_CPU_ONLY, ROWS, WITHOUT_ROW

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.errors import UnsupportedOpError

EXAMPLES = examples(2, 60)


def test_every_op_has_a_row():
    assert {name for name, row in OPS.items() if row.dialect} == set(ROWS) | WITHOUT_ROW


@pytest.mark.parametrize("name", sorted(ROWS))
def test_op(name, pytestconfig):
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(single_ops(name))
    def sweep(graph: Graph) -> None:
        note(to_stablehlo(graph))
        check(graph)

    if pytestconfig.getoption("--target") not in (None, remote.TARGET) and name in ON_THE_CPU_ONLY:
        with pytest.raises(UnsupportedOpError, match="run on the CPU only"):
            sweep()
    else:
        sweep()
