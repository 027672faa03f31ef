"""Ops whose results are as long as data says: what a mask takes, what differs, counts; and what data has to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.sorting import ordered
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.rows.indexing.searches import found
from hlo_disc.import_.aten.tensors import BOOL, I64, Operand, Size
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _running(r: AtenReader, mask: Value) -> tuple[Value, Dim]:
    """Count the true elements of a line: those up to each element, and all of them."""
    ones = r.convert(mask, I64)
    count = r.data.size(r.reduce(ones, 0, "add"))
    r.facts.add_at_most(count, mask.shape[0])
    return r.cumulative(ones, 0, "add"), count


def _places(r: AtenReader, running: Value, count: Dim) -> Value:
    """The indices of the first `count` true elements of a line: where the running count first reaches each number."""
    return r.convert(found(r, running, r.op("add", r.iota(I64, (count,)), 1), False), I64)


def _axes(r: AtenReader, place: Value, shape: Shape) -> list[Value]:
    """Numbers of elements as an index for each axis."""
    made = []
    for size in reversed(shape):
        size = Dim.max(size, ONE)
        made.append(r.op("remainder", place, r.scalar(size, I64)))
        place = r.op("divide", place, r.scalar(size, I64))
    return made[::-1]


def where(r: AtenReader, mask: Value) -> list[Value]:
    """The indices of what is true, an axis each."""
    running, count = _running(r, r.flat(r.convert(mask, BOOL)))
    return _axes(r, _places(r, running, count), mask.shape)


def _nonzero(r: AtenReader, x: Value) -> Value:
    mask = r.convert(x, BOOL)
    if not x.rank:
        return r.full(0, I64, (_running(r, r.flat(mask))[1], Dim.const(0)))
    return r.concatenate([r.unsqueeze(index, -1) for index in where(r, mask)], -1)


def _nonzero_static(r: AtenReader, x: Value, *, size: Size, fill_value: int = -1) -> Value:
    """The first ones, and a number where there are no more."""
    mask = r.flat(r.convert(x, BOOL))
    if not x.rank:
        return r.full(0, I64, r.out.shape)
    running = r.cumulative(r.convert(mask, I64), 0, "add")
    place = _places(r, running, Dim.of(size))
    there = r.compare(place, "LT", r.scalar(mask.shape[0], I64))
    made = [r.select(there, index, fill_value) for index in _axes(r, place, x.shape)]
    return r.concatenate([r.unsqueeze(index, -1) for index in made], -1)


def unmasked(r: AtenReader, indices: Sequence[Value | None]) -> list[Value | None]:
    """A mask stands for the indices of what it has, an axis each."""
    plain: list[Value | None] = []
    for index in indices:
        plain += where(r, index) if index is not None and places.is_mask(index) else [index]
    return plain


def _index(r: AtenReader, x: Value, indices: Sequence[Value | None]) -> Value:
    if all(index is None for index in indices):
        return x
    return places.taken(r, x, places.indexed(r, x.shape, unmasked(r, indices)))


def _masked_select(r: AtenReader, x: Value, mask: Value) -> Value:
    shape = r.common([x, mask])
    x, mask = (r.broadcast(y, shape) for y in (x, mask))
    running, count = _running(r, r.flat(mask))
    return _taken(r, r.flat(x), _places(r, running, count))


def _taken(r: AtenReader, line: Value, at: Value) -> Value:
    return places.taken(r, line, places.indexed(r, line.shape, [at], wrap=False))


def _repeat_interleave(r: AtenReader, repeats: Value, *, output_size: Any = None) -> Value:
    """Each number as often as it says."""
    repeats = r.convert(repeats, I64)
    r.data.must(r.reduce(r.compare(repeats, "GE", 0), 0, "and"), "repeats can not be negative")
    ends, sum_ = r.cumulative(repeats, 0, "add"), r.reduce(repeats, 0, "add")
    if output_size is None:
        total = r.data.size(sum_)
    else:
        total = r.out.shape[0]
        r.data.must(r.compare(sum_, "EQ", r.scalar(total, I64)), "allocated size does not match required size")
    return r.convert(found(r, ends, r.iota(I64, (total,)), True), r.out.dtype)


def _bincount(r: AtenReader, x: Value, weights: Value | None = None, least: Size = 0) -> Value:
    x = r.convert(x, I64)
    message = "bincount only supports 1-d non-negative integral inputs."
    r.data.must(r.reduce(r.compare(x, "GE", 0), 0, "and"), message)
    bins = r.op("maximum", r.op("add", r.op("maximum", r.reduce(x, 0, "max"), -1), 1), r.scalar(Dim.of(least), I64))
    counts = r.full(0, r.out.dtype, (r.data.size(bins),))
    added: Operand = 1 if weights is None else weights
    at = places.indexed(r, counts.shape, [x], wrap=False)
    return places.put(r, counts, at, r.broadcast(r.scalar(added, r.out.dtype), x.shape), "add")


def _unique(r: AtenReader, line: Value, origin: Value | None, inverse: bool, counts: bool) -> list[Value]:
    """(elements of a line that differ from the one before, the number of each element, how often each comes).

    origin: where the elements of the line, which is sorted, come from.
    """
    number = r.iota(I64, line.shape)
    before = _taken(r, line, r.op("maximum", r.op("subtract", number, 1), 0))
    begins = r.op("or", r.compare(line, "NE", before), r.compare(number, "EQ", 0))
    running, count = _running(r, begins)
    first = _places(r, running, count)
    made = [_taken(r, line, first), *(r.full(0, x.dtype, (Dim.const(0),)) for x in r.outs[1:])]
    if inverse:
        of_line = r.op("subtract", running, 1)
        if origin is not None:
            at = places.indexed(r, line.shape, [origin], wrap=False)
            of_line = places.put(r, r.full(0, I64, line.shape), at, of_line, unique=True)
        made[1] = r.reshape(of_line, r.outs[1].shape)
    if counts:
        ends = found(r, running, r.op("add", r.iota(I64, (count,)), 1), True)
        made[2] = r.op("subtract", r.convert(ends, I64), first)
    return made


def _unique2(
    r: AtenReader, x: Value, is_sorted: bool = True, inverse: bool = False, counts: bool = False
) -> list[Value]:
    line, origin = ordered(r, r.flat(x), 0)
    return _unique(r, line, origin, inverse, counts)


def _unique_consecutive(
    r: AtenReader, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> list[Value]:
    if dim is not None and x.rank != 1:
        r.unsupported("slices that are alike, of which data says how many there are, are not supported")
    return _unique(r, r.flat(x), None, inverse, counts)


def _assert_scalar(r: AtenReader, _: Any, message: str = "") -> None:
    known = r.meta(0)
    if known is not True:
        r.data.ensure(sympy.false if known is False else known.node.expr, message)


def _assert_async(r: AtenReader, x: Value, message: str = "Expected Tensor with single nonzero value") -> None:
    r.data.must(r.reduce(r.convert(x, BOOL), None, "and"), message)


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
