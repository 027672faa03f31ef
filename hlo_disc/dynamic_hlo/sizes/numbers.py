"""Decides which sizes an integer type can hold as numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

_Interval = tuple[int, int]


def holds(facts: ShapeFacts | None, d: Dim, dtype: np.dtype) -> bool:
    """Whether an integer type surely holds a size: 64 bits hold all, and 32 bits hold single sizes of arrays."""
    if dtype.itemsize == 8:
        return True
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    largest = most if dtype.itemsize == 4 else None
    if _within(_interval(d, largest), least, most):
        return True
    return facts is not None and _within(facts.bounds(d), least, most)


def _within(found: tuple[int | None, int | None] | None, least: int, most: int) -> bool:
    if found is None or found[0] is None or found[1] is None:
        return False
    return least <= found[0] and found[1] <= most


def _interval(d: Dim, largest: int | None) -> _Interval | None:
    """Return the bounds of a dim if no size of an array exceeds `largest`, or None."""
    if largest is None:
        return None
    try:
        return d.lower(lambda n: (n, n), lambda _: (0, largest), _OPS)
    except ZeroDivisionError:
        return None


def _multiplied(x: _Interval, y: _Interval) -> _Interval:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def _divided(x: _Interval, y: _Interval) -> _Interval:
    if y[0] < 0:
        raise ZeroDivisionError
    corners = [a // b for a in x for b in (max(y[0], 1), max(y[1], 1))]  # nothing is divided by 0
    return min(corners), max(corners)


def _rest(x: _Interval, y: _Interval) -> _Interval:
    if y[0] < 0:
        raise ZeroDivisionError
    return 0, max(y[1] - 1, 0)


_OPS: dict[str, Callable[[_Interval, _Interval], _Interval]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "mul": _multiplied,
    "floordiv": _divided,
    "mod": _rest,
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
}
