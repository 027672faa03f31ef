"""Elementwise ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import INTEGERS, bit_width, dtype_class, element_type, is_float, is_integer
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.expr import F32, Array
from hlo_disc.dynamic_hlo.ops.orders import total_order
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand, compare_type
from hlo_disc.import_.stablehlo.decode import enumerator, integer

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

# Ops that need no handler of their own, as they have no attributes. Rows without a dialect are ops that no program has.
_PLAIN = [row for row in OPS.values() if row.kind == "elementwise" and row.dialect and not row.attrs]
_SIGNS = {"SIGNED": "int", "UNSIGNED": "uint"}
_DTYPES = {(dtype_class(dtype), bit_width(dtype)): dtype for dtype in INTEGERS}


def _elementwise(name: str) -> Handler:
    def handler(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
        values = [r.data(x) for x in operands]
        if len(values) > 1:
            r.same_shape(values)
        return r.emit(name, values)

    return handler


def _compare(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    values = [r.data(x) for x in operands]
    r.same_shape(values)
    dtype = values[0].dtype
    order, own = compare_type(r.decoder, op, dtype)
    if order != own:
        if order == "TOTALORDER" and is_float(dtype):
            values = [total_order(Array(r, x)).value for x in values]
        elif order in _SIGNS and is_integer(dtype):
            bits = _DTYPES[_SIGNS[order], bit_width(dtype)]
            values = [r.emit("bitcast_convert", (x,), dtype=bits) for x in values]
        else:
            r.unsupported(f"there is no {order} comparison of {element_type(dtype)}")
    return r.emit("compare", values, direction=r.attr(op, "comparison_direction", enumerator))


def _convert(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, dtype = r.data(operands[0]), r.result_type(op)[0]
    return x if x.dtype == dtype else r.emit("convert", (x,), dtype=dtype)


def _reduce_precision(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    exponent, mantissa = (r.attr(op, name, integer) for name in ("exponent_bits", "mantissa_bits"))
    return r.emit("reduce_precision", (r.data(operands[0]),), exponent_bits=exponent, mantissa_bits=mantissa)


def _select(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    pred, *branches = map(r.data, operands)
    r.same_shape(branches)
    pred = _spread(r, pred, branches[0].shape)
    r.same_shape((branches[0], pred))
    return r.emit("select", (pred, *branches))


def _clamp(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    low, x, high = map(r.data, operands)
    values = (_spread(r, low, x.shape), x, _spread(r, high, x.shape))
    r.same_shape(values)
    return r.emit("clamp", values)


def _spread(r: Reader, x: Value, shape: Shape) -> Value:
    return r.emit("broadcast", (x,), shape=shape, dims=()) if shape and not x.shape else x


def _part(name: str) -> Handler:
    def handler(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
        x = r.data(operands[0])
        if x.dtype.kind == "c":
            return r.emit(name, (x,))
        return x if name == "real" else _spread(r, r.constant(np.zeros((), x.dtype)), x.shape)

    return handler


def _square(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return r.emit("multiply", (x, x))


def _is_infinity(which: float, first: str = "") -> Handler:
    def handler(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
        x = r.data(operands[0])
        if x.dtype.itemsize == 1:  # not all of these have infinities
            x = r.emit("convert", (x,), dtype=F32)
        x = r.emit(first, (x,)) if first else x
        limit = _spread(r, r.constant(np.array(which, x.dtype)), x.shape)
        return r.emit("compare", (x, limit), direction="EQ")

    return handler


# What DHLO spells with other ops, or has one op for where StableHLO and CHLO both have one.
SPELLED: dict[str, Handler] = {
    "chlo.square": _square,
    "chlo.is_inf": _is_infinity(np.inf, "abs"),
    "chlo.is_pos_inf": _is_infinity(np.inf),
    "chlo.is_neg_inf": _is_infinity(-np.inf),
    "chlo.tan": _elementwise("tan"),
}

HANDLERS: dict[str, Handler] = {
    **{f"{row.dialect}.{row.name}": _elementwise(row.name) for row in _PLAIN},
    **SPELLED,
    "stablehlo.real": _part("real"),
    "stablehlo.imag": _part("imag"),
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
}
