"""Sorts, and ops that keep the first elements of a sort."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.dynamic_hlo.ops.expr import I32, Array, formula_region
from hlo_disc.dynamic_hlo.ops.orders import total_order
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.reductions.reduce import scalar_body
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.handlers.views import make_slice
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import integer, ints
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


def _sort(r: Reader, op: ir.OpView, operands: list[Operand]) -> Sequence[Value]:
    xs = [r.data(x) for x in operands]
    body, captured = scalar_body(r, op.regions[0], [x.dtype for x in xs for _ in range(2)])
    dim = r.attr(op, "dimension", integer) if "dimension" in op.attributes else -1
    stable = "is_stable" in op.attributes and r.attr(op, "is_stable", bool)
    return make_sort(r, xs, body, captured, dim % xs[0].rank, stable)


def make_sort(
    r: Construction, xs: Sequence[Value], body: Region, captured: Sequence[Value], dim: int, stable: bool
) -> Sequence[Value]:
    """Sort operands along an axis by a region, with the values it captures."""
    r.same_shape(xs)
    return r.emit_all("sort", (*xs, *captured), dim=dim, stable=stable, count=len(xs), body=body)


def first_operand_order(
    r: Construction, xs: Sequence[Value], descending: bool = False, key: Callable[[Array], Array] = total_order
) -> Region:
    """Return the region that sorts operands together, by keys of the first."""
    before, types = operator.gt if descending else operator.lt, [x.dtype for x in xs for _ in range(2)]
    return formula_region(r.facts, types, lambda x, y, *_: [before(key(x), key(y))])


def _first(r: Reader, x: Value, dim: int, k: Dim) -> Value:
    """Take the first k elements along an axis."""
    r.at_most(k, x.shape[dim], f"the {{0}} elements to take of dimension {dim} are more than its {{1}}")
    limit = tuple(k if axis == dim else n for axis, n in enumerate(x.shape))
    return make_slice(r, x, (ZERO,) * x.rank, limit, (1,) * x.rank)


def _top_k(r: Reader, op: ir.OpView, operands: list[Operand]) -> Sequence[Value]:
    """Return the largest (or smallest) elements of the last axis in order, and indices; of equal ones the first."""
    attributes: ir.OpAttributeMap | ir.DictAttr = op.attributes
    if "mhlo.attributes" in attributes:  # a custom call that stands for the op
        attributes = ir.DictAttr(attributes["mhlo.attributes"])
    largest = "largest" not in attributes or bool(attributes["largest"])
    return take_top(r, r.data(operands[0]), Dim.const(integer(attributes["k"])), largest)


def _dynamic_top_k(r: Reader, op: ir.OpView, operands: list[Operand]) -> Sequence[Value]:
    (k,) = r.dims(operands[1])
    return take_top(r, r.data(operands[0]), k, True)


def take_top(r: Reader, x: Value, k: Dim, largest: bool) -> Sequence[Value]:
    """Return the first k elements of sorted rows, and their indices."""
    dim = x.rank - 1
    where = r.emit("iota", (), shape=x.shape, dim=dim, dtype=I32)
    body = first_operand_order(r, [x, where], largest)
    return [_first(r, y, dim, k) for y in make_sort(r, [x, where], body, (), dim, True)]


def _approx_top_k(r: Reader, op: ir.OpView, operands: list[Operand]) -> Sequence[Value]:
    """Sort exactly, as XLA does on a CPU, by a function of the module, and cut to the result's size."""
    config, count = ir.DictAttr(op.attributes["mhlo.backend_config"]), len(op.results)
    xs = [r.data(x) for x in operands[:count]]
    dim = integer(config["reduction_dim"])
    (name,) = ir.ArrayAttr(op.attributes["called_computations"])
    region = r.functions[ir.FlatSymbolRefAttr(name).value].regions[0]
    body, captured = scalar_body(r, region, [x.dtype for x in xs for _ in range(2)])
    if "indices_of_shape_operands" in op.attributes:
        k = r.sizes(operands[r.attr(op, "indices_of_shape_operands", ints)[0]])[dim]
    else:
        k = Dim.const(r.static_sizes(op)[dim])
    return [_first(r, x, dim, k) for x in make_sort(r, xs, body, captured, dim, True)]


HANDLERS: dict[str, Handler] = {
    "stablehlo.sort": _sort,
    "chlo.top_k": _top_k,
    "chlo.topk": _top_k,  # how the op is called as a custom call
}
CUSTOM_CALLS: dict[str, Handler] = {
    "stablehlo.dynamic_top_k": _dynamic_top_k,
    "ApproxTopK": _approx_top_k,
}
