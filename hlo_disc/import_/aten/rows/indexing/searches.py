"""Positions in sorted tensors, and counts of elements between bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.tensors import Operand
from hlo_disc.import_.handlers.arrays import Array, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_INDICES = Dim.const(2**31 - 2)


def found(r: AtenReader, line: Array, wanted: Array, right: bool) -> Array:
    """Find the position of each number in the sorted last axis of `line`; its other axes, if any, are those of
    `wanted`.

    It bisects as ATen does, so that both agree on unsorted input. right: the position after equal elements.
    """
    count = line.shape[-1]
    r.at_most(count, _INDICES, "a sorted axis of {0} elements has more than {1}")
    line = places.never_empty(r, line, line.rank - 1)
    low = r.full(0, I32, wanted.shape)
    high = r.full(count, I32, wanted.shape)
    for _ in range(count.value.bit_length() if count.is_const else 31):
        middle = low + (high - low >> 1)
        value = _at(r, line, middle)
        behind = ~value.op("compare", wanted, direction="GT" if right else "GE")
        is_open = low < high
        low = where(behind & is_open, middle + 1, low)
        high = where(behind, high, middle)
    return low


def _at(r: AtenReader, line: Array, index: Array) -> Array:
    if line.rank == 1:
        return places.rows(r, line, index)
    return places.taken(r, line, places.along(r, line.shape, line.rank - 1, index, wrap=False))


def _searchsorted(
    r: AtenReader, line: Array, wanted: Operand, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array | None = None,
) -> Array:  # fmt: skip
    if not isinstance(wanted, Array):
        wanted = r.scalar(wanted, line.dtype)
    if sorter is not None:
        line = places.taken(r, line, places.along(r, line.shape, line.rank - 1, sorter)).reshape(line.shape)
    common = np.promote_types(line.dtype, wanted.dtype) if line.dtype != wanted.dtype else line.dtype
    line, wanted = line.cast(common), wanted.cast(common)
    return found(r, line, wanted, right or side == "right").cast(r.out.dtype)


def _bucketize(r: AtenReader, wanted: Operand, line: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    return _searchsorted(r, line, wanted, right=right)


def _histc(r: AtenReader, x: Array, bins: int = 100, low: Operand = 0, high: Operand = 0) -> Array:
    """Count the elements in equal intervals from low to high; the last interval includes its upper bound.

    Bounds that are equal stand for those of the elements.
    """
    dtype = computed(x.dtype)
    line = x.flat().cast(dtype)
    start, end = r.scalar(low, dtype), r.scalar(high, dtype)
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and low != high):
        of_elements = (start == end) & (r.scalar(line.shape[0], I64) != 0)
        start = where(of_elements, line.reduce("min", None), start)
        end = where(of_elements, line.reduce("max", None), end)
    same = start == end
    start, end = where(same, start - 1, start), where(same, end + 1, end)
    part = (line - start) * bins / (end - start)
    inside = (line >= start) & (line <= end)
    made = _counted(r, part.op("floor").cast(I64), inside, bins, r.scalar(1, dtype))
    return made.cast(r.out.dtype)


def _counted(r: AtenReader, place: Array, inside: Array, bins: int, what: Array) -> Array:
    """Sum `what` over the elements of each interval; elements behind the last one belong to it."""
    place = where(inside, place.minimum(bins - 1), bins)  # outside, where nothing is counted
    return places.added(r, (Dim.of(bins),), [place], what)


def _histogram(
    r: AtenReader, x: Array, bins: int, *, range: Sequence[float] | None = None, weight: Array | None = None,
    density: bool = False,
) -> list[Array]:  # fmt: skip
    """Return (the sum between neighbouring bounds, the bounds); the last interval includes its upper bound."""
    dtype, wide = x.dtype, computed(x.dtype)
    line = x.flat().cast(wide)
    if range is not None:
        start, end = (r.scalar(bound, wide) for bound in range)
    else:
        some = r.scalar(line.shape[0], I64) != 0
        start, end = (where(some, line.reduce(kind, None), 0) for kind in ("min", "max"))
    same = start == end
    start, end = (where(same, x + by, x) for x, by in ((start, -0.5), (end, 0.5)))
    number = iota(r, (Dim.of(bins + 1),), 0, I64)
    step = (end - start) / bins
    up = start + number.cast(wide) * step
    down = end - (bins - number).cast(wide) * step
    bounds = where(number < (bins + 1) // 2, up, down)
    place = found(r, bounds, line, True).cast(I64) - 1
    inside = (line >= start) & (line <= end)
    what = r.scalar(1, wide) if weight is None else weight.reshape(line.shape).cast(wide)
    made = _counted(r, place, inside, bins, what)
    if density:
        widths = bounds.slice(0, 1, bins + 1) - bounds.slice(0, 0, bins)
        made = made / (widths * made.sum(None))
    return [made.cast(dtype), bounds.cast(dtype)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.searchsorted.Tensor": _searchsorted,
    "aten.searchsorted.Scalar": _searchsorted,
    "aten.bucketize.Tensor": _bucketize,
    "aten.bucketize.Scalar": _bucketize,
    "aten.histc.default": _histc,
    "aten.histogram.bin_ct": _histogram,
}
