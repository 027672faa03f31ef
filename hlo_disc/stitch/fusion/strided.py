"""An operand in memory: the views between a value in memory and a dot become an offset and strides.

Transposes, slices, broadcasts and some reshapes move no element, so that a matrix multiply reads through them. Such a
reshape only splits or joins axes with even strides. Elements are counted, not bytes; sizes and strides are Dims.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.axes import Affine, First, Order, Same
from hlo_disc.dynamic_hlo.ops.table import kind, links
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.frozen import frozen


@frozen
class Strided:
    """Element (i0, i1, …) of a value of `shape` is element offset + i0*strides[0] + … of `source`, in memory.

    windowed: windows overlap, so that axes that lie evenly in memory may not be neighbours.
    """

    source: Value
    shape: Shape
    offset: Dim
    strides: tuple[Dim, ...]
    windowed: bool = False


def row_major(shape: Shape) -> tuple[Dim, ...]:
    """The strides of a value that fills its memory."""
    return tuple(dim_product(shape[axis + 1 :]) for axis in range(len(shape)))


def composes(outer: Dim, inner: Dim, size: Dim, facts: ShapeFacts) -> bool:
    """Are an axis of stride `outer` and the next one, of `size` and stride `inner`, one axis?"""
    return facts.equal(outer, size * inner) is Truth.YES


def strided(value: Value, inside: Collection[Op], facts: ShapeFacts) -> Strided | None:
    """`value` as a walk over a value that no op of `inside` makes, or None when the views between are no such walk."""
    views: list[Op] = []
    while value.op is not None and value.op in inside:
        views.append(value.op)
        if kind(value.op) != "view":
            return None
        (value,) = value.op.operands
    walk = Strided(value, value.shape, ZERO, row_major(value.shape))
    for op in reversed(views):
        seen = view(walk, op, facts)
        if seen is None:
            return None
        walk = seen
    return walk


def view(walk: Strided, op: Op, facts: ShapeFacts) -> Strided | None:
    """The result of a view op whose operand is `walk`, or None when that is no walk with fixed strides."""
    known = links(op, facts)
    if kind(op) != "view" or not known:
        return None
    (link,) = known
    if link.along is Order.ELEMENTS:
        return _reshape(walk, op.result.shape, facts)
    offset, strides, windowed = walk.offset, [ZERO] * op.result.rank, walk.windowed
    for entry, stride in zip(link.entries, walk.strides, strict=True):
        match entry:
            case First():
                pass
            case Same(axis):
                strides[axis] = stride
            case Affine(terms, start) if all(step > 0 for _, step in terms):
                offset = offset + start * stride
                windowed |= len(terms) > 1
                for axis, step in terms:
                    strides[axis] = strides[axis] + stride * step
            case _:
                return None
    return Strided(walk.source, op.result.shape, offset, tuple(strides), windowed)


def _reshape(x: Strided, result: Shape, facts: ShapeFacts) -> Strided | None:
    strides = [ZERO] * len(result)
    for made, taken in reshape_segments(result, x.shape, facts):
        stride = _joined(x, [a for a in taken if x.shape[a] is not ONE], facts)
        if made and taken and stride is None:
            return None
        for axis in reversed(made if taken else []):
            strides[axis] = ZERO if stride is None else stride
            stride = strides[axis] * result[axis]
    return replace(x, shape=result, strides=tuple(strides))


def _joined(x: Strided, axes: Sequence[int], facts: ShapeFacts) -> Dim | None:
    """The stride of neighbouring axes as one, or None when they are not."""
    if not axes:
        return ZERO
    for a, b in zip(axes, axes[1:], strict=False):
        if not composes(x.strides[a], x.strides[b], x.shape[b], facts):
            return None
    return x.strides[axes[-1]]
