"""Pools with their gradients, and gradients of these: windows whose elements are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.import_.formulas.windows import Pad, Pool, numbered
from hlo_disc.import_.handlers.arrays import Array, array, filled
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import ints, result_dtype
from hlo_disc.import_.tensorflow.windows.windows import Spatial

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _pooling(r: Reader, op: Node, shape: Sequence[Dim], given: Sequence[Operand] = ()) -> Pool:
    """Return window, strides and padding of every axis. given: window and strides, if they are operands."""
    space = Spatial(op, len(shape))
    if given:
        window, strides = (ints(r, x, "windows and strides") for x in given)
    else:
        window, strides = op.attributes["ksize"], op.attributes["strides"]
    sizes, windows = ([source[a] for a in space.axes] for source in (shape, list(map(Dim.const, window))))
    pads: list[Pad] = [(0, 0)] * len(shape)
    for a, pair in zip(space.axes, space.pads(r, sizes, windows, [strides[a] for a in space.axes]), strict=True):
        pads[a] = pair
    return Pool(list(map(Dim.const, window)), strides, pads, [1] * len(shape))


def _least(x: Array) -> float | None:
    """Return the start of a maximum if it is not the type's least number."""
    return None if x.dtype.kind in "iu" else -np.inf


def _max_pool(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return _pooling(r, op, x.shape, operands[1:]).reduce(x, "max", _least(x)).value


def _avg_pool(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    pool = _pooling(r, op, x.shape)
    return (pool.reduce(x, "add") / _taken(x, pool)).value


def _taken(x: Array, pool: Pool) -> Array:
    """Count the elements of each window."""
    if all(Dim.of(d) is ZERO for pair in pool.pads for d in pair):
        return x.like(dim_product(pool.window))
    return pool.reduce(filled(x.r, 1, x.dtype, x.shape), "add")


def _max_pool_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, _, dy = (array(r, o) for o in operands[:3])
    return _pooling(r, op, x.shape, operands[3:]).chosen(x, dy).value


def _avg_pool_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient of a mean: every window gives its elements equal parts."""
    shape, dy = r.sizes(operands[0]), array(r, operands[1])
    pool = _pooling(r, op, shape)
    return pool.spread(dy / _taken(filled(r, 0, dy.dtype, shape), pool), shape).value


def _largest(x: Array, pool: Pool) -> list[Array]:
    """Return the maximum of each window, and its row-major position in the tensor; of equal ones the first."""
    return pool.maxima(x, numbered(x.r, x.shape, x.rank), _least(x), nans=False)


def _max_pool_grad_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Take the element of the gradient at the maximum of each window."""
    x, _, dy = (array(r, o) for o in operands[:3])
    _, at = _largest(x, _pooling(r, op, x.shape, operands[3:]))
    return dy.flat().take(at, 0).value


def _max_pool_places(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the positions, counted in an image or in the whole tensor."""
    x = array(r, operands[0])
    made, at = _largest(x, _pooling(r, op, x.shape))
    if not op.attributes.get("include_batch_in_index", False):
        each = filled(r, dim_product(x.shape[1:]), I64).maximum(1)
        at = at.op("remainder", each)
    return [made.value, at.cast(result_dtype(op, 1)).value]


def _max_pool_grad_at(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient at the positions of the maxima."""
    x, dy, at = (array(r, o) for o in operands)
    place = at.cast(I64)
    if not op.attributes.get("include_batch_in_index", False):
        place = place + place.iota(0, I64) * dim_product(x.shape[1:])
    made = filled(r, 0, dy.dtype, (dim_product(x.shape),)).scatter(place.flat().expand(1), dy.flat(), 1, "add")
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
