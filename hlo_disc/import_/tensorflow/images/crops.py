"""Parts of images, given by their corners as parts of an image and resized, with their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import F32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


class Crops:
    """Bilinear samples of boxes. shape: (boxes, rows, columns) of the samples; image: the images' shape."""

    def __init__(self, r: Reader, op: Node, boxes: Array, which: Array, shape: Shape, image: Shape):
        if op.attributes.get("method", "bilinear") != "bilinear":
            r.unsupported("only bilinear")
        self.r, self.shape, self.image = r, shape, image
        self.batch = which.cast(I64).broadcast(shape, (0,)).expand(3)
        self.shares: list[tuple[Array, Array]] = []  # of both ends of a box in a place, for each axis
        places = []
        for axis, (n, m) in enumerate(zip(image[1:3], shape[1:], strict=True)):
            low, high = (boxes.slice(1, axis + i, axis + i + 1) for i in (0, 2))
            last = filled(r, n - 1, F32)
            at = iota(r, (shape[0], m), 1, "int32").cast(F32)
            if m.is_const and m.value == 1:
                place, far = (low + high) * 0.5 * last + at, last * 0.5 + at * 0
            else:
                each = last / (m - 1)
                place, far = low * last + at * ((high - low) * each), at * each
            places.append(self._spread(place, axis))
            self.shares.append((self._spread(last - far, axis), self._spread(far, axis)))
        y, x = places
        inside = (y >= 0) & (y <= image[1] - 1) & (x >= 0)
        self.inside = inside & (x <= image[2] - 1)
        self.top, self.bottom, self.left, self.right = y.op("floor"), y.op("ceil"), x.op("floor"), x.op("ceil")
        self.down, self.across = y - self.top, x - self.left

    def _spread(self, x: Array, axis: int) -> Array:
        """Repeat one number for each row, or each column, of each box."""
        return x.broadcast(self.shape, (0, 1 + axis))

    def over(self, x: Array, depth: Dim) -> Array:
        """Broadcast a number of each sample over all channels."""
        return x.broadcast((*self.shape, depth), (0, 1, 2))

    def at(self, row: Array, column: Array) -> Array:
        """Make vectors of indices of pixels."""
        parts = [self.batch]
        for place, n in ((row, self.image[1]), (column, self.image[2])):
            whole = place.cast(I64)
            parts.append(whole.maximum(0).minimum(n - 1).expand(3))
        return joined(parts, 3)

    def pixels(self, image: Array) -> list[Array]:
        """Return the pixels around each sample: two above and two below."""
        return [
            image.gather(self.at(row, column), 3)
            for row in (self.top, self.bottom)
            for column in (self.left, self.right)
        ]


def _crops(r: Reader, op: Node, operands: list[Operand]) -> Result:
    image, boxes, which = array(r, operands[0]).cast(F32), array(r, operands[1]), array(r, operands[2])
    crops = Crops(r, op, boxes, which, (boxes.shape[0], *r.sizes(operands[3])), image.shape)
    down, across = (crops.over(x, image.shape[3]) for x in (crops.down, crops.across))
    a, b, c, d = crops.pixels(image)
    upper, lower = a + (b - a) * across, c + (d - c) * across
    made = upper + (lower - upper) * down
    outside = op.attributes.get("extrapolation_value", 0.0)
    return where(crops.over(crops.inside, image.shape[3]), made, outside).value


def _image_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient of the image: a pixel gets its share of each sample's gradient."""
    dy, boxes, which = (array(r, o) for o in operands[:3])
    shape = r.sizes(operands[3])
    crops = Crops(r, op, boxes, which, dy.shape[:3], shape)
    given = where(crops.over(crops.inside, dy.shape[3]), dy, 0)
    made = filled(r, 0, F32, shape)
    for row, tall in ((crops.top, 1 - crops.down), (crops.bottom, crops.down)):
        for column, wide in ((crops.left, 1 - crops.across), (crops.right, crops.across)):
            part = given * crops.over(tall * wide, dy.shape[3])
            made = made.scatter(crops.at(row, column), part, 3, "add")
    return made.cast(result_dtype(op)).value


def _boxes_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient of the boxes: how a sample changes along both axes when an end of its box moves."""
    dy, image, boxes, which = (array(r, o) for o in operands)
    crops = Crops(r, op, boxes, which, dy.shape[:3], image.shape)
    a, b, c, d = crops.pixels(image.cast(F32))
    down, across = (crops.over(x, dy.shape[3]) for x in (crops.down, crops.across))
    slopes = (1 - across) * (c - a) + across * (d - b), (1 - down) * (b - a) + down * (d - c)
    moved = [where(crops.inside, (slope * dy).sum([3]), 0) for slope in slopes]
    parts = [(moved[axis] * crops.shares[axis][end]).sum([1, 2]).expand(1) for end in range(2) for axis in range(2)]
    return joined(parts, 1).value


HANDLERS: dict[str, Handler] = {
    "CropAndResize": _crops,
    "CropAndResizeGradBoxes": _boxes_grad,
    "CropAndResizeGradImage": _image_grad,
}
