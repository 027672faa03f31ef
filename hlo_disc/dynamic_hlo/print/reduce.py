"""Prints the ops with a combining region."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.families.reductions import combined
from hlo_disc.dynamic_hlo.print.text import dense_array, tensor_type, value_type
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.print.stablehlo import _Printer


def _types(values: Sequence[Value]) -> str:
    return ", ".join(map(value_type, values))


def _names(printer: _Printer, values: Sequence[Value]) -> str:
    return ", ".join(printer.names[v] for v in values)


def _reduce_with(printer: _Printer, op: Op) -> Sequence[str]:
    xs, inits, captured = combined(op)
    text = f'"stablehlo.reduce"({_names(printer, (*xs, *inits))}) <{{dimensions = {dense_array(op.attrs["dims"])}}}>'
    region = printer.region(op.attrs["body"], [printer.names[v] for v in captured])
    return printer.many(op, text, _types((*xs, *inits)), [region])


def _cumulative(printer: _Printer, op: Op) -> Sequence[str]:
    """Return the window of a running combination, which starts where the axis starts, or ends where it ends."""
    rank, dim = op.results[0].rank, op.attrs["dim"]
    n = op.results[0].shape[dim]
    low, _ = printer.graph.facts.bounds(n)
    if low is None or low < 1:
        n = Dim.max(n, ONE)  # no window is empty

    def along(size: Dim, otherwise: Dim) -> Shape:
        return tuple(size if axis == dim else otherwise for axis in range(rank))

    pads = along(n - 1, ZERO), (ZERO,) * rank
    before, after = reversed(pads) if op.attrs["reverse"] else pads
    return _window(printer, op, along(n, ONE), before, after)


def _reduce_window(printer: _Printer, op: Op) -> Sequence[str]:
    attrs = op.attrs
    dilations = attrs["base_dilations"], attrs["window_dilations"]
    return _window(printer, op, attrs["window"], attrs["low"], attrs["high"], attrs["strides"], *dilations)


def _window(printer: _Printer, op: Op, window: Shape, low: Shape, high: Shape, *steps: Sequence[int]) -> Sequence[str]:
    xs, inits, captured = combined(op)
    ones = (1,) * xs[0].rank
    strides, base, holes = steps or (ones, ones, ones)
    operands, types = _names(printer, (*xs, *inits)), _types((*xs, *inits))
    pairs = tuple(itertools.chain.from_iterable(zip(low, high, strict=True)))
    if all(d.is_const for d in (*window, *pairs)):
        numbers = f"window_dimensions = {dense_array(window)}, {_steps(strides, base, holes)}, {_padding(low, high)}"
        region = printer.region(op.attrs["body"], [printer.names[v] for v in captured])
        return printer.many(op, f'"stablehlo.reduce_window"({operands}) <{{{numbers}}}>', types, [region])
    (sizes, kind), (flat, _) = printer.shape(window), printer.shape(pairs)
    rows = [sizes, *(printer.shape(tuple(map(Dim.const, x)))[0] for x in (strides, base, holes))]
    table = f"tensor<{len(window)}x2xi64>"
    padding = printer.emit(f"stablehlo.reshape {flat} : (tensor<{len(pairs)}xi64>) -> {table}")
    more = _outside(printer, op.attrs["body"], captured)
    spread = [_spread(printer, value, name, xs[0].shape) for value, name in more.items()]
    operands = ", ".join([_names(printer, xs), *spread, _names(printer, inits), *more.values(), *rows, padding])
    wide, narrow = ([tensor_type(v.dtype, shape) for v in more] for shape in (xs[0].shape, ()))
    all_types = [_types(xs), *wide, _types(inits), *narrow, *[kind] * 4, table]
    text = (
        f"stablehlo.custom_call @stablehlo.dynamic_reduce_window({operands}) "
        f"{{api_version = 2 : i32, called_computations = [@{_function(printer, op.attrs['body'], list(more))}]}}"
    )
    results = [tensor_type(v.dtype, op.results[0].shape) for v in (*op.results, *more)]
    return printer.several(text, ", ".join(all_types), results, op.loc)[: len(op.results)]


def _outside(printer: _Printer, region: Region, captured: Sequence[Value]) -> dict[Value, str]:
    """Return the values that a region reads from outside, also through sizes, with their names there.

    A function captures nothing, so these values become further operands, which every combination passes on.
    """
    inner = region.inputs[len(region.inputs) - len(captured) :]
    found = dict(zip(inner, (printer.names[v] for v in captured), strict=True))
    for op in region.ops:
        if op.name == "dim":
            printer.ops([op])
            found[op.result] = printer.names[op.result]
    return found


def _spread(printer: _Printer, value: Value, name: str, shape: Shape) -> str:
    scalar, wide = tensor_type(value.dtype, ()), tensor_type(value.dtype, shape)
    if all(d.is_const for d in shape):
        return printer.emit(f"stablehlo.broadcast_in_dim {name}, dims = [] : ({scalar}) -> {wide}")
    sizes, kind = printer.shape(shape)
    return printer.emit(f"stablehlo.dynamic_broadcast_in_dim {name}, {sizes}, dims = [] : ({scalar}, {kind}) -> {wide}")


def _function(printer: _Printer, region: Region, more: Sequence[Value]) -> str:
    """Add a function to the module that combines as the region does, and passes on the values `more`."""
    n, name = len(region.outputs), f"combine{len(printer.helpers)}"
    sides = [[*region.inputs[:n], *more], [*region.inputs[n : 2 * n], *more]]
    arguments = [[f"%{side}{i}" for i in range(n + len(more))] for side in "ab"]
    printer.names.update(zip(sides[1], arguments[1], strict=True))
    printer.names.update(zip(sides[0], arguments[0], strict=True))
    lines, printer.lines = printer.lines, []
    printer.ops([op for op in region.ops if op.name != "dim"])
    lines, printer.lines = printer.lines, lines
    types = [value_type(v) for v in sides[0]]
    taken = ", ".join(f"{a}: {t}" for side in arguments for a, t in zip(side, types, strict=True))
    made = ", ".join(printer.names[v] for v in (*region.outputs, *more))
    head = f"  func.func private @{name}({taken}) -> ({', '.join(types)}) {{"
    printer.helpers[name] = "\n".join([head, *lines, f"    return {made} : {', '.join(types)}", "  }"]) + "\n"
    return name


def _steps(strides: Sequence[int], base: Sequence[int], holes: Sequence[int]) -> str:
    named = {"window_strides": strides, "base_dilations": base, "window_dilations": holes}
    return ", ".join(f"{name} = {dense_array(x)}" for name, x in named.items())


def _padding(low: Shape, high: Shape) -> str:
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    return f"padding = dense<{f'[{rows}]' if rows else ''}> : tensor<{len(low)}x2xi64>"


def _select_and_scatter(printer: _Printer, op: Op) -> Sequence[str]:
    attrs, captured = op.attrs, [printer.names[v] for v in op.operands[3:]]
    low, high = attrs["low"], attrs["high"]
    regions = [printer.region(attrs[name], captured) for name in ("select", "body")]
    numbers = f"window_dimensions = {dense_array(attrs['window'])}, window_strides = {dense_array(attrs['strides'])}"
    text = f'"stablehlo.select_and_scatter"({_names(printer, op.operands[:3])}) <{{{numbers}, {_padding(low, high)}}}>'
    return printer.many(op, text, _types(op.operands[:3]), regions)


PRINTERS = {
    "reduce_with": _reduce_with,
    "cumulative": _cumulative,
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
}
