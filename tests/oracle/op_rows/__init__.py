"""One row an op: how to draw its operands and attributes. What sweeps of single ops and random graphs are made of.

A row is a function of a `Gen` that appends one op, or a few, and returns the results. Operands come from the `Gen`: new
inputs of the graph, or values that are there already. Whatever a row makes is valid at every size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.table import OPS
from op_rows import assemble, control, elementwise, indexing, products, reductions, views
from op_rows.gen import Gen

Row = Callable[[Gen], Value | Sequence[Value]]

# Native code, which has no meaning in numpy, and what has no result: tested where calls and control flow are.
WITHOUT_ROW = {"custom_call", "check"}
ON_THE_CPU_ONLY = {"fft"}

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **views.ROWS,
    **assemble.ROWS,
    **indexing.ROWS,
    **reductions.ROWS,
    **products.ROWS,
    **control.ROWS,
}
# Elementwise ops without attributes say by their inference what they take.
for _op in OPS.values():
    if _op.kind == "elementwise" and not _op.attrs and _op.dialect:
        ROWS.setdefault(_op.name, elementwise.plain(_op.name))
