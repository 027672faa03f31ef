"""Ops whose results have data-dependent lengths: masked selection, unique elements, counts; and assertions on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.aten.rows.axes.sorting import ordered
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import Size
from hlo_disc.import_.handlers.arrays import Array, iota, joined, together

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _running(r: AtenReader, mask: Array) -> tuple[Array, Dim]:
    """Count the true elements of a line: those up to each element, and all."""
    ones = mask.cast(I64)
    count = r.data.size(ones.sum(0))
    r.facts.add_at_most(count, mask.shape[0])
    return ones.cumulative("add", 0), count


def _places(r: AtenReader, running: Array, count: Dim) -> Array:
    """The indices of the first `count` true elements of a line: where the running count first reaches each number."""
    return found(r, running, iota(r, (count,), 0, I64) + 1, False).cast(I64)


def _axes(r: AtenReader, place: Array, shape: Shape) -> list[Array]:
    """Convert the numbers of elements to an index for each axis."""
    made = []
    for size in reversed(shape):
        size = Dim.max(size, ONE)
        made.append(place.op("remainder", size))
        place = place / size
    return made[::-1]


def positions(r: AtenReader, mask: Array) -> list[Array]:
    """Return the indices of true elements, one tensor for each axis."""
    running, count = _running(r, mask.cast(BOOL).flat())
    return _axes(r, _places(r, running, count), mask.shape)


def _nonzero(r: AtenReader, x: Array) -> Array:
    mask = x.cast(BOOL)
    if not x.rank:
        return r.full(0, I64, (_running(r, mask.flat())[1], Dim.const(0)))
    return joined([index.expand(-1) for index in positions(r, mask)], -1)


def _nonzero_static(r: AtenReader, x: Array, *, size: Size, fill_value: int = -1) -> Array:
    """Return the first indices of nonzero elements, filled up with a number."""
    mask = x.cast(BOOL).flat()
    if not x.rank:
        return r.full(0, I64, r.out.shape)
    running = mask.cast(I64).cumulative("add", 0)
    place = _places(r, running, Dim.of(size))
    there = place < mask.shape[0]
    made = [where(there, index, fill_value) for index in _axes(r, place, x.shape)]
    return joined([index.expand(-1) for index in made], -1)


def unmasked(r: AtenReader, indices: Sequence[Array | None]) -> list[Array | None]:
    """Replace a mask by the indices of its true elements, one tensor for each axis."""
    plain: list[Array | None] = []
    for index in indices:
        plain += positions(r, index) if index is not None and places.is_mask(index) else [index]
    return plain


def _index(r: AtenReader, x: Array, indices: Sequence[Array | None]) -> Array:
    if all(index is None for index in indices):
        return x
    return places.taken(r, x, places.indexed(r, x.shape, unmasked(r, indices)))


def _masked_select(r: AtenReader, x: Array, mask: Array) -> Array:
    x, mask = together([x, mask])
    running, count = _running(r, mask.flat())
    return places.rows(r, x.flat(), _places(r, running, count))


def _repeat_interleave(r: AtenReader, repeats: Array, *, output_size: Size | None = None) -> Array:
    """Repeat each number as often as the counts say."""
    repeats = repeats.cast(I64)
    r.data.must((repeats >= 0).reduce("and", 0), "repeats can not be negative")
    ends, sum_ = repeats.cumulative("add", 0), repeats.sum(0)
    if output_size is None:
        total = r.data.size(sum_)
    else:
        total = r.out.shape[0]
        r.data.must(sum_ == total, "allocated size does not match required size")
    return found(r, ends, iota(r, (total,), 0, I64), True).cast(r.out.dtype)


def _bincount(r: AtenReader, x: Array, weights: Array | None = None, least: Size = 0) -> Array:
    x = x.cast(I64)
    message = "bincount only supports 1-d non-negative integral inputs."
    r.data.must((x >= 0).reduce("and", 0), message)
    bins = (x.reduce("max", 0).maximum(-1) + 1).maximum(Dim.of(least))
    return places.added(r, (r.data.size(bins),), [x], r.scalar(1 if weights is None else weights, r.out.dtype))


def _unique(r: AtenReader, line: Array, origin: Array | None, inverse: bool, counts: bool) -> list[Array]:
    """Return (elements of a sorted line that differ from the previous one, the number of each element, the counts).

    origin: the old positions of the sorted elements.
    """
    number = iota(r, line.shape, 0, I64)
    before = places.rows(r, line, (number - 1).maximum(0))
    begins = (line != before) | (number == 0)
    running, count = _running(r, begins)
    first = _places(r, running, count)
    made = [places.rows(r, line, first), *(r.full(0, x.dtype, (Dim.const(0),)) for x in r.outs[1:])]
    if inverse:
        of_line = running - 1
        if origin is not None:
            at = places.indexed(r, line.shape, [origin], wrap=False)
            of_line = places.put(r, r.full(0, I64, line.shape), at, of_line, unique=True)
        made[1] = of_line.reshape(r.outs[1].shape)
    if counts:
        ends = found(r, running, iota(r, (count,), 0, I64) + 1, True)
        made[2] = ends.cast(I64) - first
    return made


def _unique2(
    r: AtenReader, x: Array, is_sorted: bool = True, inverse: bool = False, counts: bool = False
) -> list[Array]:
    line, origin = ordered(r, x.flat(), 0)
    return _unique(r, line, origin, inverse, counts)


def _unique_consecutive(
    r: AtenReader, x: Array, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> list[Array]:
    if dim is not None and x.rank != 1:
        r.unsupported("slices that are alike, of which data says how many there are, are not supported")
    return _unique(r, x.flat(), None, inverse, counts)


def _assert_scalar(r: AtenReader, _: object, message: str = "") -> None:
    known = r.meta(0)
    if known is not True:
        r.data.ensure(sympy.false if known is False else known.node.expr, message)


def _assert_async(r: AtenReader, x: Array, message: str = "Expected Tensor with single nonzero value") -> None:
    r.data.must(x.cast(BOOL).reduce("and", None), message)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.nonzero.default": _nonzero,
    "aten.nonzero_static.default": _nonzero_static,
    "aten.masked_select.default": _masked_select,
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    "aten.bincount.default": _bincount,
    "aten._unique.default": _unique2,
    "aten._unique2.default": _unique2,
    "aten.unique_consecutive.default": _unique_consecutive,
    "aten._local_scalar_dense.default": lambda r, x: r.data.item(x, r.node.meta["val"]),
    "aten._assert_scalar.default": _assert_scalar,
    "aten._assert_tensor_metadata.default": lambda *_, **__: None,  # what PyTorch knows of a tensor is so
    "aten._assert_async.default": _assert_async,
    "aten._assert_async.msg": _assert_async,
}
