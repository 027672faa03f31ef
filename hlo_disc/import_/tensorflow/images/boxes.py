"""Selection of boxes that overlap with no better one; their number is data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import F32, I32, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO
from hlo_disc.import_.formulas.boxes import suppressed
from hlo_disc.import_.handlers.arrays import Array, array, iota
from hlo_disc.import_.handlers.sort import take_top
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import array_1d

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _scalar(r: Reader, x: Operand) -> Array:
    """Return an operand that is a number, as data."""
    return Array(r, r.data(x)).cast(I32).reshape(())


def _one_picture(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Select boxes of one picture by their scores."""
    boxes, scores = array(r, operands[0]).expand(0), array(r, operands[1]).expand(0)
    (most,) = r.sizes(array_1d(r, operands[2]))
    overlap, least = (array(r, x).cast(scores.dtype) for x in operands[3:5])
    spread = array(r, operands[5]).cast(scores.dtype) if len(operands) > 5 else None
    kept = suppressed(boxes, scores, most, _scalar(r, operands[2]), overlap, least, spread)
    chosen, values, count = kept.chosen.reshape((most,)), kept.scores.reshape((most,)), kept.number
    if not op.attributes.get("pad_to_max_output_size", False):
        (size,) = r.sizes(count.value)
        r.at_most(size, most, "{0} boxes of {1}")
        chosen, values = (x.slice(0, ZERO, size) for x in (chosen, values))
    count = count.reshape(())
    made = [chosen, values, count] if spread is not None else [chosen, count]
    return [x.value for x in made[: len(op.results)]]


def _pictures(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Select boxes of many pictures: first for each class, and of these the best of each picture."""
    boxes, scores = (array(r, x) for x in operands[:2])
    per_class, total = (r.sizes(array_1d(r, x))[0] for x in operands[2:4])
    overlap, least = (array(r, x).cast(scores.dtype) for x in operands[4:6])
    batch, n, classes = scores.shape
    scalar = r.evaluator.scalar
    most = scalar.minimum(per_class, n)
    each = r.wider(boxes.shape[2], classes, 2)
    r.equal(each, classes, "the classes that boxes are for and those of the scores")
    boxes = boxes.broadcast((batch, n, classes, boxes.shape[3])).transpose((0, 2, 1, 3))
    groups = batch * classes
    kept = suppressed(
        boxes.reshape((groups, n, boxes.shape[3])),
        scores.transpose((0, 2, 1)).reshape((groups, n)),
        most,
        _scalar(r, operands[2]),
        overlap,
        least,
    )
    slots = (batch, classes, most)
    there = iota(r, slots, 2, I32) < kept.number.reshape((batch, classes, ONE))
    own_class = iota(r, slots, 1, I32)
    which = own_class * n + kept.chosen.reshape(slots)
    ranked = where(there, kept.scores.reshape(slots), -np.inf)
    flat = (batch, classes * most)
    size = scalar.minimum(total, per_class * classes) if op.attributes.get("pad_per_class", False) else total
    taken = scalar.minimum(size, flat[1])
    best, places = take_top(r, ranked.reshape(flat).value, taken, True)
    at = Array(r, places).cast(np.int64)
    found = Array(r, best) > -np.inf
    none, behind = [ZERO] * 2, [ZERO, size - taken]

    def chosen(x: Array) -> Array:
        return x.reshape(flat).take(at, 1, batch=1)

    corners = boxes.reshape((batch, classes * n, boxes.shape[3])).take(chosen(which), 1, batch=1)
    if op.attributes.get("clip_boxes", True):
        corners = corners.minimum(1).maximum(0)
    made = where(found, Array(r, best), 0), where(found, chosen(own_class).cast(F32), 0)
    corners = where(found.expand(2), corners, 0).pad([*none, ZERO], [*behind, ZERO])
    return [corners.value, *(x.pad(none, behind).value for x in made), found.cast(I32).sum([1]).value]


HANDLERS: dict[str, Handler] = {
    "CombinedNonMaxSuppression": _pictures,
    "NonMaxSuppressionV3": _one_picture,
    "NonMaxSuppressionV4": _one_picture,
    "NonMaxSuppressionV5": _one_picture,
}
