"""Ops of torchvision over regions of images."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hlo_disc.dynamic_hlo.ops.expr import F64, I32, I64
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.sorting import ordered
from hlo_disc.import_.formulas.boxes import suppressed
from hlo_disc.import_.handlers.arrays import Array, filled

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _between(places: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Return the two rows of a picture around each position, and their weights: 0 if the position is outside."""
    inside = (places >= -1) & (places <= size)
    places = places.clamp(0, size - 1)
    low = places.long()
    part = places - low
    return [(low, (1 - part) * inside), ((low + 1).clamp(max=size - 1), part * inside)]


def _aligned(x: Tensor, regions: Tensor, *shape: int, scale: float, samples: int, offset: float) -> Tensor:
    """The means of `samples` by `samples` interpolated places in each of the bins into which a region is cut.

    x: (batch, channels, height, width). regions: (n, 5), each its picture's number and its corners, times `scale`.
    shape: the number of bins. offset: subtracted from a corner. Without one, regions have a size of at least 1.
    """
    corners = regions[:, 1:] * scale - offset
    taken = []
    for axis, (bins, size) in enumerate(zip(shape, x.shape[2:], strict=True)):
        start, end = corners[:, 1 - axis, None], corners[:, 3 - axis, None]
        length = end - start if offset else (end - start).clamp(min=1)
        within = (torch.arange(bins * samples) + 0.5) / samples
        taken.append(_between(start + within.to(x.dtype) * (length / bins), size))
    picture = regions[:, 0].long()[:, None, None]
    parts = [
        x[picture, :, y[:, :, None], z[:, None, :]] * (a[:, :, None] * b[:, None, :])[..., None]
        for y, a in taken[0]
        for z, b in taken[1]
    ]
    cut = sum(parts[1:], parts[0]).unflatten(2, (shape[1], samples)).unflatten(1, (shape[0], samples))
    return cut.mean((2, 4)).permute(0, 3, 1, 2).to(x.dtype)


def _roi_align(
    r: AtenReader, x: Array, regions: Array, scale: float, height: Dim, width: Dim, samples: int, aligned: bool
) -> Array:
    if samples <= 0:
        r.unsupported("as many samples as a region's size says are not supported: sampling_ratio must be above 0")
    formula = functools.partial(_aligned, scale=scale, samples=samples, offset=0.5 if aligned else 0.0)
    known = [r.meta(i) for i in (0, 1, 3, 4)]  # how many bins there are may be symbols
    return r.call(r.traced(formula, known), [x, regions, height, width])[0]


def _nms(r: AtenReader, boxes: Array, scores: Array, threshold: float) -> Array:
    """Return the numbers of the boxes that are kept, in the order of a sort of their scores, NaNs first."""
    n = boxes.shape[0]
    _, order = ordered(r, scores, 0, descending=True)
    _, rank = ordered(r, order, 0)
    scores = -rank.cast(F64).expand(0)
    kept = suppressed(boxes.expand(0), scores, n, filled(r, n, I32), threshold, any_corners=False)
    size = r.data.size(kept.number.reshape(()).cast(I64))
    r.facts.add_at_most(size, n)
    return kept.chosen.flat().slice(0, 0, size).cast(I64)


ROWS: dict[str, Callable[..., Any]] = {
    "torchvision.nms.default": _nms,
    "torchvision.roi_align.default": _roi_align,
}
