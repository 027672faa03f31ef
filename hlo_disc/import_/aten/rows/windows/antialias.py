"""Resizing in which a pixel is the mean of all that it covers: a product with a matrix of weights for each axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.formulas.images import cubic, triangle, weighed
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

Factor = float | Array | None
Kernel = Callable[[Array], Array]


def _weights(
    r: AtenReader, before: Dim, after: Dim, kernel: Kernel, reach: int, align: bool, factor: Factor, dtype: np.dtype
) -> Array:
    """Return the weights (after, before) of the old elements in each new one. reach: the whole width of the kernel."""
    if factor is not None and not align:
        scale = r.scalar(1, dtype) / factor
    else:
        sizes = [r.scalar(d - 1 if align else d, dtype) for d in (before, after)]
        scale = sizes[0] / sizes[1]
        scale = where(sizes[1] <= 0, 0, scale) if align else scale
    wide = scale.maximum(1)
    row, column = (iota(r, (after, before), axis, I64).cast(dtype) for axis in (0, 1))
    centre = (row + 0.5) * scale
    support = wide * (reach / 2)
    first = (centre - support + 0.5).op("floor")
    last = (centre + support + 0.5).op("floor")
    inside = (column >= first) & (column < last)
    distance = (column - centre + 0.5) / wide
    made = where(inside, kernel(abs(distance)), 0)
    return made / made.sum(1, keep=True).broadcast(made.shape)


def _resized(kernel: Kernel, reach: int, is_gradient: bool = False) -> Callable[..., Array]:
    def handle(r: AtenReader, x: Array, _: object, align: bool, *factors: Factor) -> Array:
        dtype, factors = computed(x.dtype), factors or (None, None)
        before, after = (r.out.shape, x.shape) if is_gradient else (x.shape, r.out.shape)
        made = x.cast(dtype)
        for axis, factor in zip((3, 2), factors[::-1], strict=True):
            weights = _weights(r, before[axis], after[axis], kernel, reach, align, factor, dtype)
            made = weighed(made, weights if is_gradient else weights.transpose((1, 0)), axis)
        return made.cast(r.out.dtype)

    return handle


_GRADIENT = _resized(triangle, 2, is_gradient=True)
ROWS: dict[str, Callable[..., Any]] = {
    "aten._upsample_bilinear2d_aa.default": _resized(triangle, 2),
    "aten._upsample_bicubic2d_aa.default": _resized(cubic, 4),
    "aten._upsample_bilinear2d_aa_backward.default": lambda r, x, _, *rest: _GRADIENT(r, x, *rest),
}
