"""Rows of ops that only move elements, and know at compile time from where."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from op_rows.elementwise import WITH_NARROW
from op_rows.gen import ONE, ZERO, B, Gen, S, never_empty


def _broadcast(g: Gen) -> Value:
    x = g.value(WITH_NARROW, 0, 3)
    shape, dims = [], []
    for size in x.shape:
        while g.integer(0, 2) == 0 and len(shape) - len(dims) < 2:
            shape.append(g.choose((B, S, ONE, Dim.const(3))))
        dims.append(len(shape))
        shape.append(g.choose((B, S, Dim.const(4))) if size is ONE and g.flag() else size)
    shape += g.shape(0, 2) if not dims or g.flag() else ()
    order = g.order(range(len(shape))) if g.integer(0, 3) == 0 else list(range(len(shape)))
    shape = [shape[i] for i in order]
    return g.b.op("broadcast", [x], shape=tuple(shape), dims=tuple(order.index(d) for d in dims))


def _reshape(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    shape = [d for d in x.shape if d is not ONE or g.flag()]
    if len(shape) > 1 and g.flag():
        at = g.integer(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    for at, size in enumerate(shape):
        known = [d for d in (Dim.const(2), B, S, B + 1) if _divides(d, size)]
        if known and g.flag():
            part = g.choose(known)
            shape[at : at + 1] = g.order((part, _quotient(size, part)))
            break
    while g.integer(0, 2) == 0:
        shape.insert(g.integer(0, len(shape)), ONE)
    return g.b.op("reshape", [x], shape=tuple(shape))


def _divides(part: Dim, size: Dim) -> bool:
    return (size.is_const and part.is_const and size.value % part.value == 0) or (
        not size.is_const and any(size is part * d for d in (ONE, Dim.const(2), B, S, Dim.const(3)))
    )


def _quotient(size: Dim, part: Dim) -> Dim:
    if size.is_const:
        return Dim.const(size.value // part.value)
    return next(d for d in (ONE, Dim.const(2), B, S, Dim.const(3)) if size is part * d)


def _transpose(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    return g.b.op("transpose", [x], perm=tuple(g.order(range(x.rank))))


def _reverse(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    return g.b.op("reverse", [x], dims=tuple(g.some(range(x.rank))))


def _slice(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    ranges = [_range(g, size) for size in x.shape]
    start, limit, stride = zip(*ranges, strict=True) if ranges else ((), (), ())
    return g.b.op("slice", [x], start=start, limit=limit, stride=stride)


def _range(g: Gen, size: Dim) -> tuple[Dim, Dim, int]:
    """(start, limit, stride) within any size that is this one."""
    options = [(ZERO, size), (size // 2, size), (ZERO, size // 2), (size, size), (size // 3, size - size // 4)]
    if never_empty(size):
        options += [(ONE, size), (ZERO, size - 1), (ZERO, ONE)]
    return (*g.choose(options), g.choose((1, 1, 2, 3)))


ROWS = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
}
