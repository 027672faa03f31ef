"""Prints a DHLO graph as legal StableHLO text, which `import_` reads back and StableHLO's tools verify and run.

Constant sizes give the static ops, symbolic ones the dynamic ops, whose shape operands are computed from
`get_dimension_size` in i64. Symbol names are kept in the attribute `hlo_disc.shape` of each argument, and guards are
`shape_assertion` custom calls as JAX writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS, OPS, REDUCERS
from hlo_disc.dynamic_hlo.print import control as print_control
from hlo_disc.dynamic_hlo.print import convolution as print_convolution
from hlo_disc.dynamic_hlo.print import indexing as print_indexing
from hlo_disc.dynamic_hlo.print import library as print_library
from hlo_disc.dynamic_hlo.print import reduce as print_reduce
from hlo_disc.dynamic_hlo.print.text import (
    ARGUMENT_SHAPE,
    dense,
    dense_array,
    listed,
    string,
    symbol,
    tensor_type,
    value_type,
)
from hlo_disc.dynamic_hlo.sizes.dim import Dim

_SCALAR = "tensor<i64>"
_DIRECTION = {relation: direction for direction, relation in DIRECTIONS.items()}

# JAX's own definitions, under its names: sizes divide with rounding down, StableHLO's integers toward zero.
_FLOOR_DIVIDE = """\
  func.func private @floor_divide(%a: tensor<i64>, %b: tensor<i64>) -> tensor<i64> {
    %one = stablehlo.constant dense<1> : tensor<i64>
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %q = stablehlo.divide %a, %b : tensor<i64>
    %sa = stablehlo.sign %a : tensor<i64>
    %sb = stablehlo.sign %b : tensor<i64>
    %differ = stablehlo.compare NE, %sa, %sb, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %r = stablehlo.remainder %a, %b : tensor<i64>
    %inexact = stablehlo.compare NE, %r, %zero, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %down = stablehlo.and %differ, %inexact : tensor<i1>
    %below = stablehlo.subtract %q, %one : tensor<i64>
    %result = stablehlo.select %down, %below, %q : tensor<i1>, tensor<i64>
    return %result : tensor<i64>
  }
"""
_REMAINDER = """\
  func.func private @remainder(%a: tensor<i64>, %b: tensor<i64>) -> tensor<i64> {
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %r = stablehlo.remainder %a, %b : tensor<i64>
    %inexact = stablehlo.compare NE, %r, %zero, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %nr = stablehlo.compare LT, %r, %zero, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %nb = stablehlo.compare LT, %b, %zero, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %differ = stablehlo.compare NE, %nr, %nb, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
    %up = stablehlo.and %differ, %inexact : tensor<i1>
    %above = stablehlo.add %r, %b : tensor<i64>
    %result = stablehlo.select %up, %above, %r : tensor<i1>, tensor<i64>
    return %result : tensor<i64>
  }
"""


def to_stablehlo(graph: Graph) -> str:
    """The graph as the text of one module with a public `@main`."""
    return _Printer(graph).module()


# ------------------------------------------------------------------------------------------------------ the printer


class _Printer:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.lines: list[str] = []
        self.count = 0
        self.names: dict[Value, str] = {value: f"%arg{value.index}" for value in graph.inputs}
        self.sizes: dict[Dim, str] = {}
        self.shapes: dict[Shape, str] = {}
        self.helpers: dict[str, str] = {}

    def module(self) -> str:
        graph = self.graph
        for guard in (*graph.guards, *graph.asked):  # those on sizes that are computed are implied where these are used
            if all(d.symbols.isdisjoint(graph.definitions) for d in (guard.lhs, guard.rhs, *guard.args)):
                self.guard(guard)
        self.ops(graph.ops)
        results = ", ".join(map(value_type, graph.outputs))
        outputs = ", ".join(self.names[value] for value in graph.outputs)
        end = f"    return {outputs} : {results}" if graph.outputs else "    return"
        head = f"  func.func public @main({', '.join(map(self.argument, graph.inputs))}) -> ({results}) {{"
        lines = [f"module @{symbol(graph.name)} {{", head, *self.lines, end, "  }"]
        return "\n".join(lines) + "\n" + "".join(self.helpers.values()) + "}\n"

    def ops(self, ops: Iterable[Op]) -> None:
        """Append ops; a printer returns the name of the result, or all names of several."""
        for op in ops:
            names = _PRINTERS.get(op.name, _operands_alone)(self, op)
            self.names.update(zip(op.results, [names] if isinstance(names, str) else names, strict=True))

    def region(self, region: Region, outside: Sequence[str] = ()) -> str:
        """A region as text. outside: the names that its last inputs have there; the others are block arguments."""
        saved = self.lines, self.sizes, self.shapes
        self.lines, self.sizes, self.shapes = [], dict(self.sizes), dict(self.shapes)
        count = len(region.inputs) - len(outside)
        inside = [f"%a{self.count + i}" for i in range(count)]
        self.count += count
        self.names.update(zip(region.inputs, [*inside, *outside], strict=True))
        self.ops(region.ops)
        results = f"{', '.join(self.names[v] for v in region.outputs)} : {', '.join(map(value_type, region.outputs))}"
        lines, (self.lines, self.sizes, self.shapes) = self.lines, saved
        arguments = ", ".join(f"{n}: {value_type(v)}" for n, v in zip(inside, region.inputs, strict=False))
        end = f"    stablehlo.return {results}" if region.outputs else "    stablehlo.return"
        return "\n".join(["{", f"    ^bb0({arguments}):", *lines, end, "    }"])

    def argument(self, value: Value) -> str:
        shape = string(f"({', '.join(map(str, value.shape))})")
        name = string(self.graph.input_names[value.index])
        return f"{self.names[value]}: {value_type(value)} {{{ARGUMENT_SHAPE} = {shape}}} loc({name})"

    def emit(self, text: str, loc: str = "") -> str:
        """Append one op with one result and return the result's name."""
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"    {name} = {text}" + (f" loc({string(loc)})" if loc else ""))
        return name

    def emit_all(self, text: str, count: int, loc: str = "") -> tuple[str, ...]:
        """Append one op with `count` results and return their names."""
        name = f"%{self.count}"
        self.count += 1
        head = f"{name}:{count} = " if count else ""
        self.lines.append(f"    {head}{text}" + (f" loc({string(loc)})" if loc else ""))
        return tuple(f"{name}#{i}" for i in range(count))

    def op(self, op: Op, text: str, extra: Sequence[str] = ()) -> str:
        """Append `text` with the functional type of `op`. extra: the types of operands that DHLO does not have."""
        operands = ", ".join([*map(value_type, op.operands), *extra])
        return self.emit(f"{text} : ({operands}) -> {value_type(op.result)}", op.loc)

    def many(self, op: Op, text: str, types: str, regions: Sequence[str] = ()) -> list[str]:
        """Append `text` with its regions; `types` are those of the operands. Returns the names of all results."""
        body = f" ({', '.join(regions)})" if regions else ""
        return self.several(text + body, types, [value_type(v) for v in op.results], op.loc)

    def several(self, text: str, types: str, results: Sequence[str], loc: str = "") -> list[str]:
        """Append one op with results of any number of types, and return their names."""
        name, count = f"%{self.count}", len(results)
        self.count += 1
        left = f"{name}:{count} = " if count > 1 else f"{name} = " if count else ""
        where = f" loc({string(loc)})" if loc else ""
        self.lines.append(f"    {left}{text} : ({types}) -> ({', '.join(results)}){where}")
        return [f"{name}#{i}" for i in range(count)] if count > 1 else [name] * count

    def operands(self, op: Op) -> str:
        return ", ".join(self.names[value] for value in op.operands)

    # ------------------------------------------------------------------------------------------- sizes and guards

    def size(self, dim: Dim) -> str:
        """Emit a Dim as an i64 scalar. Each expression, and each part of one, is computed once."""

        def const(value: int) -> Dim:
            return self._constant_size(Dim.const(value))

        return self.sizes[dim.lower(const, self._symbol_size, self._size_ops())]

    def _constant_size(self, dim: Dim) -> Dim:
        if dim not in self.sizes:
            self.sizes[dim] = self.emit(f"stablehlo.constant dense<{dim}> : {_SCALAR}")
        return dim

    def _symbol_size(self, name: str) -> Dim:
        dim = Dim.symbol(name)
        if dim in self.sizes:
            return dim
        if name.startswith("%"):
            number, axis = map(int, name[1:].split("."))
            value = self.graph.inputs[number]
            size = (
                f"stablehlo.get_dimension_size {self.names[value]}, dim = {axis} : ({value_type(value)}) -> tensor<i32>"
            )
            self.sizes[dim] = self.emit(f"stablehlo.convert {self.emit(size)} : (tensor<i32>) -> {_SCALAR}")
        elif name in self.graph.definitions:
            self.sizes[dim] = self.names[self.graph.definitions[name]]
        else:
            self.sizes[dim] = self.size(self.graph.bindings[name])
        return dim

    def _size_ops(self) -> dict[str, Callable[[Dim, Dim], Dim]]:
        # The fold carries the Dim of each part, so that parts are shared and signs can be asked for.
        def binary(name: str, combine: Callable[[Dim, Dim], Dim]) -> Callable[[Dim, Dim], Dim]:
            def apply(a: Dim, b: Dim) -> Dim:
                whole = combine(a, b)
                if whole.is_const:
                    return self._constant_size(whole)
                if whole not in self.sizes:
                    self.sizes[whole] = self.emit(f"stablehlo.{name} {self.sizes[a]}, {self.sizes[b]} : {_SCALAR}")
                return whole

            return apply

        return {
            "add": binary("add", lambda a, b: a + b),
            "mul": binary("multiply", lambda a, b: a * b),
            "min": binary("minimum", Dim.min),
            "max": binary("maximum", Dim.max),
            "floordiv": self._division("divide", "floor_divide", _FLOOR_DIVIDE, lambda a, b: a // b),
            "mod": self._division("remainder", "remainder", _REMAINDER, lambda a, b: a % b),
        }

    def _division(
        self, name: str, helper: str, body: str, combine: Callable[[Dim, Dim], Dim]
    ) -> Callable[[Dim, Dim], Dim]:
        def apply(a: Dim, b: Dim) -> Dim:
            whole = combine(a, b)
            if whole.is_const:
                return self._constant_size(whole)
            if whole in self.sizes:
                return whole
            pair = f"{self.sizes[a]}, {self.sizes[b]}"
            lows = [self.graph.facts.bounds(dim)[0] for dim in (a, b)]
            if all(low is not None and low >= 0 for low in lows):
                self.sizes[whole] = self.emit(f"stablehlo.{name} {pair} : {_SCALAR}")
            else:
                self.helpers[helper] = body
                text = f"func.call @{helper}({pair}) : ({_SCALAR}, {_SCALAR}) -> {_SCALAR}"
                self.sizes[whole] = self.emit(text)
            return whole

        return apply

    def shape(self, shape: Shape) -> tuple[str, str]:
        """Emit a shape as an i64 vector. Returns its name and its type."""
        kind = f"tensor<{len(shape)}xi64>"
        if shape not in self.shapes:
            self.shapes[shape] = self._shape(shape, kind)
        return self.shapes[shape], kind

    def _shape(self, shape: Shape, kind: str) -> str:
        if all(size.is_const for size in shape):
            return self.emit(f"stablehlo.constant dense<{listed(shape) if shape else ''}> : {kind}")
        if len(shape) == 1:
            return self.emit(f"stablehlo.reshape {self.size(shape[0])} : ({_SCALAR}) -> {kind}")
        return self.vector([self.shape((size,))[0] for size in shape])

    def vector(self, names: Sequence[str]) -> str:
        """Join vectors of one element to one vector."""
        if len(names) == 1:
            return names[0]
        types = ", ".join(["tensor<1xi64>"] * len(names))
        return self.emit(f"stablehlo.concatenate {', '.join(names)}, dim = 0 : ({types}) -> tensor<{len(names)}xi64>")

    def guard(self, guard: Guard) -> None:
        pair = f"{self.size(guard.lhs)}, {self.size(guard.rhs)}"
        direction = _DIRECTION[guard.relation]
        holds = self.emit(f"stablehlo.compare {direction}, {pair}, SIGNED : ({_SCALAR}, {_SCALAR}) -> tensor<i1>")
        operands = ", ".join([holds, *map(self.size, guard.args)])
        types = ", ".join(["tensor<i1>"] + [_SCALAR] * len(guard.args))
        attrs = f"{{api_version = 2 : i32, error_message = {string(guard.message)}, has_side_effect = true}}"
        self.lines.append(f"    stablehlo.custom_call @shape_assertion({operands}) {attrs} : ({types}) -> ()")


# ------------------------------------------------------------------------------------------------- one function an op


def _static(*shapes: Shape) -> bool:
    return all(size.is_const for shape in shapes for size in shape)


def _operands_alone(printer: _Printer, op: Op) -> str:
    if OPS[op.name].dialect == "chlo":
        types = ", ".join(map(value_type, op.operands))
        return printer.emit(f"chlo.{op.name} {printer.operands(op)} : {types} -> {value_type(op.result)}", op.loc)
    return printer.op(op, f"stablehlo.{op.name} {printer.operands(op)}")


def _reduce_precision(printer: _Printer, op: Op) -> str:
    form = f"e{op.attrs['exponent_bits']}m{op.attrs['mantissa_bits']}"
    return printer.op(op, f"stablehlo.reduce_precision {printer.operands(op)}, format = {form}")


def _bitcast_convert(printer: _Printer, op: Op) -> str:
    (x,) = op.operands
    kinds = dtype_class(x.dtype), dtype_class(op.result.dtype)
    if "complex" not in kinds or kinds[0] == kinds[1]:
        return _operands_alone(printer, op)
    # Complex numbers as pairs of real ones, or the reverse.
    dtype, whole = part_dtype(op.result.dtype), (op.result if kinds[1] == "complex" else x).shape
    parts, last = (*whole, Dim.const(1)), len(whole)
    column, flat = (tensor_type(dtype, shape) for shape in (parts, whole))
    wide, wide_kind = printer.shape(parts)
    narrow, narrow_kind = printer.shape(whole)
    if kinds[0] == "complex":
        columns = []
        for name in ("real", "imag"):
            part = printer.emit(f"stablehlo.{name} {printer.names[x]} : ({value_type(x)}) -> {flat}", op.loc)
            text = f"stablehlo.dynamic_reshape {part}, {wide} : ({flat}, {wide_kind}) -> {column}"
            columns.append(printer.emit(text, op.loc))
        types = f"({column}, {column}) -> {value_type(op.result)}"
        return printer.emit(f"stablehlo.concatenate {', '.join(columns)}, dim = {last} : {types}", op.loc)
    halves = []
    strides, _ = printer.shape((Dim.const(1),) * (last + 1))
    for k in range(2):
        start, kind = printer.shape((*(Dim.const(0) for _ in whole), Dim.const(k)))
        limit, _ = printer.shape((*whole, Dim.const(k + 1)))
        types = f"({value_type(x)}, {kind}, {kind}, {kind}) -> {column}"
        part = printer.emit(
            f"stablehlo.real_dynamic_slice {printer.names[x]}, {start}, {limit}, {strides} : {types}", op.loc
        )
        text = f"stablehlo.dynamic_reshape {part}, {narrow} : ({column}, {narrow_kind}) -> {flat}"
        halves.append(printer.emit(text, op.loc))
    return printer.emit(f"stablehlo.complex {', '.join(halves)} : ({flat}, {flat}) -> {value_type(op.result)}", op.loc)


def _compare(printer: _Printer, op: Op) -> str:
    kind = {"float": "FLOAT", "complex": "FLOAT", "int": "SIGNED"}.get(dtype_class(op.operands[0].dtype), "UNSIGNED")
    return printer.op(op, f"stablehlo.compare {op.attrs['direction']}, {printer.operands(op)}, {kind}")


def _constant(printer: _Printer, op: Op) -> str:
    return printer.emit(f"stablehlo.constant {dense(op.attrs['value'])} : {value_type(op.result)}", op.loc)


def _iota(printer: _Printer, op: Op) -> str:
    dim, shape = op.attrs["dim"], op.result.shape
    if _static(shape):
        return printer.emit(f"stablehlo.iota dim = {dim} : {value_type(op.result)}", op.loc)
    sizes, kind = printer.shape(shape)
    return printer.op(op, f"stablehlo.dynamic_iota {sizes}, dim = {dim}", [kind])


def _dim(printer: _Printer, op: Op) -> str:
    text = f"stablehlo.convert {printer.size(op.attrs['expr'])} : ({_SCALAR}) -> {value_type(op.result)}"
    return printer.emit(text, op.loc)


def _broadcast(printer: _Printer, op: Op) -> str:
    return _shaped(printer, op, "broadcast_in_dim", f", dims = {listed(op.attrs['dims'])}")


def _shaped(printer: _Printer, op: Op, name: str = "reshape", rest: str = "") -> str:
    """Print an op whose result's shape may be an operand."""
    (x,) = op.operands
    if _static(x.shape, op.result.shape):
        return printer.op(op, f"stablehlo.{name} {printer.names[x]}{rest}")
    sizes, kind = printer.shape(op.result.shape)
    return printer.op(op, f"stablehlo.dynamic_{name} {printer.names[x]}, {sizes}{rest}", [kind])


def _transpose(printer: _Printer, op: Op) -> str:
    return printer.op(op, f"stablehlo.transpose {printer.operands(op)}, dims = {listed(op.attrs['perm'])}")


def _reverse(printer: _Printer, op: Op) -> str:
    return printer.op(op, f"stablehlo.reverse {printer.operands(op)}, dims = {listed(op.attrs['dims'])}")


def _slice(printer: _Printer, op: Op) -> str:
    (x,), start, limit, stride = op.operands, op.attrs["start"], op.attrs["limit"], op.attrs["stride"]
    if _static(start, limit):
        ranges = listed(f"{a}:{b}:{c}" for a, b, c in zip(start, limit, stride, strict=True))
        return printer.op(op, f"stablehlo.slice {printer.names[x]} {ranges}")
    (starts, kind), (limits, _) = printer.shape(start), printer.shape(limit)
    strides, _ = printer.shape(tuple(map(Dim.const, stride)))
    text = f"stablehlo.real_dynamic_slice {printer.names[x]}, {starts}, {limits}, {strides}"
    return printer.op(op, text, [kind] * 3)


def _gather(printer: _Printer, op: Op) -> str:
    attrs, sizes = op.attrs, op.attrs["slice_sizes"]
    lists: Final = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims")
    fields = [f"{name} = {listed(attrs[name])}" for name in (*lists, "start_index_map") if attrs[name]]
    fields.append(f"index_vector_dim = {attrs['index_vector_dim']}")
    numbers = f"dimension_numbers = #stablehlo.gather<{', '.join(fields)}>, indices_are_sorted = false"
    if _static(sizes):
        return printer.op(
            op, f'"stablehlo.gather"({printer.operands(op)}) <{{{numbers}, slice_sizes = {dense_array(sizes)}}}>'
        )
    name, kind = printer.shape(sizes)
    return printer.op(op, f'"stablehlo.dynamic_gather"({printer.operands(op)}, {name}) <{{{numbers}}}>', [kind])


def _dynamic_slice(printer: _Printer, op: Op) -> str:
    (x, *starts), sizes = op.operands, op.attrs["sizes"]
    if _static(sizes):
        return printer.op(op, f"stablehlo.dynamic_slice {printer.operands(op)}, sizes = {listed(sizes)}")
    corners = []
    for start in starts:
        wide = printer.emit(f"stablehlo.convert {printer.names[start]} : ({value_type(start)}) -> {_SCALAR}")
        corners.append(printer.emit(f"stablehlo.reshape {wide} : ({_SCALAR}) -> tensor<1xi64>"))
    corner = printer.vector(corners)
    zero, kind = printer.shape((Dim.const(0),) * x.rank)
    last, _ = printer.shape(tuple(n - size for n, size in zip(x.shape, sizes, strict=True)))
    extent, _ = printer.shape(sizes)
    strides, _ = printer.shape((Dim.const(1),) * x.rank)
    begin = printer.emit(f"stablehlo.clamp {zero}, {corner}, {last} : {kind}")
    end = printer.emit(f"stablehlo.add {begin}, {extent} : {kind}")
    types = f"({value_type(x)}, {kind}, {kind}, {kind}) -> {value_type(op.result)}"
    text = f"stablehlo.real_dynamic_slice {printer.names[x]}, {begin}, {end}, {strides} : {types}"
    return printer.emit(text, op.loc)


def _concatenate(printer: _Printer, op: Op) -> str:
    return printer.op(op, f"stablehlo.concatenate {printer.operands(op)}, dim = {op.attrs['dim']}")


def _pad(printer: _Printer, op: Op) -> str:
    low, high, interior = op.attrs["low"], op.attrs["high"], op.attrs["interior"]
    if _static(low, high, interior):
        edges = f"low = {listed(low)}, high = {listed(high)}, interior = {listed(interior)}"
        return printer.op(op, f"stablehlo.pad {printer.operands(op)}, {edges}")
    (lows, kind), (highs, _) = printer.shape(low), printer.shape(high)
    between, _ = printer.shape(interior)
    return printer.op(op, f"stablehlo.dynamic_pad {printer.operands(op)}, {lows}, {highs}, {between}", [kind] * 3)


def _reduce(printer: _Printer, op: Op) -> str:
    x, init = (printer.names[value] for value in op.operands)
    body = f"applies stablehlo.{REDUCERS[op.attrs['kind']]} across dimensions = {listed(op.attrs['dims'])}"
    return printer.op(op, f"stablehlo.reduce({x} init: {init}) {body}")


def _dot_general(printer: _Printer, op: Op) -> str:
    axes = {name: listed(op.attrs[name]) for name in ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")}
    batch = f"batching_dims = {axes['lhs_batch']} x {axes['rhs_batch']}, " if op.attrs["lhs_batch"] else ""
    contract = f"contracting_dims = {axes['lhs_contract']} x {axes['rhs_contract']}"
    exact = not op.attrs["tf32"] and all(x.dtype == np.float32 for x in (*op.operands, op.result))
    precision = ", precision = [HIGHEST, HIGHEST]" * exact
    return printer.op(op, f"stablehlo.dot_general {printer.operands(op)}, {batch}{contract}{precision}")


_PRINTERS: dict[str, Callable[[_Printer, Op], str | Sequence[str]]] = {
    "bitcast_convert": _bitcast_convert,
    "compare": _compare,
    "reduce_precision": _reduce_precision,
    "constant": _constant,
    "iota": _iota,
    "dim": _dim,
    "broadcast": _broadcast,
    "reshape": _shaped,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _operands_alone,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce": _reduce,
    **print_control.PRINTERS,
    **print_indexing.PRINTERS,
    **print_reduce.PRINTERS,
    "dot_general": _dot_general,
    "convolution": print_convolution.convolution,
    "custom_call": print_library.custom_call,
    "fft": print_library.fft,
}
_PRINTED = {name for name, row in OPS.items() if row.dialect and (row.kind != "elementwise" or name in _PRINTERS)}
assert _PRINTERS.keys() == _PRINTED, _PRINTERS.keys() ^ _PRINTED
