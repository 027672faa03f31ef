"""Reductions, prefix sums and windows.

All but `reduce` have operands (*xs, *inits, *captured) and an attribute `body`, a Region over scalars. Its inputs are
the values combined so far, one per x, the elements to add, one per x, and the captured values. Its outputs are one per
x. In numpy the body is a function of arrays of equal shape, which combines them element by element.
Source: StableHLO, "reduce", "reduce_window" and "select_and_scatter".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal, Protocol

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.arrays import Array, Ints, accumulator
from hlo_disc.dynamic_hlo.ops.axes import CUMULATIVE, REDUCE, over_windows
from hlo_disc.dynamic_hlo.ops.families.views import pad
from hlo_disc.dynamic_hlo.ops.inference import (
    Types,
    agree,
    agree_shapes,
    broken,
    disagree,
    need_axes,
    need_dtype,
    need_scalar,
)
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import dilated, padded, positions

WINDOW: Final = ("window", "strides", "base_dilations", "window_dilations", "low", "high")
UFUNCS = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_LONG = 64


class Combiner(Protocol):
    """A function that combines arrays; `results` is how many it returns."""

    @property
    def results(self) -> int: ...

    def __call__(self, *arrays: Array) -> list[Array]: ...


def _parts(arrays: tuple[Array, ...], body: Combiner) -> tuple[list[Array], list[Array], list[Array]]:
    count = body.results
    return list(arrays[:count]), list(arrays[count : 2 * count]), list(arrays[2 * count :])


def _fold(body: Combiner, state: list[Array], steps: Iterator[list[Array]], captured: list[Array]) -> list[Array]:
    for step in steps:
        made = body(*state, *step, *captured)
        state = [np.broadcast_to(x, y.shape) for x, y in zip(made, state, strict=True)]
    return state


def _halved(body: Combiner, rows: list[Array], captured: list[Array]) -> list[Array]:
    """Combine neighbours of long rows until the rows are short: the order in which elements are combined is free."""
    while (count := len(rows[0])) > _LONG:
        made = body(*(x[0 : count - 1 : 2] for x in rows), *(x[1::2] for x in rows), *captured)
        rest = [x[count - count % 2 :] for x in rows]
        rows = [
            np.concatenate([np.broadcast_to(x, (count // 2, *y.shape[1:])), y]) for x, y in zip(made, rest, strict=True)
        ]
    return rows


def infer_reduce(op: Op, facts: ShapeFacts) -> Types:
    (x, init), dims = op.operands, op.attrs["dims"]
    need_scalar(op, init, "the initial value")
    need_dtype(op, init, x.dtype, "the initial value")
    need_axes(op, dims, x.rank, "dims")
    logical, real = op.attrs["kind"] in ("and", "or", "xor"), dtype_class(x.dtype) != "complex"
    if logical and dtype_class(x.dtype) in ("float", "complex") or not (real or op.attrs["kind"] in ("add", "mul")):
        broken(op, f"{op.attrs['kind']} of dtype {x.dtype}")
    return [(x.dtype, tuple(size for axis, size in enumerate(x.shape) if axis not in dims))]


def reduce(x: Array, init: Array, *, dims: Ints, kind: str) -> Array:
    wide = x.astype(accumulator(x.dtype))
    start = init.astype(wide.dtype)
    with np.errstate(all="ignore"):
        if kind in ("add", "mul"):
            result = UFUNCS[kind].reduce(wide, axis=dims, initial=start, dtype=wide.dtype)
        else:
            result = UFUNCS[kind].reduce(wide, axis=dims, initial=start)
        return np.asarray(result).astype(x.dtype)


def combined(op: Op) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
    """(xs, inits, captured) of an op with a combining `body`."""
    n = len(op.attrs["body"].outputs)
    return op.operands[:n], op.operands[n : 2 * n], op.operands[2 * n :]


def _need_body(op: Op, xs: Sequence[Value], inits: Sequence[Value]) -> None:
    if not xs or len(inits) != len(xs):
        broken(op, f"{len(op.operands)} operands for a body with {len(op.attrs['body'].outputs)} results")
    for number, (x, init) in enumerate(zip(xs, inits, strict=True)):
        need_scalar(op, init, f"initial value {number}")
        need_dtype(op, init, x.dtype, f"initial value {number}")
    _need_region(op, "body", [x.dtype for x in xs], [x.dtype for x in xs])


def _need_region(
    op: Op, name: Literal["body", "select"], types: Sequence[np.dtype], results: Sequence[np.dtype], others: int = 0
) -> None:
    region = op.attrs[name]
    captured = op.operands[others or 2 * len(types) :]
    for value in captured:
        need_scalar(op, value, "a captured value")
    wanted = [*types, *types, *(v.dtype for v in captured)]
    if [v.dtype for v in region.inputs] != wanted or [v.dtype for v in region.outputs] != list(results):
        broken(op, f"{name} is from {list(region.inputs)} to {list(region.outputs)}, not from {wanted} to {results}")
    if any(v.rank for v in (*region.inputs, *region.outputs)):
        broken(op, f"{name} must combine scalars")


def infer_reduce_with(op: Op, facts: ShapeFacts) -> Types:
    xs, inits, _ = combined(op)
    _need_body(op, xs, inits)
    shape, dims = agree_shapes(op, facts, xs), op.attrs["dims"]
    need_axes(op, dims, len(shape), "dims")
    kept = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    return [(x.dtype, kept) for x in xs]


def reduce_with(*arrays: Array, dims: Ints, body: Combiner) -> tuple[Array, ...]:
    xs, inits, captured = _parts(arrays, body)
    order = [*sorted(dims), *(a for a in range(xs[0].ndim) if a not in dims)]
    kept = tuple(n for a, n in enumerate(xs[0].shape) if a not in dims)
    count = math.prod(xs[0].shape[a] for a in dims)
    rows = [x.transpose(order).reshape(count, *kept) for x in xs]
    rows = _halved(body, rows, captured)
    count = len(rows[0])
    start = [np.broadcast_to(init, kept) for init in inits]
    return tuple(_fold(body, start, ([row[i] for row in rows] for i in range(count)), captured))


def infer_cumulative(op: Op, facts: ShapeFacts) -> Types:
    """Element i of the result combines elements 0 … i of the operand, or i … with `reverse`.

    The initial values are identities of the body: combining one with them changes nothing.
    """
    xs, inits, _ = combined(op)
    _need_body(op, xs, inits)
    shape = agree_shapes(op, facts, xs)
    need_axes(op, (op.attrs["dim"],), len(shape), "dim")
    return [(x.dtype, shape) for x in xs]


def cumulative(*arrays: Array, dim: int, reverse: bool, body: Combiner) -> tuple[Array, ...]:
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


def infer_reduce_window(op: Op, facts: ShapeFacts) -> Types:
    xs, inits, _ = combined(op)
    _need_body(op, xs, inits)
    shape = _windowed(op, agree_shapes(op, facts, xs), facts)
    return [(x.dtype, shape) for x in xs]


def _windowed(op: Op, shape: Shape, facts: ShapeFacts) -> Shape:
    attrs, ones = op.attrs, (1,) * len(shape)
    base, holes = attrs.get("base_dilations", ones), attrs.get("window_dilations", ones)
    for name in WINDOW:
        if name in attrs and len(attrs[name]) != len(shape):
            broken(op, f"{name} {attrs[name]} must have one entry for each of {len(shape)} dims")
    if any(n < 1 for n in (*attrs["strides"], *base, *holes)):
        broken(op, "strides and dilations must be positive")
    sizes = []
    for axis, n in enumerate(shape):
        window, low, high = attrs["window"][axis], attrs["low"][axis], attrs["high"][axis]
        if facts.at_most(window, ZERO) is Truth.YES:
            disagree(op, f"the window of dim {axis} has the size {window}")
        extent = padded(n, base[axis], low, high, facts)
        if facts.at_most(ZERO, extent) is Truth.NO:
            disagree(op, f"dim {axis} of size {n} would be padded to {extent}")
        sizes.append(positions(extent, dilated(window, holes[axis], facts), attrs["strides"][axis], facts))
    return tuple(sizes)


def reduce_window(
    *arrays: Array,
    window: Ints,
    strides: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    low: Ints,
    high: Ints,
    body: Combiner,
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
    """Take the elements first, first + stride, … of every axis, `shape` of them."""
    return x[tuple(slice(i, i + s * n, s) for i, s, n in zip(first, strides, shape, strict=True))]


def infer_select_and_scatter(op: Op, facts: ShapeFacts) -> Types:
    """(x, source, init, *captured); the regions `select` and `body` (what scatters) take two scalars and the captured.

    In every window of x one element is selected; the source's element of that window is combined into its place.
    """
    x, source, init = op.operands[:3]
    need_scalar(op, init, "the initial value")
    need_dtype(op, init, x.dtype, "the initial value")
    need_dtype(op, source, x.dtype, "the source")
    _need_region(op, "select", [x.dtype], [BOOL], 3)
    _need_region(op, "body", [x.dtype], [x.dtype], 3)
    windows = _windowed(op, x.shape, facts)
    if source.rank != x.rank:
        broken(op, f"the source has rank {source.rank}, the operand has rank {x.rank}")
    for axis, (n, m) in enumerate(zip(source.shape, windows, strict=True)):
        agree(op, facts, n, m, f"dim {axis} of the source and of the windows")
    return [(x.dtype, x.shape)]


def select_and_scatter(
    x: Array,
    source: Array,
    init: Array,
    *captured: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Combiner,
    body: Combiner,
) -> Array:
    place = selected(x, source.shape, captured, window=window, strides=strides, low=low, high=high, select=select)
    return scattered(place, source, init, captured, x.shape, body)


def whole(n: Dim, window: Dim, low: Dim, high: Dim, facts: ShapeFacts) -> bool:
    """Whether one window takes exactly the axis."""
    return all(facts.equal(a, b) is Truth.YES for a, b in ((n, window), (low, ZERO), (high, ZERO)))


def selected(
    x: Array,
    windows: Ints,
    captured: Sequence[Array],
    *,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Combiner,
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


def scattered(
    place: Array, source: Array, init: Array, captured: Sequence[Array], shape: Ints, body: Combiner
) -> Array:
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


ROWS = (
    OpDef("reduce", "reduce", 2, infer_reduce, reduce, ("dims", "kind"), axes=REDUCE),
    OpDef("reduce_with", "reduce", None, infer_reduce_with, reduce_with, ("dims", "body"), axes=REDUCE),
    OpDef(
        "cumulative",
        "cumulative",
        None,
        infer_cumulative,
        cumulative,
        ("dim", "reverse", "body"),
        expensive=True,
        axes=CUMULATIVE,
    ),
    OpDef(
        "reduce_window",
        "window",
        None,
        infer_reduce_window,
        reduce_window,
        (*WINDOW, "body"),
        expensive=True,
        axes=over_windows(WINDOW),
    ),
    OpDef(
        "select_and_scatter",
        "window",
        None,
        infer_select_and_scatter,
        select_and_scatter,
        ("window", "strides", "low", "high", "select", "body"),
    ),
)
