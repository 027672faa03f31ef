"""Shape inference of the ops that combine elements with a region.

All of them have operands (*xs, *inits, *captured) and an attribute `body`: a Region over scalars whose inputs are what
was combined so far, one a x, the elements to add, one a x, and what the region captured; its outputs are one a x.
Source: StableHLO, "reduce", "reduce_window" and "select_and_scatter".
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.inference import (
    BOOL,
    Types,
    agree,
    agree_shapes,
    broken,
    disagree,
    need_axes,
    need_dtype,
    need_scalar,
)
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import ZERO, dilated, padded, positions

WINDOW = ("window", "strides", "base_dilations", "window_dilations", "low", "high")


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


def _need_region(op: Op, name: str, combined_types: Sequence, results: Sequence, others: int | None = None) -> None:
    region: Region = op.attrs[name]
    captured = op.operands[2 * len(combined_types) if others is None else others :]
    for value in captured:
        need_scalar(op, value, "a captured value")
    wanted = [*combined_types, *combined_types, *(v.dtype for v in captured)]
    if [v.dtype for v in region.inputs] != wanted or [v.dtype for v in region.outputs] != list(results):
        broken(op, f"{name} is from {list(region.inputs)} to {list(region.outputs)}, not from {wanted} to {results}")
    if any(v.rank for v in (*region.inputs, *region.outputs)):
        broken(op, f"{name} must combine scalars")


def reduce_with(op: Op, facts: ShapeFacts) -> Types:
    xs, inits, _ = combined(op)
    _need_body(op, xs, inits)
    shape, dims = agree_shapes(op, facts, xs), op.attrs["dims"]
    need_axes(op, dims, len(shape), "dims")
    kept = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    return [(x.dtype, kept) for x in xs]


def cumulative(op: Op, facts: ShapeFacts) -> Types:
    """Element i of the result combines elements 0 … i of the operand, or i … with `reverse`.

    The initial values are identities of the body: combining one with them changes nothing.
    """
    xs, inits, _ = combined(op)
    _need_body(op, xs, inits)
    shape = agree_shapes(op, facts, xs)
    need_axes(op, (op.attrs["dim"],), len(shape), "dim")
    return [(x.dtype, shape) for x in xs]


def reduce_window(op: Op, facts: ShapeFacts) -> Types:
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


def select_and_scatter(op: Op, facts: ShapeFacts) -> Types:
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


def whole(n: Dim, window: Dim, low: Dim, high: Dim, facts: ShapeFacts) -> bool:
    """Whether one window takes exactly the axis."""
    return all(facts.equal(a, b) is Truth.YES for a, b in ((n, window), (low, ZERO), (high, ZERO)))
