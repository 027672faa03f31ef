"""`scatter` and `sort` as StableHLO. Values from outside have the same names inside their regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from hlo_disc.dynamic_hlo.ir.attributes import Ints
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.families.indexing import OF_SCATTER
from hlo_disc.dynamic_hlo.print.text import value_type

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.print.stablehlo import _Printer


def _scatter(printer: _Printer, op: Op) -> Sequence[str]:
    attrs, count = op.attrs, 2 * op.attrs["count"] + 1
    lists = cast("Mapping[str, Ints]", attrs)
    fields = [f"{name} = {list(lists[ours])}" for ours, name in OF_SCATTER.items() if lists[ours]]
    numbers = ", ".join([*fields, f"index_vector_dim = {attrs['index_vector_dim']}"])
    unique = f"unique_indices = {str(attrs['unique']).lower()}"
    words = f"{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, {unique}}}"
    return _with_body(printer, op, "scatter", words, op.operands[:count], op.operands[count:])


def _sort(printer: _Printer, op: Op) -> Sequence[str]:
    attrs, count = op.attrs, op.attrs["count"]
    words = f"{{dimension = {attrs['dim']} : i64, is_stable = {str(attrs['stable']).lower()}}}"
    return _with_body(printer, op, "sort", words, op.operands[:count], op.operands[count:])


def _with_body(
    printer: _Printer, op: Op, name: str, words: str, operands: Sequence[Value], captured: Sequence[Value]
) -> Sequence[str]:
    region = printer.region(op.attrs["body"], [printer.names[v] for v in captured])
    text = f'"stablehlo.{name}"({", ".join(printer.names[v] for v in operands)}) <{words}>'
    return printer.many(op, text, ", ".join(map(value_type, operands)), [region])


PRINTERS = {"scatter": _scatter, "sort": _sort}
