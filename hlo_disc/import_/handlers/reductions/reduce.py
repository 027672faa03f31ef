"""Reductions with any region, `map`, and the regions themselves: functions of scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value
from hlo_disc.dynamic_hlo.ops.families.combiners import BOOLEAN, KINDS, monoid_kind, scalar_region
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import ints

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _reduce(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    values = [r.data(x) for x in operands]
    _need_scalars(r, values[len(values) // 2 :])
    dims = tuple(sorted(r.attr(op, "dimensions", ints)))
    kind = _monoid(op) if len(values) == 2 else None
    if kind is not None and values[0].dtype == values[1].dtype:
        if values[0].dtype == np.bool_:
            kind = BOOLEAN.get(kind, kind)
        return r.emit("reduce", values, dims=dims, kind=kind)
    region = op.regions[0]
    xs, inits = operands_of(r, region, values)
    r.same_shape(xs)
    body, captured = scalar_body(r, region, [x.dtype for x in (*xs, *xs)])
    return make_reduce(r, xs, inits, captured, dims, body)


def _monoid(op: ir.OpView) -> str | None:
    """Return the reduction of a one-op region without building the region: nearly all are such."""
    block = op.regions[0].blocks[0]
    body = list(block.operations)
    if len(body) != 2 or set(body[0].operands) != set(block.arguments):
        return None
    if list(body[1].operands) != list(body[0].results):
        return None
    return KINDS.get(body[0].operation.name.removeprefix("stablehlo."))


def make_reduce(
    r: Reader,
    xs: Sequence[Value],
    inits: Sequence[Value],
    captured: Sequence[Value],
    dims: tuple[int, ...],
    body: Region,
) -> Sequence[Value]:
    """Emit a reduction, by name if the body is a named monoid."""
    kind = monoid_kind(body) if not captured else None
    if kind is not None:
        return [r.emit("reduce", (*xs, *inits), dims=dims, kind=kind)]
    return r.emit_all("reduce_with", (*xs, *inits, *captured), dims=dims, body=body)


def operands_of(r: Reader, region: ir.Region, values: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Convert operands and initial values to the types that the region combines: a bf16 tensor may be summed in f32."""
    n = len(values) // 2
    _need_scalars(r, values[n:])
    types = [r.decoder.tensor(argument.type)[0] for argument in region.blocks[0].arguments]
    typed = [x if x.dtype == t else r.emit("convert", (x,), dtype=t) for x, t in zip(values, types, strict=True)]
    return typed[:n], typed[n:]


def _need_scalars(r: Reader, inits: Sequence[Value]) -> None:
    for init in inits:
        if init.rank:
            r.unsupported(f"an initial value must be a scalar, not {init!r}")


def scalar_body(r: Reader, region: ir.Region, types: Sequence[np.dtype]) -> tuple[Region, tuple[Value, ...]]:
    """Return a region over scalars of these types, and the scalars from outside that it reads."""
    body, captured = r.region(region, [Value(t, (), None, i) for i, t in enumerate(types)])
    scalars = scalar_region(body)
    if scalars is None:
        r.unsupported("its region must compute on scalars, element by element")
    return scalars, captured


def _map(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Apply the region's ops to whole tensors."""
    xs = [r.data(x) for x in operands]
    r.same_shape(xs)
    region, captured = scalar_body(r, op.regions[0], [x.dtype for x in xs])
    values: dict[Value, Value] = dict(zip(region.inputs, (*xs, *captured), strict=True))
    for inner in region.ops:
        values[inner.result] = _on_tensors(r, inner, [values[x] for x in inner.operands])
    (result,) = (values[v] for v in region.outputs)
    return _spread(r, result, xs[0])


def _on_tensors(r: Reader, op: Op, operands: Sequence[Value]) -> Value:
    wide = max(operands, key=lambda x: x.rank, default=None)
    if wide is not None:
        operands = [_spread(r, x, wide) for x in operands]
    return r.emit(op.name, operands, **op.attrs)


def _spread(r: Reader, x: Value, like: Value) -> Value:
    return x if x.rank == like.rank else r.emit("broadcast", (x,), shape=like.shape, dims=())


HANDLERS: dict[str, Handler] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.map": _map,
}
