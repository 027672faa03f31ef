"""Rows of ops that put values side by side."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from op_rows.elementwise import WITH_NARROW
from op_rows.gen import INDEX, ONE, ZERO, B, Gen, S, never_empty


def _concatenate(g: Gen) -> Value:
    x = g.value(WITH_NARROW, 1)
    axis = g.integer(0, x.rank - 1)
    parts = [x]
    for _ in range(g.integer(0, 3)):
        fit = [
            v for v in g.pool
            if v.dtype == x.dtype and v.rank == x.rank
            and all(a is b for i, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if i != axis)
        ]  # fmt: skip
        other = (*x.shape[:axis], g.choose((x.shape[axis], g.fixed(), ZERO)), *x.shape[axis + 1 :])
        parts.append(g.choose(fit) if fit and g.reuse and g.flag() else g.of(x.dtype, other))
    return g.b.op("concatenate", g.order(parts), dim=axis)


def _pad(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    low, high, interior = [], [], []
    for size in x.shape:
        cut = [Dim.const(-1)] if never_empty(size) else []
        low.append(g.choose((ZERO, ZERO, ONE, Dim.const(2), *cut)))
        high.append(g.choose((ZERO, ZERO, ONE, Dim.const(2), *(cut if low[-1] is not Dim.const(-1) else []))))
        interior.append(g.choose((ZERO, ZERO, ONE, Dim.const(2), B, S)))
    edges = dict(low=tuple(low), high=tuple(high), interior=tuple(interior))
    return g.b.op("pad", [x, g.of(x.dtype, ())], **edges)


def _starts(g: Gen, rank: int) -> list[Value]:
    dtype = g.dtype(INDEX)
    return [g.of(dtype, ()) for _ in range(rank)]


def _part(g: Gen, size: Dim) -> Dim:
    """A size that fits into this one."""
    return g.choose((size, size // 2, ZERO, *([ONE] if never_empty(size) else [])))


def _dynamic_slice(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    return g.b.op("dynamic_slice", [x, *_starts(g, x.rank)], sizes=tuple(_part(g, d) for d in x.shape))


def _dynamic_update_slice(g: Gen) -> Value:
    return update_of(g, g.value(WITH_NARROW))


def update_of(g: Gen, x: Value) -> Value:
    """x with a part of it replaced."""
    update = g.of(x.dtype, tuple(_part(g, d) for d in x.shape))
    return g.b.op("dynamic_update_slice", [x, update, *_starts(g, x.rank)])


ROWS = {
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
