"""Views as index arithmetic: each op of a body that moves elements asks its operand at another index."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.errors import CompileError
from hlo_disc.stitch.codegen import complex_values as pairs
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.val import Val
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


def _iota(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    return body.from_index(index[op.attrs["dim"]], op.result.dtype)


def _dim(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    return body.from_index(Index(body.sizes(op.attrs["expr"])), op.result.dtype)


def _broadcast(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,) = op.operands
    at = []
    for size, axis in zip(x.shape, op.attrs["dims"], strict=True):
        if size.is_const and size.value == 1:
            at.append(ZERO)
        elif body.sizes.facts.equal(size, op.result.shape[axis]) is Truth.YES:
            at.append(index[axis])
        else:  # either equal or 1, known only at the call
            n = body.b.index(body.sizes(size))
            step = body.b.select(body.b.compare("==", n, 1), body.b.index(0), body.b.index(1))
            at.append(body.math.scale(index[axis], step))
    return body.eval(x, tuple(at))


def _reshape(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,) = op.operands
    at: list[Index] = []
    for result_axes, operand_axes in reshape_segments(op.result.shape, x.shape, body.sizes.facts):
        if len(result_axes) == len(operand_axes) == 1:
            at.append(index[result_axes[0]])
            continue
        flat = body.math.linear(
            [index[a] for a in result_axes], body.sizes.shape([op.result.shape[a] for a in result_axes])
        )
        at += body.math.delinear(flat, body.sizes.shape([x.shape[a] for a in operand_axes]))
    return body.eval(x, tuple(at))


def _transpose(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = [ZERO] * len(index)
    for i, axis in zip(index, op.attrs["perm"], strict=True):
        at[axis] = i
    return body.eval(op.operands[0], tuple(at))


def _slice(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = [
        body.math.scale(i, stride).shift(body.sizes(start))
        for i, start, stride in zip(index, op.attrs["start"], op.attrs["stride"], strict=True)
    ]
    return body.eval(op.operands[0], tuple(at))


def _slice_padded(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,), attrs, b, facts = op.operands, op.attrs, body.b, body.sizes.facts
    at: list[Index] = []
    asked: list[Val] = []
    rows = zip(index, attrs["start"], attrs["stride"], attrs["shape"], x.shape, strict=True)
    for i, start, stride, size, n in rows:
        place = body.math.scale(i, stride).shift(body.sizes(start))
        at.append(place)
        last = start + (size - 1) * stride + 1
        if {facts.at_most(Dim.const(0), start), facts.at_most(last, n)} != {Truth.YES}:
            number = body.math.vector(place) if place.lanes else b.index(place.base)
            asked.append(b.compare("<", number, body.sizes(n), unsigned=True))
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


def _window(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,), attrs = op.operands, op.attrs
    at = list(index[: x.rank])
    rows = zip(attrs["dims"], attrs["strides"], attrs["dilations"], index[x.rank :], strict=True)
    for axis, stride, dilation, offset in rows:
        at[axis] = body.math.add(body.math.scale(at[axis], stride), body.math.scale(offset, dilation))
    return body.eval(x, tuple(at))


def _reverse(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = list(index)
    for axis in op.attrs["dims"]:
        at[axis] = body.math.scale(index[axis], -1).shift(body.sizes(op.result.shape[axis]) + (-1))
    return body.eval(op.operands[0], tuple(at))


def clamped_starts(body: Body, starts: Sequence[Value], size: Sequence[Dim], window: Sequence[Dim]) -> list[Index]:
    """Scalar start indices, clamped so that the window fits."""
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
    x, indices = op.operands
    attrs = op.attrs
    batch = [i for axis, i in enumerate(index) if axis not in attrs["offset_dims"]]
    offsets = iter([index[axis] for axis in attrs["offset_dims"]])
    vector_axis = attrs["index_vector_dim"]
    at = []
    for axis, (size, window) in enumerate(zip(x.shape, attrs["slice_sizes"], strict=True)):
        i = ZERO
        if axis in attrs["operand_batching_dims"]:
            k = attrs["start_indices_batching_dims"][attrs["operand_batching_dims"].index(axis)]
            i = batch[k if k < vector_axis else k - 1]
        elif axis not in attrs["collapsed_slice_dims"]:
            i = next(offsets)
        if axis in attrs["start_index_map"]:
            where = list(batch)
            if vector_axis < indices.rank:
                where.insert(vector_axis, Index(attrs["start_index_map"].index(axis)))
            start = body.as_index(body.eval(indices, tuple(where)), indices.dtype)
            i = body.math.add(i, body.math.clamp(start, body.sizes(size - window)))
        at.append(i)
    return body.eval(x, tuple(at))


VIEWS: dict[str, Callable[[Body, Op, tuple[Index, ...]], Val]] = {
    "constant": _constant,
    "iota": _iota,
    "dim": _dim,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "slice_padded": _slice_padded,
    "window": _window,
    "reverse": _reverse,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "select_windows": select_windows,
    "window_scatter": window_scatter,
}
