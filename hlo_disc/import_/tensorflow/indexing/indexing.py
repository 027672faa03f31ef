"""Slices and gathers. TensorFlow's CPU refuses an index outside of a tensor; here it is clamped, as in XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.folding import folding, objects
from hlo_disc.import_.tensorflow.shapes import axis_of, ints, result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


# -------------------------------------------------------------------------------------------------------------- slices


class _Part(NamedTuple):
    """A step of a strided slice, for an axis. kind: new, all, one, range. i: of its entry. low, high: of a range."""

    kind: str
    i: int = -1
    low: Dim | None = None
    high: Dim | None = None


def _spec(op: Node, begin: Sequence[Dim], end: Sequence[Dim], rank: int) -> list[_Part]:
    def has(mask: str, i: int) -> bool:
        return bool(op.attributes.get(f"{mask}_mask", 0) >> i & 1)

    spec: list[_Part] = []
    plain = sum(not (has("ellipsis", i) or has("new_axis", i)) for i in range(len(begin)))
    for i, (low, high) in enumerate(zip(begin, end, strict=True)):
        if has("ellipsis", i):
            spec += [_Part("all")] * (rank - plain)
        elif has("new_axis", i) or has("shrink_axis", i):
            spec.append(_Part("new" if has("new_axis", i) else "one", i))
        else:
            spec.append(_Part("range", i, None if has("begin", i) else low, None if has("end", i) else high))
    return spec + [_Part("all")] * (rank - sum(part.kind != "new" for part in spec))


def strided_slice(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Take a range of each axis. operands: the tensor, begin, end and strides."""
    x, (begin, end) = array(r, operands[0]), operands[1:3]
    strides = ints(r, operands[3], "strides")
    starts, ends = (_elements(r, o, len(strides)) for o in (begin, end))
    shape: list[Dim] = []
    axis = 0
    for kind, i, low, high in _spec(op, starts, ends, x.rank):
        if kind == "new":
            shape.append(ONE)
            continue
        if kind == "one":
            x = _one(r, x, axis, starts[i], begin, i)
        else:
            x = _range_of(r, x, axis, low, high, strides[i]) if kind == "range" else x
            shape.append(x.shape[axis])
        axis += 1
    return x.reshape(shape).value


def _elements(r: Reader, x: Operand, count: int) -> Sequence[Dim]:
    symbolic = x if isinstance(x, Symbolic) else r.evaluator.opaque(x)  # type: ignore[arg-type]
    if symbolic is None:
        r.unsupported("what it is given as positions has no known number of elements")
    return tuple(map(r.evaluator.scalar.number, symbolic.elements))


def _wrapped(r: Reader, d: Dim, n: Dim) -> Dim | None:
    """Return a position with negative ones counted from the end; None if only data decides."""
    if d.is_const:
        return d if d.value >= 0 else n + d
    if r.evaluator.scalar.nonnegative(d):
        return d
    if r.facts.at_most(d, Dim.const(-1)) is Truth.YES:
        return n + d
    if r.is_opaque(d):
        return None
    # `d + n` if d < 0: the number of such d is at most one
    negative = r.evaluator.scalar.number(r.evaluator.scalar.compare("<", d, ZERO))
    return r.facts.canonical(d + n * negative)


def _one(r: Reader, x: Array, axis: int, d: Dim, begin: Operand, i: int) -> Array:
    """Take one element of an axis, with size 1."""
    n = x.shape[axis]
    at = None if r.is_opaque(d) else _wrapped(r, d, n)
    if at is not None:
        r.at_most(ZERO, at, f"index {{1}} of dimension {axis} is below 0")
        r.at_most(at + 1, n, f"index {{0}} - 1 of dimension {axis} is outside of its {{1}} elements")
        return x.slice(axis, at, at + 1)
    return _window(r, x, axis, _place(r, begin, i, n), ONE)


def _place(r: Reader, begin: Operand, i: int, n: Dim) -> Array:
    """Return a data-dependent position on an axis, with negative ones counted from the end."""
    place = Array(r, r.element(r.data(begin), i)).cast(I64)
    return where(place < 0, place + n, place)


def _window(r: Reader, x: Array, axis: int, start: Array, size: Dim) -> Array:
    """Take a part of an axis whose position is data."""
    r.at_most(size, x.shape[axis], f"the size {{0}} to take of dimension {axis} is larger than its {{1}}")
    return x.window(axis, start, size)


def _range_of(r: Reader, x: Array, axis: int, first: Dim | None, last: Dim | None, stride: int) -> Array:
    n, scalar = x.shape[axis], r.evaluator.scalar
    if _is_data(r, first, last, stride):
        return _data_range(r, x, axis, first, last)
    if stride < 0:
        # The same positions counted from the end of the reversed axis.
        turned = [None if d is None else _turned(r, d, n) for d in (first, last)]
        return _range_of(r, x.reverse([axis]), axis, turned[0], turned[1], -stride)

    def clamped(d: Dim | None, default: Dim) -> Dim:
        if d is None:
            return default
        at = _wrapped(r, d, n)
        assert at is not None
        return _clamped(r, at, n)

    low, high = clamped(first, ZERO), clamped(last, n)
    return x.slice(axis, low, scalar.maximum(low, high), stride)


def _clamped(r: Reader, d: Dim, n: Dim) -> Dim:
    return r.evaluator.scalar.minimum(r.evaluator.scalar.maximum(d, ZERO), n)


def _turned(r: Reader, d: Dim, n: Dim) -> Dim:
    """Return a position on the reversed axis, as a position of a slice, where negative ones are clamped."""
    at = _wrapped(r, d, n)
    assert at is not None
    return r.evaluator.scalar.maximum(n - 1 - at, ZERO) if at.is_const or at is not d else n - 1 - at


def _is_data(r: Reader, first: Dim | None, last: Dim | None, stride: int) -> bool:
    """Whether the position of a range depends on data."""
    found = any(d is not None and r.is_opaque(d) for d in (first, last))
    if found and stride != 1:
        r.unsupported("positions that depend on data with strides other than 1")
    return found


def _data_place(r: Reader, d: Dim, n: Dim) -> Dim:
    """Return a position with negative ones counted from the end, even if only data decides whether it is negative."""
    at = _wrapped(r, d, n)
    return d + n * Dim.min(Dim.max(-d, ZERO), ONE) if at is None else at


def _data_range(r: Reader, x: Array, axis: int, first: Dim | None, last: Dim | None) -> Array:
    """Take a part whose position depends on data, and whose size may."""
    n, scalar = x.shape[axis], r.evaluator.scalar
    low, high = (ZERO if first is None else first), (n if last is None else last)
    span = r.facts.canonical(high - low)
    if not r.is_opaque(span):
        (size,) = r.tensor_shape((scalar.maximum(span, ZERO),))
        return _window(r, x, axis, Array(r, r.data_dims.scalar(_data_place(r, low, n))), size)
    inside = [_clamped(r, _data_place(r, d, n), n) for d in (low, high)]
    (size,) = r.tensor_shape((scalar.maximum(inside[1] - inside[0], ZERO),))
    return _window(r, x, axis, Array(r, r.data_dims.scalar(inside[0])), size)


def _strided_elements(r: Reader, op: Node, x: np.ndarray, *bounds: np.ndarray) -> np.ndarray | None:
    begin, end, strides = bounds
    if any(not d.is_const for bound in bounds for d in bound):
        return None
    index: list[Any] = []
    for kind, i, low, high in _spec(op, list(begin), list(end), x.ndim):
        if kind == "new":
            index.append(None)
        elif kind == "all":
            index.append(slice(None))
        elif kind == "one":
            index.append(begin[i].value)
        else:
            first, last = (None if d is None else d.value for d in (low, high))
            index.append(slice(first, last, strides[i].value))
    return objects(x[tuple(index)])


def _slice(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    starts, sizes = (_elements(r, o, x.rank) for o in operands[1:])
    for axis, (low, size) in enumerate(zip(starts, sizes, strict=True)):
        n = x.shape[axis]
        rest = size.is_const and size.value == -1
        if r.is_opaque(low) or (not rest and r.is_opaque(size)):
            x = _data_range(r, x, axis, low, n if rest else low + size)
        else:
            x = x.slice(axis, low, n if rest else low + size)
    return x.value


def _slice_elements(r: Reader, op: Node, x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray | None:
    if any(not d.is_const for d in (*begin, *size)):
        return None
    pairs = [(b.value, s.value) for b, s in zip(begin, size, strict=True)]
    return x[tuple(slice(b, None if s == -1 else b + s) for b, s in pairs)]


def _strided_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient of a strided slice: its elements go back between zeros."""
    shape = r.sizes(operands[0])
    dy = array(r, operands[4])
    strides = ints(r, operands[3], "strides")
    starts, ends = (_elements(r, o, len(strides)) for o in operands[1:3])
    taken: list[tuple[Dim, Dim, int]] = []
    axis, flipped = 0, []
    places: dict[int, Array] = {}  # by axis, where these are data
    have = iter(dy.shape)
    for kind, i, first, last in _spec(op, starts, ends, len(shape)):
        size = ONE if kind == "one" else next(have)
        if kind == "new":
            continue
        n = shape[axis]
        if kind == "all":
            taken.append((ZERO, n, 1))
        elif kind == "one":
            at = None if r.is_opaque(starts[i]) else _wrapped(r, starts[i], n)
            if at is None:
                places[axis], at = _place(r, operands[1], i, n), ZERO
            taken.append((at, ONE, 1))
        else:
            low = ZERO
            if _is_data(r, first, last, strides[i]):
                r.at_most(size, n, f"the size {{0}} to take of dimension {axis} is larger than its {{1}}")
                places[axis] = Array(r, r.data_dims.scalar(ZERO if first is None else _data_place(r, first, n)))
            else:
                probe = filled(r, 0, np.float32, (n,))
                size = _range_of(r, probe, 0, first, last, strides[i]).shape[0]
                if first is not None:
                    at = _wrapped(r, first if strides[i] > 0 else _turned(r, first, n), n)
                    low = _clamped(r, at, n)  # type: ignore[arg-type]
                if strides[i] < 0:
                    flipped.append(axis)
            taken.append((low, size, abs(strides[i])))
        axis += 1
    dy = dy.reshape([size for _, size, _ in taken])
    lows = [d for d, _, _ in taken]
    scalar = r.evaluator.scalar
    extents = [scalar.maximum((size - 1) * stride + 1, ZERO) if stride > 1 else size for _, size, stride in taken]
    highs = [
        ZERO if axis in places else n - d - extent
        for axis, (n, d, extent) in enumerate(zip(shape, lows, extents, strict=True))
    ]
    gaps = tuple(Dim.const(stride - 1) for _, _, stride in taken)
    made = dy.emit("pad", dy.like(0), low=tuple(lows), high=tuple(highs), interior=gaps)
    made = made.reverse(flipped)
    if places:
        zero = Array(r, r.constant(np.zeros((), I64)))
        at_each = [places.get(axis, zero) for axis in range(len(shape))]
        made = filled(r, 0, dy.dtype, shape).emit("dynamic_update_slice", made, *at_each)
    return made.value


def strided_update(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Update by a strided slice of the element numbers, which says where the new elements go."""
    x, new = array(r, operands[0]), array(r, operands[4])
    line = x.flat()
    places = line.iota(0, I64).reshape(x.shape)
    at = Array(r, r.data(strided_slice(r, op, [places.value, *operands[1:4]])))  # type: ignore[arg-type]
    return line.scatter(at.flat().expand(1), new.broadcast(at.shape).flat(), 1).reshape(x.shape).value


# ------------------------------------------------------------------------------------------------------------- gathers


def _gather(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, at = array(r, operands[0]), array(r, operands[1])
    axis = axis_of(r, operands[2], x.rank) if len(operands) > 2 else 0
    batch = op.attributes.get("batch_dims", 0)
    batch = batch % at.rank if batch < 0 else batch
    for a in range(batch):
        r.equal(x.shape[a], at.shape[a], f"batching dimensions {a} of the operands")
    return x.take(at, axis, batch).value


def _gather_elements(r: Reader, op: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray | None:
    if op.attributes.get("batch_dims", 0) or any(not d.is_const for y in rest for d in y.reshape(-1)):
        return None
    axis = rest[1].reshape(-1)[0].value if len(rest) > 1 else 0
    at = np.array([d.value for d in rest[0].reshape(-1)], int).reshape(rest[0].shape)
    return objects(np.take(x, at, axis))


def _gather_nd(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, at = array(r, operands[0]), array(r, operands[1])
    return x.gather(at, r.constants((at.shape[-1],), "the length of an index vector")[0]).value


def _one_hot(r: Reader, op: Node, operands: list[Operand]) -> Result:
    at, (depth,) = array(r, operands[0]), r.tensor_shape(r.elements(operands[1]))
    on, off = array(r, operands[2]), array(r, operands[3])
    axis = op.attributes.get("axis", -1)
    axis = at.rank if axis == -1 else axis
    shape = (*at.shape[:axis], depth, *at.shape[axis:])
    spread = at.broadcast(shape, [a for a in range(at.rank + 1) if a != axis])
    return where(spread == iota(r, shape, axis, at.dtype), on, off).value


def _reverse_flagged(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Reverse the axes that have a flag."""
    axes = [axis for axis, flag in enumerate(ints(r, operands[1], "the axes")) if flag]
    return array(r, operands[0]).reverse(axes).value


def _reverse_sequence(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, lengths = array(r, operands[0]), array(r, operands[1])
    seq, batch = op.attributes["seq_dim"], op.attributes.get("batch_dim", 0)
    place = x.iota(seq, lengths.dtype)
    length = lengths.broadcast(x.shape, (batch,))
    at = where(place < length, length - 1 - place, place)
    return take_along(x, at, seq).value


def take_along(x: Array, at: Array, axis: int) -> Array:
    """Take, at each position of `at`, the element with that index along an axis."""
    parts = [at.iota(a, I64).expand(at.rank) if a != axis else at.cast(I64).expand(at.rank) for a in range(x.rank)]
    return x.gather(joined(parts, at.rank), x.rank)


def _roll(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    axes = ints(r, operands[2], "the axes")
    shifts = _elements(r, operands[1], len(axes))
    for axis, shift in zip(axes, shifts, strict=True):
        axis %= x.rank
        n = x.shape[axis]
        if r.is_opaque(shift):
            size = filled(r, n, I64).maximum(1)
            place = iota(r, (n,), 0, I64) - Array(r, r.data_dims.scalar(shift))
            rest = place.op("remainder", size)
            x = x.take(where(rest < 0, rest + size, rest), axis)
            continue
        cut = n - shift % r.evaluator.scalar.maximum(n, ONE)
        cut = r.evaluator.scalar.maximum(cut, ZERO)
        x = joined([x.slice(axis, cut, n), x.slice(axis, ZERO, cut)], axis)
    return x.value


def _upper_bound(side: str) -> Handler:
    """Count the elements of sorted rows that are below (or at most) each value."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        rows, values = array(r, operands[0]), array(r, operands[1])
        batch, n = rows.shape
        wide = (batch, values.shape[1], n)
        row, value = rows.broadcast(wide, (0, 2)), values.broadcast(wide, (0, 1))
        below = row < value if side == "lower" else row <= value
        return below.cast(result_dtype(op)).sum([2]).value

    return handler


HANDLERS: dict[str, Handler] = {
    "Gather": folding(_gather_elements, _gather),
    "GatherNd": _gather_nd,
    "GatherV2": folding(_gather_elements, _gather),
    "LowerBound": _upper_bound("lower"),
    "OneHot": _one_hot,
    "ResourceGather": _gather,
    "Reverse": _reverse_flagged,
    "ReverseSequence": _reverse_sequence,
    "ReverseV2": lambda r, op, operands: array(r, operands[0]).reverse(ints(r, operands[1], "the axes")).value,
    "Roll": _roll,
    "Slice": folding(_slice_elements, _slice),
    "StridedSlice": folding(_strided_elements, strided_slice),
    "StridedSliceGrad": _strided_grad,
    "TensorStridedSliceUpdate": strided_update,
    "UpperBound": _upper_bound("upper"),
}
