"""Reductions over windows: pooling, prefix sums as JAX writes them, and the gradient of max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value, copied, with_captures
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.families import reductions
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.dynamic_hlo.sizes.windows import padded, positions
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.reductions.reduce import make_reduce, operands_of, scalar_body
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import ints
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


@frozen
class Window:
    """The attributes of a window op, one entry for each axis."""

    window: Shape
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    low: Shape
    high: Shape

    def still(self, axis: int) -> bool:
        """Does the window take each element of the axis alone?"""
        sizes = self.window[axis], self.low[axis], self.high[axis]
        return sizes == (ONE, ZERO, ZERO) and self.strides[axis] == self.base_dilations[axis] == 1

    def plain(self, axis: int) -> bool:
        """Is the window without strides and holes on the axis?"""
        return self.strides[axis] == self.base_dilations[axis] == self.window_dilations[axis] == 1

    def inside(self, axis: int) -> bool:
        """Does the axis have neither padding nor holes?"""
        edges = self.low[axis], self.high[axis]
        return self.base_dilations[axis] == 1 and all(d.is_const and d.value <= 0 for d in edges)


def _static_window(r: Reader, op: ir.OpView, x: Value) -> Window:
    """Read the window of an op of static form.

    When a module is re-opened, a window over the whole axis, or over all elements before or after one, stays such a
    window.
    """
    ones = (1,) * x.rank

    def numbers(name: str) -> tuple[int, ...]:
        return r.attr(op, name, ints) if name in op.attributes else ones

    pairs = r.attr(op, "padding", ints) if "padding" in op.attributes else (0,) * (2 * x.rank)
    written = r.decoder.tensor(op.operands[0].type)[1]
    window, low, high = [], [], []
    for d, size, n, before, after in zip(
        x.shape, written, numbers("window_dimensions"), pairs[::2], pairs[1::2], strict=True
    ):
        whole = not d.is_const and n == size and n > 1 and (before, after) in ((0, 0), (n - 1, 0), (0, n - 1))
        window.append(d if whole else Dim.const(n))
        low.append(d - 1 if whole and before else Dim.const(before))
        high.append(d - 1 if whole and after else Dim.const(after))
    strides, base, holes = map(numbers, ("window_strides", "base_dilations", "window_dilations"))
    return Window(tuple(window), strides, base, holes, tuple(low), tuple(high))


def _reduce_window(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    values = [r.data(x) for x in operands]
    return make_reduce_window(r, values, op.regions[0], _static_window(r, op, values[0]))


def dynamic_reduce_window(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    """`custom_call @stablehlo.dynamic_reduce_window`: sizes as operands, the region as a function."""
    *values, window, _, _, _, padding = operands
    pairs = r.dims(padding)
    strides, base, holes = (r.constants(r.dims(x), "strides and dilations") for x in operands[-4:-1])
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    function = r.functions.get(name)
    if function is None or not function.regions[0].blocks:
        r.unsupported(f"the module has no body for @{name}")
    sizes = Window(r.dims(window), strides, base, holes, pairs[::2], pairs[1::2])
    return make_reduce_window(r, [r.data(x) for x in values], function.regions[0], sizes)


def make_reduce_window(r: Reader, values: Sequence[Value], region: ir.Region, sizes: Window) -> Result:
    """Combine the elements of each window. values: operands, and as many initial values."""
    xs, inits = operands_of(r, region, values)
    r.same_shape(xs)
    body, captured = scalar_body(r, region, [x.dtype for x in (*xs, *xs)])
    operands, shape = (*xs, *inits, *captured), xs[0].shape
    moving = [a for a in range(len(shape)) if not sizes.still(a)]
    neutral = absorbs(body, inits)
    if not moving and neutral:
        return xs
    if neutral and len(moving) == 1 and sizes.plain(moving[0]):
        (axis,) = moving
        reverse = _prefix(r, shape[axis], sizes.window[axis], sizes.low[axis], sizes.high[axis])
        if reverse is not None:
            return r.emit_all("cumulative", operands, dim=axis, reverse=reverse, body=body)
    _check(r, shape, sizes)
    if moving and all(sizes.window_dilations[a] == sizes.base_dilations[a] == 1 for a in moving):
        if all(reductions.whole(shape[a], sizes.window[a], sizes.low[a], sizes.high[a], r.facts) for a in moving):
            small = make_reduce(r, xs, inits, captured, tuple(moving), body)
            wide = tuple(ONE if a in moving else n for a, n in enumerate(shape))
            return [r.emit("reshape", (x,), shape=wide) for x in small]
    if r.origin.xla_windows and not neutral and not all(map(sizes.inside, moving)):
        inside = r.emit("broadcast", (r.constant(np.array(True)),), shape=shape, dims=())
        operands = (*xs, inside, *inits, r.constant(np.array(False)), *captured)
        return r.emit_all("reduce_window", operands, **vars(sizes), body=_where_inside(r, body, len(xs)))[:-1]
    return r.emit_all("reduce_window", operands, **vars(sizes), body=body)


def _where_inside(r: Reader, body: Region, count: int) -> Region:
    """Return a body with one more operand, true inside the array: other elements change nothing, as in XLA.

    In the specification, padding and holes are initial values; of the new operand these are False.
    """

    def build(b: GraphBuilder, values: tuple[Value, ...]) -> list[Value]:
        before, state, after = values[:count], values[count], values[count + 1 : 2 * count + 1]
        inside, *captured = values[2 * count + 1 :]
        known = dict(zip(body.inputs, (*before, *after, *captured), strict=True))
        for op in body.ops:
            b.ops.append(copied(op, known))
        made = [known.get(x, x) for x in body.outputs]
        return [*(b.op("select", (inside, x, y)) for x, y in zip(made, before, strict=True)), state]

    side, captured = body.inputs[:count], body.inputs[2 * count :]
    dtypes = [*([*(x.dtype for x in side), BOOL] * 2), *(x.dtype for x in captured)]
    return make_region(r.facts, [(dtype, ()) for dtype in dtypes], build)


def _prefix(r: Reader, n: Dim, window: Dim, low: Dim, high: Dim) -> bool | None:
    """Whether a window combines all elements from one on (True), or up to one (False); None for other windows."""
    if n == ONE or Truth.YES not in (r.facts.equal(window, n), r.facts.equal(window, Dim.max(n, ONE))):
        return None
    for reverse, (before, after) in ((False, (low, high)), (True, (high, low))):
        if after == ZERO and r.facts.equal(before, window - 1) is Truth.YES:
            return reverse
    return None


def _check(r: Reader, shape: Shape, sizes: Window) -> None:
    for axis, n in enumerate(shape):
        r.at_most(ONE, sizes.window[axis], f"the window of dimension {axis} has the size {{1}}")
        extent = padded(n, sizes.base_dilations[axis], sizes.low[axis], sizes.high[axis], r.facts)
        r.at_most(ZERO, extent, f"dimension {axis} would be padded to the size {{1}}")


def _select_and_scatter(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, source, init = (r.data(v) for v in operands)
    return make_select_and_scatter(r, x, source, init, op.regions, _static_window(r, op, x))


def make_select_and_scatter(
    r: Reader, x: Value, source: Value, init: Value, regions: Sequence[ir.Region], sizes: Window
) -> Value:
    """Add each element of the source at the selected element of its window. regions: the selection, the combination."""
    pairs = [scalar_body(r, region, [x.dtype] * 2) for region in regions]
    (select, body), captured = with_captures(pairs, 2)
    _check(r, x.shape, sizes)
    strides, low, high = sizes.strides, sizes.low, sizes.high
    given = source.shape
    # The position of an element in its window's reach is kept in 32 bits.
    reach = dim_product(n for axis, n in enumerate(x.shape) if not sizes.still(axis))
    r.at_most(reach, Dim.const(np.iinfo(np.int32).max), "an operand of {0} elements a window axis is too large")
    result = r.emit(
        "select_and_scatter",
        (x, source, init, *captured),
        window=sizes.window,
        strides=strides,
        low=low,
        high=high,
        select=select,
        body=body,
    )
    for axis, n in enumerate(_positions(r, x.shape, sizes)):
        r.equal(given[axis], n, f"dimension {axis} of the source and of the windows")
    return result


def _positions(r: Reader, shape: Shape, sizes: Window) -> Shape:
    extents = (padded(n, 1, low, high, r.facts) for n, low, high in zip(shape, sizes.low, sizes.high, strict=True))
    rows = zip(extents, sizes.window, sizes.strides, strict=True)
    return tuple(positions(extent, window, stride, r.facts) for extent, window, stride in rows)


HANDLERS: dict[str, Handler] = {
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
CUSTOM_CALLS: dict[str, Handler] = {
    "stablehlo.dynamic_reduce_window": dynamic_reduce_window,
}
