"""Views as index arithmetic: each op of a body that moves elements reads its operand at another index.

Mostly the op's row gives that index (`ops/axes.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.axes import Affine, Axis, First, Order, Repeated, Same, placed
from hlo_disc.dynamic_hlo.ops.table import kind, links
from hlo_disc.dynamic_hlo.sizes import dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.errors import CompileError
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.values import complex_values as pairs
from hlo_disc.stitch.codegen.values.val import Val
from hlo_disc.stitch.codegen.windows import select_windows, window_scatter

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.body import Body


def _constant(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    value = op.attrs["value"]
    if value.size != 1:
        raise CompileError("a constant of many elements is a leaf of its kernel")
    if value.dtype.kind == "c":
        element = body.b.register_type(value.real.dtype)
        return pairs.join(body.b, body.b.const(value.item().real, element), body.b.const(value.item().imag, element))
    return body.b.const(value.item(), body.b.register_type(value.dtype))


def _dim(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    return body.from_index(Index(body.sizes(op.attrs["expr"])), op.result.dtype)


def _along(body: Body, entry: Axis, size: Dim, index: tuple[Index, ...]) -> Index:
    """Return the index of an axis of `size` elements that follows axes of the result."""
    match entry:
        case Same(axis):
            return index[axis]
        case Repeated(axis):
            n = body.b.index(body.sizes(size))
            step = body.b.select(body.b.compare("==", n, 1), body.b.index(0), body.b.index(1))
            return body.math.scale(index[axis], step)
        case First():
            return ZERO
        case Affine(terms, start):
            parts = [body.math.scale(index[axis], step) for axis, step in terms]
            at = functools.reduce(body.math.add, parts)
            return at if start is dim.ZERO else at.shift(body.sizes(start))
    raise CompileError(f"no rule says where {entry} is")


def regrouped(body: Body, index: Sequence[Index], shape: Shape, wanted: Shape) -> tuple[Index, ...]:
    """Return the index of an element in an array of another shape with the same elements in memory order."""
    at: list[Index] = []
    for given, made in reshape_segments(shape, wanted, body.sizes.facts):
        if len(given) == len(made) == 1:
            at.append(index[given[0]])
            continue
        if not given and len(made) == 1:
            at.append(ZERO)
            continue
        if not made and len(given) == 1 and shape[given[0]] is dim.ONE:
            continue
        flat = body.math.linear([index[a] for a in given], body.sizes.shape([shape[a] for a in given]))
        at += body.math.delinear(flat, body.sizes.shape([wanted[a] for a in made]))
    return tuple(at)


def view(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    """Return the value of a view: by its own function in `VIEWS`, or at the index that its row gives."""
    own = VIEWS.get(op.name)
    if own is not None:
        return own(body, op, index)
    known = links(op, body.sizes.facts)
    if kind(op) != "view" or not known:
        raise CompileError(f"{op.name} cannot be computed inside a kernel ({op.loc or 'unknown line'})")
    (x,), (link,) = op.operands, known
    if link.along is Order.ELEMENTS:
        return body.eval(x, regrouped(body, index, op.result.shape, x.shape))
    rows = zip(link.entries, x.shape, strict=True)
    return body.eval(x, tuple(_along(body, entry, size, index) for entry, size in rows))


def _slice_padded(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,), attrs, b, facts = op.operands, op.attrs, body.b, body.sizes.facts
    at: list[Index] = []
    asked: list[Val] = []
    rows = zip(index, attrs["start"], attrs["stride"], attrs["shape"], x.shape, strict=True)
    for i, start, stride, size, n in rows:
        place = body.math.scale(i, stride).shift(body.sizes(start))
        at.append(place)
        last = start + (size - 1) * stride + 1
        if {facts.at_most(dim.ZERO, start), facts.at_most(last, n)} != {Truth.YES}:
            asked.append(b.compare("<", body.math.value(place), body.sizes(n), unsigned=True))
    lanes = body.width if any(place.lanes for place in at) else 0
    zero = b.const(0, b.register_type(x.dtype), lanes)
    if not asked:
        return body.eval(x, tuple(at))
    inside = functools.reduce(b.both, [b.splat(one, lanes) for one in asked])
    if not lanes:
        return b.if_(inside, lambda: [body.eval(x, tuple(at))], lambda: [zero], like=[zero])[0]
    # The operand is in memory, where no lane of a vector reads what is masked.
    before = body.mask
    body.mask = inside if before is None else b.both(inside, before)
    value = body.eval(x, tuple(at))
    body.mask = before
    return b.select(inside, value, zero)


def clamped_starts(body: Body, starts: Sequence[Value], size: Sequence[Dim], window: Sequence[Dim]) -> list[Index]:
    """Return scalar start indices, clamped so that the window fits."""
    at = []
    for start, n, w in zip(starts, size, window, strict=True):
        i = body.as_index(body.eval(start, ()), start.dtype)
        at.append(body.math.clamp(i, body.sizes(n - w)))
    return at


def _dynamic_slice(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    x, *starts = op.operands
    base = clamped_starts(body, starts, x.shape, op.attrs["sizes"])
    return body.eval(x, tuple(body.math.add(i, j) for i, j in zip(base, index, strict=True)))


def _gather(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x, indices), attrs = op.operands, op.attrs
    of, batch = placed(op)
    at = []
    for axis, (position, size, window) in enumerate(zip(of, x.shape, attrs["slice_sizes"], strict=True)):
        i = ZERO if position is None else index[position]
        if axis in attrs["start_index_map"]:
            entry = Index(attrs["start_index_map"].index(axis))
            where = tuple(entry if p is None else index[p] for p in batch)
            start = body.as_index(body.eval(indices, where), indices.dtype)
            i = body.math.add(i, body.math.clamp(start, body.sizes(size - window)))
        at.append(i)
    return body.eval(x, tuple(at))


# Sources, and views that read where data say or that read nothing in places.
VIEWS: dict[str, Callable[[Body, Op, tuple[Index, ...]], Val]] = {
    "constant": _constant,
    "iota": lambda body, op, index: body.from_index(index[op.attrs["dim"]], op.result.dtype),
    "dim": _dim,
    "slice_padded": _slice_padded,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "select_windows": select_windows,
    "window_scatter": window_scatter,
}
