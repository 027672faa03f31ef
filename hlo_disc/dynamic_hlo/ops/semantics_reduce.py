"""What the ops with a combining region compute, in numpy; see inference_reduce.py for their operands.

`body` is a function of arrays of equal shape, which combines them element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from hlo_disc.dynamic_hlo.ops.semantics import pad

Array = np.ndarray
Ints = tuple[int, ...]
_LONG = 64


class Body(Protocol):
    """What combines; `results` is how many arrays it makes."""

    @property
    def results(self) -> int: ...

    def __call__(self, *arrays: Array) -> list[Array]: ...


def _parts(arrays: tuple[Array, ...], body: Body) -> tuple[list[Array], list[Array], list[Array]]:
    count = body.results
    return list(arrays[:count]), list(arrays[count : 2 * count]), list(arrays[2 * count :])


def _fold(body: Body, state: list[Array], steps: Iterator[list[Array]], captured: list[Array]) -> list[Array]:
    for step in steps:
        made = body(*state, *step, *captured)
        state = [np.broadcast_to(x, y.shape) for x, y in zip(made, state, strict=True)]
    return state


def _halved(body: Body, rows: list[Array], captured: list[Array]) -> list[Array]:
    """Long rows with neighbours combined until they are short: in which order elements are combined is not said."""
    while (count := len(rows[0])) > _LONG:
        made = body(*(x[0 : count - 1 : 2] for x in rows), *(x[1::2] for x in rows), *captured)
        rest = [x[count - count % 2 :] for x in rows]
        rows = [
            np.concatenate([np.broadcast_to(x, (count // 2, *y.shape[1:])), y]) for x, y in zip(made, rest, strict=True)
        ]
    return rows


def reduce_with(*arrays: Array, dims: Ints, body: Body) -> tuple[Array, ...]:
    xs, inits, captured = _parts(arrays, body)
    order = [*sorted(dims), *(a for a in range(xs[0].ndim) if a not in dims)]
    kept = tuple(n for a, n in enumerate(xs[0].shape) if a not in dims)
    count = math.prod(xs[0].shape[a] for a in dims)
    rows = [x.transpose(order).reshape(count, *kept) for x in xs]
    rows = _halved(body, rows, captured)
    count = len(rows[0])
    start = [np.broadcast_to(init, kept) for init in inits]
    return tuple(_fold(body, start, ([row[i] for row in rows] for i in range(count)), captured))


def cumulative(*arrays: Array, dim: int, reverse: bool, body: Body) -> tuple[Array, ...]:
    xs, _, captured = _parts(arrays, body)
    lines = [np.moveaxis(x, dim, 0) for x in xs]
    results = [line.copy() for line in lines]
    count = len(lines[0])
    for i in range(count - 2, -1, -1) if reverse else range(1, count):
        element = [line[i] for line in lines]
        before = [result[i + 1 if reverse else i - 1] for result in results]
        made = body(*(element + before if reverse else before + element), *captured)
        for result, x in zip(results, made, strict=True):
            result[i] = x
    return tuple(np.moveaxis(result, 0, dim) for result in results)


def reduce_window(
    *arrays: Array,
    window: Ints,
    strides: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    low: Ints,
    high: Ints,
    body: Body,
) -> tuple[Array, ...]:
    xs, inits, captured = _parts(arrays, body)
    interior = tuple(n - 1 for n in base_dilations)
    wide = [pad(x, init, low=low, high=high, interior=interior) for x, init in zip(xs, inits, strict=True)]
    shape = tuple(
        max((n - ((k - 1) * holes + 1)) // stride + 1, 0) if k else 0
        for n, k, holes, stride in zip(wide[0].shape, window, window_dilations, strides, strict=True)
    )
    start = [np.broadcast_to(init, shape) for init in inits]

    def steps() -> Iterator[list[Array]]:
        for at in np.ndindex(*window):
            first = [i * holes for i, holes in zip(at, window_dilations, strict=True)]
            yield [_taken(x, first, strides, shape) for x in wide]

    return tuple(_fold(body, start, steps() if math.prod(shape) else iter(()), captured))


def _taken(x: Array, first: list[int], strides: Ints, shape: Ints) -> Array:
    """The elements first, first + stride, … of every axis, `shape` of them."""
    return x[tuple(slice(i, i + s * n, s) for i, s, n in zip(first, strides, shape, strict=True))]


def select_and_scatter(
    x: Array,
    source: Array,
    init: Array,
    *captured: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Body,
    body: Body,
) -> Array:
    place = selected(x, source.shape, captured, window=window, strides=strides, low=low, high=high, select=select)
    return scattered(place, source, init, captured, x.shape, body)


def selected(
    x: Array,
    windows: Ints,
    captured: Sequence[Array],
    *,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Body,
) -> Array:
    """The number of the element of x that each window selects, -1 when all of a window is padding."""
    flat = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    none = (0,) * x.ndim
    values = pad(x, np.zeros((), x.dtype), low=low, high=high, interior=none)
    places = pad(flat, np.array(-1), low=low, high=high, interior=none)  # -1: padding, which is never selected
    chosen, place = np.zeros(windows, x.dtype), np.full(windows, -1, np.int64)
    for at in np.ndindex(*window) if place.size else ():
        value, there = (_taken(a, list(at), strides, windows) for a in (values, places))
        (keep,) = select(chosen, value, *captured)
        take = (there >= 0) & ((place < 0) | ~np.broadcast_to(keep, place.shape))
        chosen, place = np.where(take, value, chosen), np.where(take, there, place)
    return place


def scattered(place: Array, source: Array, init: Array, captured: Sequence[Array], shape: Ints, body: Body) -> Array:
    """An array of `shape` in which the elements of the source are combined into those whose number `place` has."""
    result = np.full(math.prod(shape), init, source.dtype)
    # In the order of the windows: first the first one that chose a place, for every place, then the second …
    windows = np.argsort(place.reshape(-1), kind="stable")
    targets = place.reshape(-1)[windows]
    turn = np.arange(targets.size) - np.searchsorted(targets, targets)
    for number in range(turn.max(initial=-1) + 1):
        now = (turn == number) & (targets >= 0)
        at = targets[now]
        result[at] = body(result[at], source.reshape(-1)[windows[now]], *captured)[0]
    return result.reshape(shape)
