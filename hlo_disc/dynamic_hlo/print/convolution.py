"""`convolution` as StableHLO: the static form when its padding is constant, else `dynamic_conv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.print.text import dense_array

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.print.stablehlo import _Printer


def convolution(printer: _Printer, op: Op) -> str:
    attrs = op.attrs
    spatial = len(attrs["strides"])
    specs = _axes(attrs["lhs_spec"], "bf"), _axes(attrs["rhs_spec"], "oi"), _axes(attrs["out_spec"], "bf")
    fields = [
        f"batch_group_count = {attrs['batch_groups']} : i64",
        f"dimension_numbers = #stablehlo.conv<{specs[0]}x{specs[1]}->{specs[2]}>",
        f"feature_group_count = {attrs['feature_groups']} : i64",
        f"lhs_dilation = {dense_array(attrs['base_dilations'])}",
        f"rhs_dilation = {dense_array(attrs['window_dilations'])}",
        f"window_reversal = {dense_array((str(i in attrs['reversal']).lower() for i in range(spatial)), 'i1')}",
        f"window_strides = {dense_array(attrs['strides'])}",
    ]
    pairs = [d for pair in zip(attrs["low"], attrs["high"], strict=True) for d in pair]
    kind = f"tensor<{spatial}x2xi64>"
    if all(d.is_const for d in pairs):
        rows = ", ".join(f"[{low}, {high}]" for low, high in zip(attrs["low"], attrs["high"], strict=True))
        fields.append(f"padding = dense<{f'[{rows}]' if rows else ''}> : {kind}")
        return printer.op(op, f'"stablehlo.convolution"({printer.operands(op)}) <{{{", ".join(fields)}}}>')
    flat, flat_kind = printer.shape(tuple(pairs))
    padding = printer.emit(f"stablehlo.reshape {flat} : ({flat_kind}) -> {kind}")
    text = f'"stablehlo.dynamic_conv"({printer.operands(op)}, {padding}) <{{{", ".join(fields)}}}>'
    return printer.op(op, text, [kind])


def _axes(spec: tuple[int, ...], letters: str) -> str:
    """Write axes: (0, 3, 1, 2) with "bf" is [b, 0, 1, f]."""
    names = [*letters, *map(str, range(len(spec) - 2))]
    return f"[{', '.join(name for _, name in sorted(zip(spec, names, strict=True)))}]"
