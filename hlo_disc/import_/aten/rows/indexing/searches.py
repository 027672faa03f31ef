"""Places in sorted tensors, and counts of what falls between bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.indexing import places
from hlo_disc.import_.aten.tensors import I32, I64, Operand

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_INDICES = Dim.const(2**31 - 2)


def found(r: AtenReader, line: Value, wanted: Value, right: bool) -> Value:
    """Where each number belongs in the sorted last axis of `line`, whose other axes, if any, are those of `wanted`.

    Bisection as ATen does it, so that both agree about what is not sorted. right: behind elements that are equal.
    """
    count = line.shape[-1]
    r.at_most(count, _INDICES, "a sorted axis of {0} elements has more than {1}")
    line = places.never_empty(r, line, line.rank - 1)
    low = r.full(0, I32, wanted.shape)
    high = r.full(count, I32, wanted.shape)
    for _ in range(count.value.bit_length() if count.is_const else 31):
        middle = r.op("add", low, r.op("shift_right_arithmetic", r.op("subtract", high, low), 1))
        value = _at(r, line, middle)
        behind = r.op("not", r.compare(value, "GT" if right else "GE", wanted))
        is_open = r.compare(low, "LT", high)
        low = r.select(r.op("and", behind, is_open), r.op("add", middle, 1), low)
        high = r.select(behind, high, middle)
    return low


def _at(r: AtenReader, line: Value, index: Value) -> Value:
    if line.rank == 1:
        return places.taken(r, line, places.indexed(r, line.shape, [index], wrap=False))
    return places.taken(r, line, places.along(r, line.shape, line.rank - 1, index, wrap=False))


def _searchsorted(
    r: AtenReader, line: Value, wanted: Operand, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    if not isinstance(wanted, Value):
        wanted = r.scalar(wanted, line.dtype)
    if sorter is not None:
        line = r.reshape(places.taken(r, line, places.along(r, line.shape, line.rank - 1, sorter)), line.shape)
    common = np.promote_types(line.dtype, wanted.dtype) if line.dtype != wanted.dtype else line.dtype
    line, wanted = r.convert(line, common), r.convert(wanted, common)
    return r.convert(found(r, line, wanted, right or side == "right"), r.out.dtype)


def _bucketize(r: AtenReader, wanted: Operand, line: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _searchsorted(r, line, wanted, right=right)


def _histc(r: AtenReader, x: Value, bins: int = 100, low: Operand = 0, high: Operand = 0) -> Value:
    """Counts of equal parts from low to high, the last of which has its upper bound too.

    Bounds that are equal stand for those of the elements.
    """
    dtype = computed(x.dtype)
    line = r.convert(r.flat(x), dtype)
    start, end = r.scalar(low, dtype), r.scalar(high, dtype)
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and low != high):
        of_elements = r.op("and", r.compare(start, "EQ", end), r.compare(r.scalar(line.shape[0], I64), "NE", 0))
        start = r.select(of_elements, r.reduce(line, None, "min"), start)
        end = r.select(of_elements, r.reduce(line, None, "max"), end)
    same = r.compare(start, "EQ", end)
    start, end = r.select(same, r.op("subtract", start, 1), start), r.select(same, r.op("add", end, 1), end)
    part = r.op("divide", r.op("multiply", r.op("subtract", line, start), bins), r.op("subtract", end, start))
    inside = r.op("and", r.compare(line, "GE", start), r.compare(line, "LE", end))
    made = _counted(r, r.convert(r.emit("floor", (part,)), I64), inside, bins, r.scalar(1, dtype))
    return r.convert(made, r.out.dtype)


def _counted(r: AtenReader, place: Value, inside: Value, bins: int, what: Value) -> Value:
    """Sum `what` over the elements of each part that are inside; those behind the last part belong to it."""
    place = r.select(inside, r.op("minimum", place, bins - 1), bins)  # outside, where nothing is counted
    counts = r.full(0, what.dtype, (Dim.of(bins),))
    return places.put(r, counts, places.indexed(r, counts.shape, [place], wrap=False), what, "add")


def _histogram(
    r: AtenReader, x: Value, bins: int, *, range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> list[Value]:  # fmt: skip
    """(how much is between neighbouring bounds, the bounds); the last of them belongs to the last part."""
    dtype, wide = x.dtype, computed(x.dtype)
    line = r.convert(r.flat(x), wide)
    if range is not None:
        start, end = (r.scalar(bound, wide) for bound in range)
    else:
        some = r.compare(r.scalar(line.shape[0], I64), "NE", 0)
        start, end = (r.select(some, r.reduce(line, None, kind), 0) for kind in ("min", "max"))
    same = r.compare(start, "EQ", end)
    start, end = (r.select(same, r.op("add", x, by), x) for x, by in ((start, -0.5), (end, 0.5)))
    number = r.iota(I64, (Dim.of(bins + 1),))
    step = r.op("divide", r.op("subtract", end, start), bins)
    up = r.op("add", start, r.op("multiply", r.convert(number, wide), step))
    down = r.op("subtract", end, r.op("multiply", r.convert(r.op("subtract", bins, number), wide), step))
    bounds = r.select(r.compare(number, "LT", (bins + 1) // 2), up, down)
    place = r.op("subtract", r.convert(found(r, bounds, line, True), I64), 1)
    inside = r.op("and", r.compare(line, "GE", start), r.compare(line, "LE", end))
    what = r.scalar(1, wide) if weight is None else r.convert(r.reshape(weight, line.shape), wide)
    made = _counted(r, place, inside, bins, what)
    if density:
        widths = r.op("subtract", r.slice(bounds, 0, 1, bins + 1), r.slice(bounds, 0, 0, bins))
        made = r.op("divide", made, r.op("multiply", widths, r.reduce(made, None, "add")))
    return [r.convert(made, dtype), r.convert(bounds, dtype)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.searchsorted.Tensor": _searchsorted,
    "aten.searchsorted.Scalar": _searchsorted,
    "aten.bucketize.Tensor": _bucketize,
    "aten.bucketize.Scalar": _bucketize,
    "aten.histc.default": _histc,
    "aten.histogram.bin_ct": _histogram,
}
