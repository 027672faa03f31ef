"""`chlo.scan`: a function of an element and of carried values, applied to the elements of an axis in turn.

(x, carry) -> (y, carry). If the output is the carried value, and the function a sum, product, maximum … of its two
operands, the scan is a cumulative op. Everything else is a loop. Source: XLA's operation semantics, "Scan".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value, make_op, substitute
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs, identity, monoid_kind, monoid_region
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.arrays import Array, filled, loop
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import integer, ints
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


@frozen
class _Scan:
    """The op: `region` takes an element of each x, then the carried values; it returns its outputs, then the carried
    values."""

    xs: tuple[Value, ...]
    inits: tuple[Value, ...]
    captured: tuple[Value, ...]
    region: Region
    dim: int
    reverse: bool

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs of the region for each element."""
        return self.region.outputs[: len(self.region.outputs) - len(self.inits)]

    @property
    def carried(self) -> tuple[Value, ...]:
        return self.region.outputs[len(self.outputs) :]


def _scan(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    count, carried = r.attr(op, "operandSegmentSizes", ints)
    values = [r.data(x) for x in operands]
    xs, inits = tuple(values[:count]), tuple(values[count:])
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    if not xs or any(not 0 <= dim < x.rank for x in xs):
        r.unsupported(f"a scan along dimension {dim} needs operands that have it")
    if "scan_dim_size" in op.attributes:
        written = Dim.const(r.attr(op, "scan_dim_size", integer))
        r.equal(xs[0].shape[dim], written, "the length of a scan and its scan_dim_size")
    for x in xs[1:]:
        r.equal(xs[0].shape[dim], x.shape[dim], "the lengths of two operands of a scan")
    kinds = [(x.dtype, (*x.shape[:dim], *x.shape[dim + 1 :])) for x in xs] + [(v.dtype, v.shape) for v in inits]
    inputs = [Value(t, shape, None, i) for i, (t, shape) in enumerate(kinds)]
    region, captured = r.region(op.regions[0], inputs)
    for value, init in zip(region.outputs[len(region.outputs) - carried :], inits, strict=True):
        for axis, (a, b) in enumerate(zip(value.shape, init.shape, strict=True)):
            r.equal(a, b, f"dimension {axis} of what the scan carries, before and after,")
    reverse = "is_reverse" in op.attributes and ir.BoolAttr(op.attributes["is_reverse"]).value
    scan = _Scan(xs, inits, captured, region, dim, reverse)
    return _as_cumulative(r, scan) or _as_loop(r, scan)


def _as_cumulative(r: Reader, scan: _Scan) -> list[Value] | None:
    """Emit a cumulative op if every output is a carried value, combined by a monoid with one operand; else None."""
    n = len(scan.xs)
    if scan.captured or len(scan.inits) != n or scan.outputs != scan.carried:
        return None
    results, last = [], []
    for k, (x, init, output) in enumerate(zip(scan.xs, scan.inits, scan.outputs, strict=True)):
        op = output.op
        pair = scan.region.inputs[k], scan.region.inputs[n + k]
        if op is None or set(op.operands) != set(pair) or x.dtype != init.dtype:
            return None
        body = _scalar(op)
        kind = monoid_kind(body) if body is not None else None
        if kind is None:
            return None
        start, body = r.constant(identity(kind, x.dtype)), monoid_region(kind, x.dtype)
        if not absorbs(body, [start]):
            return None
        (running,) = r.emit_all("cumulative", (x, start), dim=scan.dim, reverse=scan.reverse, body=body)
        name = body.ops[0].name
        dims = tuple(a for a in range(x.rank) if a != scan.dim)
        before = r.emit("broadcast", (init,), shape=x.shape, dims=dims)
        results.append(r.emit(name, (before, running)))
        last.append(r.emit(name, (init, r.emit("reduce", (x, start), dims=(scan.dim,), kind=kind))))
    return [*results, *last]


def _scalar(op: Op) -> Region | None:
    """Return an elementwise op of two tensors as a region over scalars."""
    inputs = tuple(Value(x.dtype, (), None, i) for i, x in enumerate(op.operands))
    if OPS[op.name].kind != "elementwise":
        return None
    made = make_op(op.name, inputs, op.attrs, [(op.result.dtype, ())], op.loc)
    return Region(inputs, (made,), made.results)


def _as_loop(r: Reader, scan: _Scan) -> list[Value]:
    """Emit a `while` over the elements."""
    length = scan.xs[0].shape[scan.dim]
    wide = [(*v.shape[: scan.dim], length, *v.shape[scan.dim :]) for v in scan.outputs]
    empty = [filled(r, 0, v.dtype, shape) for v, shape in zip(scan.outputs, wide, strict=True)]
    xs, inits = ([Array(r, x) for x in values] for values in (scan.xs, scan.inits))

    def step(number: Array, *state: Array) -> list[Array]:
        carried, made = state[: len(inits)], state[len(inits) :]
        at = filled(r, length - 1, I64) - number if scan.reverse else number
        given = [*(x.window(scan.dim, at).squeeze(scan.dim) for x in xs), *carried]
        values = dict(zip(scan.region.inputs, (*(x.value for x in given), *scan.captured), strict=True))
        for op in scan.region.ops:
            copy = substitute(op, values)
            r.builder.ops.append(copy)
            values.update(zip(op.results, copy.results, strict=True))
        rows = [Array(r, values[output]).expand(scan.dim) for output in scan.outputs]
        stored = [x.put(scan.dim, at, row) for x, row in zip(made, rows, strict=True)]
        return [number + 1, *(Array(r, values[v]) for v in scan.carried), *stored]

    if length != ZERO:
        _, *final = loop(r, lambda number, *_: number < length, step, [filled(r, 0, I64), *inits, *empty])
        inits, empty = final[: len(inits)], final[len(inits) :]
    return [x.value for x in (*empty, *inits)]


HANDLERS: dict[str, Handler] = {
    "chlo.scan": _scan,
}
