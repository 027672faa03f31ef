"""torchvision beside a PyTorch that its library was not linked to: its ops, declared here.

The library of torchvision's usual package asks for a PyTorch with CUDA, and the package is not imported without it.
Where it loads, this file does nothing. Ops of which models here have no need are only names.
"""

from __future__ import annotations

import functools
import itertools
import math
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch

_NAMES = (
    "ps_roi_align", "_ps_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_pool", "_ps_roi_pool_backward",
    "_roi_align_backward", "qnms", "qroi_align", "deform_conv2d", "_deform_conv2d_backward",
)  # fmt: skip
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def _overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the intersection over union of boxes (n, 4) with others (m, 4), as (n, m)."""
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    sizes = [(x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b)]
    return shared / (sizes[0][:, None] + sizes[1] - shared)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    order = scores.sort(stable=True, descending=True).indices
    much, stays = _overlap(boxes[order], boxes[order]) > threshold, torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if stays[i]:
            stays[i + 1 :] &= ~much[i, i + 1 :]
    return order[stays]


def _at(x: torch.Tensor, y: float, z: float) -> torch.Tensor:
    """Return a picture (channels, height, width) at a point, interpolated; 0 where that is outside."""
    height, width = x.shape[1:]
    if not (-1 <= y <= height and -1 <= z <= width):
        return x.new_zeros(len(x))
    y, z = min(max(y, 0), height - 1), min(max(z, 0), width - 1)
    low, left = int(y), int(z)
    high, right = min(low + 1, height - 1), min(left + 1, width - 1)
    a, b = y - low, z - left
    upper, lower = (x[:, row, left] * (1 - b) + x[:, row, right] * b for row in (low, high))
    return upper * (1 - a) + lower * a


def _roi_align(
    x: torch.Tensor, regions: torch.Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> torch.Tensor:
    """Compute roi_align point by point."""
    made = x.new_zeros(len(regions), x.shape[1], height, width)
    for k, (picture, *corners) in enumerate(regions.tolist()):
        left, top, right, bottom = (corner * scale - 0.5 * aligned for corner in corners)
        lengths = [n if aligned else max(n, 1) for n in (bottom - top, right - left)]
        bins = [n / m for n, m in zip(lengths, (height, width), strict=True)]
        down, along = (samples if samples > 0 else math.ceil(n) for n in bins)
        for i, j in itertools.product(range(height * down), range(width * along)):
            point = _at(x[int(picture)], top + bins[0] * (i + 0.5) / down, left + bins[1] * (j + 0.5) / along)
            made[k, :, i // down, j // along] += point / (down * along)
    return made


@functools.cache
def declare() -> None:
    """Make `import torchvision` work where it would not."""
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(next(Path(found.origin).parent.glob("_C*.so")))
        return
    except OSError:
        pass
    _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARY.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    _LIBRARY.define("_cuda_version() -> int")
    for name in _NAMES:
        _LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    _LIBRARY.impl("nms", _nms, "CPU")
    _LIBRARY.impl("roi_align", _roi_align, "CPU")
    _LIBRARY.impl("_cuda_version", lambda: -1, "CompositeImplicitAutograd")
    with mock.patch.object(torch.ops, "load_library"):
        __import__("torchvision")
