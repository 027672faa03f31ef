"""Boxes of which those are kept that overlap with no better one: how many is data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.import_.elements import ONE, ZERO
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand
from hlo_disc.import_.tensorflow.arrays import I32, Array, array, filled, iota, where
from hlo_disc.import_.tensorflow.control import loop
from hlo_disc.import_.tensorflow.shapes import array_1d

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader


def _shared(boxes: Array, box: Array) -> Array:
    """The part that each box shares with one, of what both cover; a box is two opposite corners."""

    def sides(x: Array) -> tuple[list[Array], list[Array]]:
        corners = [x.slice(1, i, i + 1).reshape(x.shape[:1]) for i in range(4)]
        return [a.minimum(b) for a, b in zip(corners, corners[2:], strict=False)], [
            a.maximum(b) for a, b in zip(corners, corners[2:], strict=False)
        ]

    (low, high), (own_low, own_high) = sides(boxes), sides(box)
    area, own = ((b[0] - a[0]) * (b[1] - a[1]) for a, b in ((low, high), (own_low, own_high)))
    height, width = ((high[i].minimum(own_high[i]) - low[i].maximum(own_low[i])).maximum(0) for i in range(2))
    both = height * width
    return where((area <= 0) | (own <= 0), both.like(0), both / (area + own - both))


def _kept(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """Boxes by their scores, the best first, and of equal ones the first.

    Where boxes fade next to those that are kept, one that has faded since it was last looked at has to wait again.
    """
    boxes, scores = array(r, operands[0]), array(r, operands[1])
    (most,) = r.sizes(array_1d(r, operands[2]))
    overlap, least = (array(r, x).cast(scores.dtype) for x in operands[3:5])
    spread = array(r, operands[5]).cast(scores.dtype) if len(operands) > 5 else None  # 0 for boxes that do not fade
    n = scores.shape[0]
    place = iota(r, (n,), 0, I32)
    slot = iota(r, (most,), 0, I32)
    limit = Array(r, r.data(operands[2])).cast(I32).reshape(())

    def body(count: Array, left: Array, score: Array, fading: Array, chosen: Array, values: Array) -> list[Array]:
        candidates = where(left, score, -np.inf)
        best = candidates.reduce("max", [0])
        at = where(left & candidates.equal(best), place, np.iinfo(np.int32).max).reduce("min", [0])
        mine = place.equal(at)
        now = best * where(mine, fading, 0).sum([0])
        takes = now.equal(best)
        shared = _shared(boxes, boxes.emit("dynamic_slice", at, at.like(0), sizes=(ONE, boxes.shape[1])))
        fits = shared <= overlap
        if spread is not None:
            fits = fits | (spread > 0)
            weight = where(takes & (spread > 0), (shared * shared * -0.5 / spread).exp(), 1)
            fading = where(mine, 1, fading * weight)
        left = left & where(mine, ~takes & (now > least), fits | ~takes)
        here = slot.equal(count) & takes
        score = where(mine, now, score)
        return [count + takes.cast(I32), left, score, fading, where(here, at, chosen), where(here, best, values)]

    start = [
        filled(r, 0, I32, ()),
        scores > least,
        scores,
        filled(r, 1, scores.dtype, scores.shape),
        filled(r, 0, I32, (most,)),
        filled(r, 0, scores.dtype, (most,)),
    ]

    def more(count: Array, left: Array, *_: Array) -> Array:
        return (count < limit) & left.reduce("or", [0])

    count, _, _, _, chosen, values = loop(r, more, body, start)
    if not op.attributes.get("pad_to_max_output_size", False):
        (size,) = r.sizes(count.reshape((ONE,)).value)
        r.at_most(size, most, "{0} boxes of {1}")
        chosen, values = (x.slice(0, ZERO, size) for x in (chosen, values))
    made = [chosen, values, count] if spread is not None else [chosen, count]
    return [x.value for x in made[: len(op.results)]]


HANDLERS: dict[str, Handler] = {
    "NonMaxSuppressionV3": _kept,
    "NonMaxSuppressionV4": _kept,
    "NonMaxSuppressionV5": _kept,
}
