"""Selection of boxes that overlap with no better one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I32, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.handlers.arrays import Array, filled, iota, loop


def _shared(boxes: Array, box: Array, any_corners: bool) -> Array:
    """Return the overlap of each box of a group with one box, over the area that both cover.

    any_corners: a box is any two opposite corners, and empty ones share nothing; else the lower corner comes first, and
        what is no number overlaps with nothing, as of two empty boxes.
    """

    def sides(x: Array) -> tuple[list[Array], list[Array]]:
        corners = [x.slice(2, i, i + 1).reshape(x.shape[:2]) for i in range(4)]
        if not any_corners:
            return corners[:2], corners[2:]
        return [a.minimum(b) for a, b in zip(corners, corners[2:], strict=False)], [
            a.maximum(b) for a, b in zip(corners, corners[2:], strict=False)
        ]

    (low, high), (own_low, own_high) = sides(boxes), sides(box)
    area, own = ((b[0] - a[0]) * (b[1] - a[1]) for a, b in ((low, high), (own_low, own_high)))
    height, width = ((high[i].minimum(own_high[i]) - low[i].maximum(own_low[i])).maximum(0) for i in range(2))
    both = height * width
    part = both / (area + own - both)
    return where((area <= 0) | (own <= 0), 0, part) if any_corners else part


class Kept(NamedTuple):
    """The selected boxes of each group: their number, the boxes in the order of their scores, and the scores; 0 behind
    them."""

    number: Array
    chosen: Array
    scores: Array


def suppressed(
    boxes: Array,
    scores: Array,
    most: Dim,
    limit: Array,
    overlap: Array | float,
    least: Array | None = None,
    spread: Array | None = None,
    any_corners: bool = True,
) -> Kept:
    """The best boxes of each group first, and of equal ones the first, without those that overlap with a better one.

    If boxes fade next to selected ones, a box that has faded since its last turn waits again.

    Args:
        boxes: (groups, boxes, 4), see `_shared`.
        scores: (groups, boxes), none of which is a NaN, unless there is a least one.
        most: how many the results have place for.
        limit: how many are kept at most.
        overlap: the part that two boxes may share.
        least: the score that a box has to exceed.
        spread: how slowly boxes fade; 0 for boxes that do not.
    """
    r = boxes.r
    groups, n = scores.shape
    place = iota(r, (groups, n), 1, I32)
    slot = iota(r, (groups, most), 1, I32)

    def body(count: Array, left: Array, score: Array, fading: Array, chosen: Array, values: Array) -> list[Array]:
        candidates = where(left, score, -np.inf)
        best = candidates.reduce("max", [1], keep=True)
        at = where(left & (candidates == best), place, np.iinfo(np.int32).max).reduce("min", [1], keep=True)
        mine = place == at
        now = best * where(mine, fading, 0).sum([1], keep=True)
        takes = now == best
        box = where(mine.expand(2), boxes, 0).sum([1], keep=True)
        shared = _shared(boxes, box, any_corners)
        fits = shared <= overlap if any_corners else ~(shared > overlap)
        if spread is not None:
            fits = fits | (spread > 0)
            weight = where(takes & (spread > 0), (shared * shared * -0.5 / spread).exp(), 1)
            fading = where(mine, 1, fading * weight)
        waits = ~takes if least is None else ~takes & (now > least)
        left = left & where(mine, waits, fits | ~takes)
        here = (slot == count) & takes
        score = where(mine, now, score)
        count = count + takes.cast(I32)
        chosen, values = where(here, at, chosen), where(here, best, values)
        return [count, left & (count < limit), score, fading, chosen, values]

    start = [
        filled(r, 0, I32, (groups, ONE)),
        ((scores == scores) if least is None else (scores > least)) & (limit > 0),
        scores,
        filled(r, 1, scores.dtype, scores.shape),
        filled(r, 0, I32, (groups, most)),
        filled(r, 0, scores.dtype, (groups, most)),
    ]
    count, _, _, _, chosen, values = loop(r, lambda _, left, *__: left.reduce("or", [0, 1]), body, start)
    return Kept(count.reshape((groups,)), chosen, values)
