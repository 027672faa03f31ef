"""Maxima of windows whose positions follow from random numbers, so that there are as many as wanted.

Source: B. Graham, "Fractional Max-Pooling", arXiv:1412.6071; places as PyTorch rounds them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hlo_disc.import_.aten.rows.windows.pools import maxima_backward
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _starts(sample: Tensor, size: int, count: int, window: int) -> Tensor:
    """Return where windows begin along an axis, (…, count), for samples of shape (…), computed in PyTorch's type."""
    step = torch.full((), size - window, dtype=sample.dtype) / max(count - 1, 1)
    places = torch.arange(count - 1, dtype=sample.dtype) + sample[..., None]
    first = (places * step).long() - (sample * step).long()[..., None]
    last = torch.full((), size - window).expand(*sample.shape, 1)
    return torch.cat([first, last], -1)


def _maxima(x: Tensor, samples: Tensor, window: Sequence[int], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return maxima and their numbers within the last axes: of equal ones the first, of NaNs the last.

    x: (n, c, *sizes), or without n. samples: (n or more, c, an axis's each); of two axes the last one has the first.
    """
    spatial = len(window)
    batched = x if x.dim() == spatial + 2 else x[None]
    sizes, samples = batched.shape[2:], samples[: batched.shape[0]]
    at = torch.zeros((), dtype=torch.int64)
    for axis, (size, count, k) in enumerate(zip(sizes, counts, window, strict=True)):
        starts = _starts(samples[..., spatial - 1 - axis if spatial == 2 else axis], size, count, k)
        rows = starts[..., None] + torch.arange(k)  # (n, c, count, k)
        shape = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = count, k
        at = at * size + rows.reshape(*rows.shape[:2], *shape)
    at = at.flatten(2 + spatial)
    lines = batched.flatten(2)
    found = lines.gather(2, at.flatten(2)).view(at.shape)
    nan = found.isnan()
    of_nans = math.prod(window) - 1 - nan.flip(-1).to(torch.uint8).argmax(-1)
    chosen = torch.where(nan.any(-1), of_nans, found.argmax(-1))[..., None]
    made = found.gather(-1, chosen)[..., 0], at.gather(-1, chosen)[..., 0]
    return made if x is batched else (made[0][0], made[1][0])


def _pool(r: AtenReader, x: Array, window: Sequence[Size], counts: Sequence[Size], samples: Array) -> list[Array]:
    known = tuple(map(r.fixed, window)), tuple(map(r.fixed, counts))
    formula = functools.partial(_maxima, window=known[0], counts=known[1])
    return r.call(r.traced(formula, [r.meta(0), r.meta(3)]), [x, samples])


ROWS: dict[str, Callable[..., Any]] = {
    "aten.fractional_max_pool2d.default": _pool,
    "aten.fractional_max_pool3d.default": _pool,
    "aten.fractional_max_pool2d_backward.default": maxima_backward(2),
    "aten.fractional_max_pool3d_backward.default": maxima_backward(3),
}
