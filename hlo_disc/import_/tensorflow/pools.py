"""Pools with their gradients, and gradients of these: windows whose elements are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.expr import I64
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.ops.combiners import identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.elements import ZERO
from hlo_disc.import_.handlers.arrays import Array, array, filled
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import ints, result_dtype
from hlo_disc.import_.tensorflow.windows import Pad, Spatial

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader


def windowed(x: Array, kind: str, window: Sequence[int], strides: Sequence[int], pads: Sequence[Pad]) -> Array:
    """The elements of windows combined; padding changes nothing."""
    init = filled(x.r, identity(kind, x.dtype), x.dtype, ())
    if kind == "max" and x.dtype.kind not in "iu":
        init = filled(x.r, -np.inf, x.dtype, ())
    return x.emit(
        "reduce_window",
        init,
        **_window(x, window, strides, pads),
        base_dilations=(1,) * x.rank,
        window_dilations=(1,) * x.rank,
        body=monoid_region(kind, x.dtype),
    )


def _window(x: Array, window: Sequence[int], strides: Sequence[int], pads: Sequence[Pad]) -> dict[str, Any]:
    return {
        "window": tuple(map(Dim.const, window)),
        "strides": tuple(strides),
        "low": tuple(Dim.of(low) for low, _ in pads),
        "high": tuple(x.r.facts.canonical(Dim.of(high)) for _, high in pads),
    }


Numbers = tuple[Sequence[int], Sequence[int], list[Pad]]


def _pooling(r: Reader, op: Any, shape: Sequence[Dim], given: Sequence[Operand] = ()) -> Numbers:
    """Window, strides and padding of every axis. given: window and strides, where they are operands."""
    space = Spatial(op, len(shape))
    if given:
        window, strides = (ints(r, x, "windows and strides") for x in given)
    else:
        window, strides = op.attributes["ksize"], op.attributes["strides"]
    sizes, windows = ([source[a] for a in space.axes] for source in (shape, list(map(Dim.const, window))))
    pads: list[Pad] = [(0, 0)] * len(shape)
    for a, pair in zip(space.axes, space.pads(r, sizes, windows, [strides[a] for a in space.axes]), strict=True):
        pads[a] = pair
    return window, strides, pads


def _max_pool(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return windowed(x, "max", *_pooling(r, op, x.shape, operands[1:])).value


def _avg_pool(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    numbers = _pooling(r, op, x.shape)
    return (windowed(x, "add", *numbers) / _taken(x, *numbers)).value


def _taken(x: Array, window: Sequence[int], strides: Sequence[int], pads: Sequence[Pad]) -> Array:
    """How many elements each window has."""
    if all(Dim.of(d) is ZERO for pair in pads for d in pair):
        return x.like(int(np.prod(window)))
    return windowed(filled(x.r, 1, x.dtype, x.shape), "add", window, strides, pads)


def _max_pool_grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x, _, dy = (array(r, o) for o in operands[:3])
    numbers = _window(x, *_pooling(r, op, x.shape, operands[3:]))
    scalars = [(x.dtype, ())] * 2
    select = make_region(r.facts, scalars, lambda b, v: [b.op("compare", v, direction="GE")])
    return x.emit(
        "select_and_scatter", dy, dy.like(0), **numbers, select=select, body=monoid_region("add", x.dtype)
    ).value


def _avg_pool_grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """Every window gives its elements an equal part: a sum over the windows that an element is in."""
    shape, dy = r.sizes(operands[0]), array(r, operands[1])
    window, strides, pads = _pooling(r, op, shape)
    like = filled(r, 0, dy.dtype, shape)
    part = dy / _taken(like, window, strides, pads)
    low = [w - 1 - Dim.of(before) for w, (before, _) in zip(map(Dim.const, window), pads, strict=True)]
    high = []
    for a, n in enumerate(shape):
        reach = (part.shape[a] - 1) * strides[a] + 1
        high.append(r.facts.canonical(n + window[a] - 1 - low[a] - reach))
    gaps = tuple(Dim.const(s - 1) for s in strides)
    wide = part.emit("pad", part.like(0), low=tuple(low), high=tuple(high), interior=gaps)
    return windowed(wide, "add", window, [1] * len(window), [(0, 0)] * len(window)).value


def _largest(x: Array, numbers: Numbers) -> tuple[Array, Array]:
    """The maximum of each window, and its place in the tensor, counted in row-major order; of equal ones the first."""
    r = x.r
    place = filled(r, 0, I64, x.shape)
    for axis, n in enumerate(x.shape):
        place = place * n + x.iota(axis, I64)
    last = filled(r, np.iinfo(np.int64).max, I64, ())
    least = x.like(-np.inf) if x.dtype.kind not in "iu" else x.like(identity("max", x.dtype))

    def build(b: Any, values: Any) -> list[Any]:
        most, at, other, place = values
        equal = b.op(
            "and", (b.op("compare", (most, other), direction="EQ"), b.op("compare", (at, place), direction="LE"))
        )
        kept = b.op("or", (b.op("compare", (most, other), direction="GT"), equal))
        return [b.op("select", (kept, most, other)), b.op("select", (kept, at, place))]

    body = make_region(r.facts, [(x.dtype, ()), (I64, ())] * 2, build)
    ones = (1,) * x.rank
    holes = {"base_dilations": ones, "window_dilations": ones}
    values = (x.value, place.value, least.value, last.value)
    made, at = r.emit_all("reduce_window", values, **_window(x, *numbers), **holes, body=body)
    return Array(r, made), Array(r, at)


def _max_pool_grad_grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """Take the element of the gradient where each window has its maximum."""
    x, _, dy = (array(r, o) for o in operands[:3])
    _, at = _largest(x, _pooling(r, op, x.shape, operands[3:]))
    return dy.reshape((dim_product(dy.shape),)).take(at, 0).value


def _max_pool_places(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """Places are counted in an image, or in all of them."""
    x = array(r, operands[0])
    made, at = _largest(x, _pooling(r, op, x.shape))
    if not op.attributes.get("include_batch_in_index", False):
        each = filled(r, dim_product(x.shape[1:]), I64).maximum(1)
        at = at.op("remainder", each)
    return [made.value, at.cast(result_dtype(op, 1)).value]


def _max_pool_grad_at(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """The gradient at the places of the maxima."""
    x, dy, at = (array(r, o) for o in operands)
    count = dim_product(x.shape)
    place = at.cast(I64)
    if not op.attributes.get("include_batch_in_index", False):
        place = place + place.iota(0, I64) * dim_product(x.shape[1:])
    flat = (dim_product(dy.shape),)
    made = filled(r, 0, dy.dtype, (count,))
    made = made.scatter(place.reshape(flat).expand(1), dy.reshape(flat), 1, monoid_region("add", dy.dtype))
    return made.reshape(x.shape).value


HANDLERS: dict[str, Handler] = {
    "AvgPool": _avg_pool,
    "AvgPool3D": _avg_pool,
    "AvgPool3DGrad": _avg_pool_grad,
    "AvgPoolGrad": _avg_pool_grad,
    "MaxPool": _max_pool,
    "MaxPool3D": _max_pool,
    "MaxPool3DGrad": _max_pool_grad,
    "MaxPool3DGradGrad": _max_pool_grad_grad,
    "MaxPoolGrad": _max_pool_grad,
    "MaxPoolGradGrad": _max_pool_grad_grad,
    "MaxPoolGradGradV2": _max_pool_grad_grad,
    "MaxPoolGradWithArgmax": _max_pool_grad_at,
    "MaxPoolGradV2": _max_pool_grad,
    "MaxPoolV2": _max_pool,
    "MaxPoolWithArgmax": _max_pool_places,
}
