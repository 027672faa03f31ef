"""`while` and `case` as StableHLO: values that all iterations or branches read keep their names in the regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op, Value, guard_of
from hlo_disc.dynamic_hlo.print.text import value_type

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.print.stablehlo import _Printer


def _names(printer: _Printer, values: Sequence[Value]) -> list[str]:
    return [printer.names[v] for v in values]


def _while(printer: _Printer, op: Op) -> Sequence[str]:
    carried, invariant = op.operands[: op.attrs["carried"]], op.operands[op.attrs["carried"] :]
    outside = _names(printer, invariant)
    regions = [printer.region(op.attrs[name], outside) for name in ("cond", "body")]
    text = f'"stablehlo.while"({", ".join(_names(printer, carried))})'
    return printer.many(op, text, ", ".join(map(value_type, carried)), regions)


def _case(printer: _Printer, op: Op) -> Sequence[str]:
    index, *operands = op.operands
    outside = _names(printer, operands)
    regions = [printer.region(branch, outside) for branch in op.attrs["branches"]]
    return printer.many(op, f'"stablehlo.case"({printer.names[index]})', value_type(index), regions)


def _check(printer: _Printer, op: Op) -> Sequence[str]:
    printer.guard(guard_of(op))
    return ()


PRINTERS = {"while": _while, "case": _case, "check": _check}
