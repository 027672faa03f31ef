"""Views given by strides, and sliding windows: gathers from a tensor's memory or along an axis.

Strides refer to PyTorch's memory, which does not exist here. The memory of a dense tensor follows from the order of its
axes, and a view of one has that memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _memory(r: AtenReader, node: Node) -> tuple[Array, Dim, tuple[int, ...]]:
    """Return a node's memory: the dense tensor that owns it, the offset where it begins, its axes, slowest first."""
    while _is_view(node):
        node = node.args[0]
    fake = node.meta["val"]
    shape, strides = [[r.dim(n) for n in x] for x in (fake.shape, fake.stride())]
    left = [axis for axis in range(len(shape)) if shape[axis] is not ONE]
    order: list[int] = []
    expected = ONE
    while left:
        axis = next((a for a in reversed(left) if r.facts.equal(strides[a], expected) is Truth.YES), None)
        if axis is None:
            r.unsupported("strides in the memory of a tensor that has gaps, which is not here, are not supported")
        order.insert(0, axis)
        left.remove(axis)
        expected = expected * shape[axis]
    ones = [axis for axis in range(len(shape)) if shape[axis] is ONE]
    return Array(r, r.value_of(node)), r.dim(fake.storage_offset()), (*ones, *order)


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and not alias.is_write and isinstance(node.args[0], Node)


def _addresses(r: AtenReader, shape: Shape, strides: Sequence[Size], offset: Dim, count: Dim) -> Array:
    """Compute the index in memory of each element of a view; the memory has `count` elements."""
    last = offset
    address = r.full(offset, I64, shape)
    for axis, stride in enumerate(strides):
        step = iota(r, shape, axis, I64) * stride
        address = address + step
        last = last + (shape[axis] - 1) * Dim.of(stride)
    some = Dim.min(ONE, dim_product(shape))
    r.require(offset, ">=", ZERO, "the view would begin at {0}, before the tensor's memory", (offset,))
    end = (last + 1) * some
    r.at_most(end, count, "the view needs {0} elements of memory, but there are {1}")
    return address


def _as_strided(
    r: AtenReader, x: Array, shape: Sequence[Size], strides: Sequence[Size], offset: Size | None = None
) -> Array:
    line, at = _line(r, r.out.shape, strides, offset)
    return places.rows(r, line, at)


def _line(r: AtenReader, shape: Shape, strides: Sequence[Size], offset: Size | None) -> tuple[Array, Array]:
    """Return the memory of the op's first argument as a line, and the positions of a view's elements in it."""
    source = r.node.args[0]
    assert isinstance(source, Node)
    base, begin, order = _memory(r, source)
    start = r.dim(source.meta["val"].storage_offset()) if offset is None else Dim.of(offset)
    if begin is not ZERO and r.facts.at_most(begin, start) is not Truth.YES:
        r.unsupported("the memory before a tensor that is a view itself is not here")
    line = base.transpose(order).flat()
    return line, _addresses(r, shape, strides, start - begin, line.shape[0])


def _as_strided_scatter(
    r: AtenReader, x: Array, source: Array, shape: Sequence[Size], strides: Sequence[Size], offset: Size | None = None
) -> Array:
    """Return the tensor with new elements at the view, which must be in its own memory."""
    argument = r.node.args[0]
    assert isinstance(argument, Node)
    base, _, order = _memory(r, argument)
    if base.value is not x.value and _is_view(argument):
        r.unsupported("strides of a view's memory are not supported here")
    line, at = _line(r, source.shape, strides, offset)
    made = places.put(r, line, places.indexed(r, line.shape, [at], wrap=False), source)
    back = tuple(map(order.index, range(x.rank)))
    return made.reshape(tuple(x.shape[axis] for axis in order)).transpose(back)


def _windows(r: AtenReader, count: Dim, size: Dim, step: Size) -> Array:
    """Return the indices of (window, element) along an axis."""
    first = iota(r, (count, size), 0, I64) * step
    return first + iota(r, (count, size), 1, I64)


def _unfold(r: AtenReader, x: Array, axis: int, size: Size, step: Size) -> Array:
    """Take windows along an axis; their elements become the last axis."""
    if not x.rank:
        return x.reshape((ONE,)).broadcast(r.out.shape)
    axis %= x.rank
    at = _windows(r, r.out.shape[axis], Dim.of(size), step)
    made = places.taken(r, x, places.indexed(r, x.shape, [None] * axis + [at], wrap=False))
    return made.transpose([a for a in range(made.rank) if a != axis + 1] + [axis + 1])


def _unfold_backward(r: AtenReader, gradient: Array, shape: Sequence[Size], axis: int, size: Size, step: Size) -> Array:
    """Sum over all windows that contain an element."""
    out = r.out.shape
    if not out:
        return gradient.sum(None)
    axis %= len(out)
    wide = gradient.cast(computed(gradient.dtype))
    rest = [a for a in range(wide.rank - 1) if a > axis]
    wide = wide.transpose([*range(axis + 1), wide.rank - 1, *rest])
    at = _windows(r, gradient.shape[axis], Dim.of(size), step)
    return places.added(r, out, [None] * axis + [at], wide).cast(r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_copy.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.unfold.default": _unfold,
    "aten.unfold_copy.default": _unfold,
    "aten.unfold_backward.default": _unfold_backward,
}
