"""The number of positions of a window on an axis: convolution and reduce_window share StableHLO's arithmetic.

An axis is dilated (`dilation - 1` holes between neighbours), then padded (negative padding cuts); a window is dilated
the same way and moves by its stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth


def dilated(size: Dim, dilation: int, facts: ShapeFacts) -> Dim:
    """Return the extent of `size` elements with holes between them: 0 for none."""
    return size if dilation == 1 else _at_least_zero((size - 1) * dilation + 1, facts)


def padded(size: Dim, dilation: int, low: Dim, high: Dim, facts: ShapeFacts) -> Dim:
    """Return the extent of a dilated and padded axis, below 0 if padding cuts more than there is."""
    return dilated(size, dilation, facts) + low + high


def positions(extent: Dim, window: Dim, stride: int, facts: ShapeFacts) -> Dim:
    """Return the number of positions of a window of extent `window` on an axis of `extent`."""
    return _at_least_zero((extent - window) // stride + 1, facts)


def _at_least_zero(size: Dim, facts: ShapeFacts) -> Dim:
    return size if facts.at_most(ZERO, size) is Truth.YES else Dim.max(size, ZERO)


def moving_axes(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """List the axes of a window op on which windows are not simply the single elements."""
    strides = attrs["strides"]
    rows = zip(attrs["window"], attrs["low"], attrs["high"], strides, attrs.get("base_dilations", strides), strict=True)
    return tuple(a for a, row in enumerate(rows) if row != (ONE, ZERO, ZERO, 1, 1))
