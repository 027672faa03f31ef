"""Constants, shapes, and ops that only move elements: each of these ops also works on sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.handlers.arrays import Array, array, dot, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import LIMIT, Operand, Symbolic
from hlo_disc.import_.tensorflow.folding import elements_of, folding, sizes_operand, symbolic, taken
from hlo_disc.import_.tensorflow.gradients import BroadcastAxes, Reduced

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

T = TypeVar("T")


def shape_of(x: Operand) -> Shape:
    """Return the shape of any operand."""
    if isinstance(x, Symbolic):
        return tuple(map(Dim.const, x.sizes))
    return x.shape  # type: ignore[union-attr]


def ints(r: Reader, x: Operand, what: str) -> list[int]:
    """Return an operand that must be known when compiling."""
    if not isinstance(x, Symbolic) or not x.exact:
        r.unsupported(f"{what} must be constant")
    return list(r.constants(tuple(map(r.evaluator.scalar.number, x.elements)), what))


def axis_of(r: Reader, x: Operand, rank: int) -> int:
    (axis,) = ints(r, x, "the axis")
    if not -rank <= axis < max(rank, 1):
        r.unsupported(f"the axis {axis} is none of rank {rank}")
    return axis % max(rank, 1)


def result_dtype(op: Node, number: int = 0) -> np.dtype:
    return cast(np.dtype, op.results[number].type.dtype)


def _const(r: Reader, op: Node, operands: list[Operand]) -> Result:
    value = op.attributes["value"]
    if op.results[0].type.dtype is None:
        r.unsupported(f"a constant of type {op.results[0].type}")
    if value.dtype.kind in "iub" and value.size <= LIMIT:
        elements = np.empty(value.shape, object)
        flat = elements.reshape(-1)
        flat[:] = [x if isinstance(x, bool) else Dim.const(x) for x in value.reshape(-1).tolist()]
        return Symbolic(value.dtype, value.shape, tuple(flat.tolist()))
    if value.ndim and value.size > 1 and (value == value.reshape(-1)[0]).all():
        return filled(r, value.reshape(-1)[0], value.dtype, tuple(map(Dim.const, value.shape))).value
    return r.constant(np.array(value, order="C"))


def _shape(r: Reader, op: Node, operands: list[Operand]) -> Result:
    return [sizes_operand(r, shape_of(x), result_dtype(op)) for x in operands]


def target_shape(r: Reader, x: Operand, sizes: Sequence[Dim], have: Shape) -> Shape:
    """Return the sizes that `Reshape` is given, with -1 computed."""
    open_axes = [i for i, d in enumerate(sizes) if d.is_const and d.value == -1]
    if len(open_axes) > 1:
        r.unsupported("two sizes of -1")
    if not open_axes:
        return tuple(sizes)
    axis = open_axes[0]
    total, rest = list(have), [d for i, d in enumerate(sizes) if i != axis]
    for d in list(rest):  # what both have as they stand, so that 0 elements are no riddle
        if not d.is_const and d in total:
            total.remove(d)
            rest.remove(d)
    count, divisor = dim_product(total), dim_product(rest)
    if divisor.is_const and divisor.value == 0:
        size = ZERO
    else:
        size = count // (divisor if divisor.is_const else r.evaluator.scalar.maximum(divisor, ONE))
    return tuple(r.facts.canonical(size) if i == axis else d for i, d in enumerate(sizes))


def _reshape(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[0]
    sizes = r.tensor_shape(r.elements(operands[1]))
    if isinstance(x, Reduced):
        return x.shaped(r, sizes).value
    shape = target_shape(r, x, sizes, shape_of(x))
    if isinstance(x, Symbolic) and x.exact and all(d.is_const for d in shape):
        made = Symbolic(x.dtype, tuple(d.value for d in shape), x.elements)
        return taken(x, made, op, lambda: array(r, x).reshape(shape).value)
    return array(r, x).reshape(shape).value


def _expand(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return x.expand(axis_of(r, operands[1], x.rank + 1)).value


def _expand_sizes(r: Reader, op: Node, x: np.ndarray, axis: np.ndarray) -> np.ndarray | None:
    at = axis.reshape(-1)[0]
    return np.expand_dims(x, at.value) if at.is_const else None


def _squeezed(shape: Sequence[T], op: Node, one: Callable[[T], bool]) -> list[int]:
    rank = len(shape)
    return [a % rank for a in _said(op)] or [a for a in range(rank) if one(shape[a])]


def _said(op: Node) -> Sequence[int]:
    """Return the axes that a Squeeze names; without any it drops all axes of size 1."""
    return op.attributes.get("squeeze_dims") or op.attributes.get("axis") or ()


def _squeeze(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    axes = _squeezed(x.shape, op, lambda d: r.facts.equal(d, ONE) is Truth.YES)
    for a in range(0 if _said(op) else x.rank):
        if a not in axes:
            r.assume(x.shape[a], "!=", ONE, f"the rank, without axis {a} or with it,")
    for a in axes:
        r.equal(x.shape[a], ONE, f"dimension {a}, which is dropped, and 1")
    return x.reshape([d for a, d in enumerate(x.shape) if a not in axes]).value


def _squeeze_sizes(r: Reader, op: Node, x: np.ndarray) -> np.ndarray:
    axes = _squeezed(x.shape, op, lambda d: d == 1)
    return np.squeeze(x, tuple(axes))


def _fill(r: Reader, op: Node, operands: list[Operand]) -> Result:
    shape, x = r.sizes(operands[0]), operands[1]
    known = isinstance(x, Symbolic) and x.is_known and all(d.is_const for d in shape)
    if known and dim_product(shape).value <= LIMIT:
        sizes = tuple(d.value for d in shape)
        return Symbolic(x.dtype, sizes, x.elements * int(np.prod(sizes, dtype=int)))  # type: ignore[union-attr]
    return array(r, x).broadcast(shape).value


def _range(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    known = all(isinstance(x, Symbolic) for x in operands)
    if dtype.kind in "iu" and known:
        start, limit, step = (r.dims(x)[0] for x in operands)
        times = _times(limit - start, step)
        if times is not None:  # as many as the step goes into the span
            line = iota(r, (times,), 0, dtype)
            return (line * step + start).value
        if step.is_const and step.value:
            up = step.value > 0
            span = limit - start if up else start - limit
            size = r.evaluator.scalar.maximum((span + abs(step.value) - 1) // abs(step.value), ZERO)
            exact = start.is_const and size.is_const and size.value <= LIMIT
            if exact:
                return sizes_operand(r, [start + step * i for i in range(size.value)], dtype)
            line = iota(r, (size,), 0, dtype)
            return (line * step.value + start).value
    first, last, delta = (array(r, x) for x in operands)
    count = ((last - first).cast(np.float64) / delta.cast(np.float64)).op("ceil").maximum(0).cast(np.int64)
    size = r.sizes(count.reshape((ONE,)).value)[0]
    return (iota(r, (size,), 0, np.int64).cast(dtype) * delta + first).value


def _times(span: Dim, step: Dim) -> Dim | None:
    """Return how often a size goes into a multiple of it."""
    if step.is_const or len(step.symbols) != 1 or step is not Dim.symbol(name := next(iter(step.symbols))):
        return None
    times = span.substitute({name: ONE})
    return times if times * step is span else None


def _list_diff(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the numbers of one list that the other does not have, and their positions."""
    here, there = (ints(r, x, "the numbers") for x in operands)
    kept = [(Dim.const(x), Dim.const(i)) for i, x in enumerate(here) if x not in there]
    columns = ([pair[k] for pair in kept] for k in range(2))
    return [sizes_operand(r, column, result_dtype(op, k)) for k, column in enumerate(columns)]


def _lin_space(r: Reader, op: Node, operands: list[Operand]) -> Result:
    start, stop = array(r, operands[0]), array(r, operands[1])
    (size,) = r.sizes(array_1d(r, operands[2]))
    line = iota(r, (size,), 0, np.int64)
    steps = filled(r, r.evaluator.scalar.maximum(size - 1, ONE), np.int64)
    step = (stop - start) / steps.cast(start.dtype)
    made = line.cast(start.dtype) * step + start
    last = (line == size - 1) & (line > 0)
    return where(last, stop, made).value


def array_1d(r: Reader, x: Operand) -> Operand:
    """Return a scalar as a vector of one element."""
    if isinstance(x, Symbolic):
        made = Symbolic(x.dtype, (1,), x.elements, x.exact)
        if not x.exact:
            made.value = array(r, x).reshape((ONE,)).value
        return taken(x, made, r.op, lambda: array(r, x).reshape((ONE,)).value)
    return array(r, x).reshape((ONE,)).value


def _broadcast_to(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, shape = array(r, operands[0]), r.sizes(operands[1])
    return x.broadcast(shape).value


def _pack(r: Reader, op: Node, operands: list[Operand]) -> Result:
    xs = [array(r, x) for x in operands]
    axis = op.attributes.get("axis", 0) % (xs[0].rank + 1)
    return joined([x.expand(axis) for x in xs], axis).value


def _unpack(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, count = operands[0], len(op.results)
    axis = op.attributes.get("axis", 0) % len(shape_of(x))
    r.equal(shape_of(x)[axis], Dim.const(count), f"dimension {axis}, which is taken apart, and the number of parts")
    kept = [d for a, d in enumerate(shape_of(x)) if a != axis]

    def part(i: int) -> Value:
        return array(r, x).slice(axis, i, i + 1).reshape(kept).value

    if isinstance(x, Symbolic) and x.exact:
        parts = [symbolic(r, np.asarray(p, object), x.dtype) for p in np.moveaxis(elements_of(x), axis, 0)]
        return [taken(x, p, op, partial(part, i)) for i, p in enumerate(parts)]  # type: ignore[arg-type]
    return list(map(part, range(count)))


def _concat(r: Reader, op: Node, operands: list[Operand]) -> Result:
    *parts, axis = operands if op.name == "tf.ConcatV2" else [*operands[1:], operands[0]]
    xs = [array(r, x) for x in parts]
    return joined(xs, axis_of(r, axis, xs[0].rank)).value


def _concat_sizes(r: Reader, op: Node, *xs: np.ndarray) -> np.ndarray | None:
    *parts, axis = xs if op.name == "tf.ConcatV2" else [*xs[1:], xs[0]]
    at = axis.reshape(-1)[0]
    return np.concatenate(parts, at.value) if at.is_const else None


def _concat_offset(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return where each part begins in the concatenation."""
    shapes = [r.elements(x) for x in operands[1:]]
    axis, at, made = axis_of(r, operands[0], len(shapes[0])), ZERO, []
    for shape in shapes:
        made.append(sizes_operand(r, [at if a == axis else ZERO for a in range(len(shape))], result_dtype(op)))
        at = at + shape[axis]
    return made


def _split(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[1]
    axis = axis_of(r, operands[0], len(shape_of(x)))
    count, size = len(op.results), shape_of(x)[axis]
    r.require(size % count, "==", ZERO, f"dimension {axis} of {{0}} cannot be split into {count}", (size,))
    part = size // count
    return _parts(r, x, axis, [part] * count)


def _split_v(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[0]
    axis = axis_of(r, operands[2], len(shape_of(x)))
    size = shape_of(x)[axis]
    sizes = r.tensor_shape(r.elements(operands[1]))
    rest = [d for d in sizes if not (d.is_const and d.value == -1)]
    sizes = tuple(size - sum(rest, ZERO) if d.is_const and d.value == -1 else d for d in sizes)
    r.equal(sum(sizes, ZERO), size, f"the sizes of the parts together and dimension {axis}")
    return _parts(r, x, axis, sizes)


def _parts(r: Reader, x: Operand, axis: int, sizes: Sequence[Dim]) -> list[Operand]:
    if isinstance(x, Symbolic) and x.is_known:
        ends = np.cumsum([d.value for d in sizes])[:-1]
        return [symbolic(r, part, x.dtype) for part in np.split(elements_of(x), ends, axis)]  # type: ignore[misc]
    whole, at, made = array(r, x), ZERO, []
    for size in sizes:
        made.append(whole.slice(axis, at, at + size).value)
        at = at + size
    return made  # type: ignore[return-value]


def _tile(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, times = array(r, operands[0]), r.sizes(operands[1])
    spread: list[Dim] = []
    for n, t in zip(x.shape, times, strict=True):
        spread += [t, n]
    wide = x.broadcast(spread, range(1, 2 * x.rank, 2))
    return wide.reshape([n * t for n, t in zip(x.shape, times, strict=True)]).value


def _pad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, pairs = array(r, operands[0]), r.dims(operands[1])
    number = array(r, operands[2]) if len(operands) > 2 else 0
    return x.pad(pairs[::2], pairs[1::2], number).value


def _pad_sizes(r: Reader, op: Node, x: np.ndarray, pairs: np.ndarray, *number: np.ndarray) -> np.ndarray | None:
    if any(not d.is_const for d in pairs.reshape(-1)) or result_dtype(op).kind == "b":
        return None
    widths = [(low.value, high.value) for low, high in pairs]
    made = np.full([low + n + high for (low, high), n in zip(widths, x.shape, strict=True)], ZERO, object)
    if number:
        made.fill(number[0].item())
    made[tuple(slice(low, low + n) for (low, _), n in zip(widths, x.shape, strict=True))] = x
    return made


def _mirror_pad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Pad by reflection: an element outside is the one at its mirror image."""
    x, pairs = array(r, operands[0]), r.dims(operands[1])
    symmetric = op.attributes["mode"] == "SYMMETRIC"
    for axis, (low, high) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        if low is ZERO and high is ZERO:
            continue
        n = x.shape[axis]
        for d in (low, high):
            r.at_most(d, n if symmetric else n - 1, f"the padding {{0}} of dimension {axis} is more than {{1}}")
        x = x.take(_mirrored(r, low, n, high, symmetric), axis)
    return x.value


def _mirrored(r: Reader, low: Dim, n: Dim, high: Dim, symmetric: bool) -> Array:
    """Return for each element of the padded axis which of n elements it is."""
    place = iota(r, (low + n + high,), 0, np.int64) - low
    size = filled(r, n, np.int64)
    before = -place - 1 if symmetric else -place
    after = size * 2 - 1 - place if symmetric else size * 2 - 2 - place
    return where(place < 0, before, where(place < size, place, after))


def _mirror_pad_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute the gradient of reflection: every element gets the sum of its images, by a product with a 0-1 matrix."""
    x, pairs = array(r, operands[0]), r.dims(operands[1])
    for axis, (low, high) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        if low is ZERO and high is ZERO:
            continue
        m = x.shape[axis]
        n = m - low - high
        own = _mirrored(r, low, n, high, op.attributes["mode"] == "SYMMETRIC").broadcast((m, n), (0,))
        weights = (iota(r, (m, n), 1, np.int64) == own).cast(x.dtype)
        perm = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
        x = dot(x, weights, [axis], [0]).transpose(perm)
    return x.value


def _transpose(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    made = x.transpose([a % max(x.rank, 1) for a in ints(r, operands[1], "the permutation")])
    return (made.conj() if op.name == "tf.ConjugateTranspose" else made).value


def _transpose_sizes(r: Reader, op: Node, x: np.ndarray, perm: np.ndarray) -> np.ndarray | None:
    return x.transpose([d.value for d in perm]) if all(d.is_const for d in perm) else None


def _invert_permutation(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    if isinstance(operands[0], Symbolic) and operands[0].exact:
        perm = ints(r, operands[0], "the permutation")
        return sizes_operand(r, [Dim.const(perm.index(i)) for i in range(len(perm))], x.dtype)
    order = make_region(r.facts, [(x.dtype, ())] * 4, lambda b, v: [b.op("compare", v[:2], direction="LT")])
    return r.emit_all("sort", (x.value, x.iota(0, x.dtype).value), dim=0, stable=False, count=2, body=order)[1]


def _broadcast_axes(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = map(r.elements, operands)
    return [BroadcastAxes(a, b), BroadcastAxes(b, a)]


def _diag(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    both = (*x.shape, *x.shape)
    inside = filled(r, True, np.bool_, both)
    for axis in range(x.rank):
        inside = inside & (iota(r, both, axis) == iota(r, both, x.rank + axis))
    return where(inside, x.broadcast(both, range(x.rank)), 0).value


def _ensure(r: Reader, op: Node, operands: list[Operand]) -> Result:
    for axis, (d, size) in enumerate(zip(shape_of(operands[0]), op.attributes["shape"] or (), strict=False)):
        if size is not None:
            r.equal(d, Dim.const(size), f"dimension {axis} and what it is said to be")
    return operands[0]


HANDLERS: dict[str, Handler] = {
    "BroadcastArgs": lambda r, op, xs: sizes_operand(r, r.common([*map(r.elements, xs)]), result_dtype(op)),
    "BroadcastGradientArgs": _broadcast_axes,
    "BroadcastTo": _broadcast_to,
    "Concat": folding(_concat_sizes, _concat),
    "ConcatOffset": _concat_offset,
    "ConcatV2": folding(_concat_sizes, _concat),
    "ConjugateTranspose": _transpose,
    "Const": _const,
    "Diag": _diag,
    "Empty": lambda r, op, operands: filled(r, 0, result_dtype(op), r.sizes(operands[0])).value,
    "EnsureShape": _ensure,
    "ExpandDims": folding(_expand_sizes, _expand),
    "Fill": _fill,
    "InvertPermutation": _invert_permutation,
    "LinSpace": _lin_space,
    "ListDiff": _list_diff,
    "MirrorPad": _mirror_pad,
    "MirrorPadGrad": _mirror_pad_grad,
    "Pack": folding(lambda r, op, *xs: np.stack(xs, op.attributes.get("axis", 0)), _pack),
    "Pad": folding(_pad_sizes, _pad),
    "PadV2": folding(_pad_sizes, _pad),
    "PlaceholderWithDefault": lambda r, op, operands: operands[0],
    "Range": _range,
    "Rank": lambda r, op, xs: sizes_operand(r, [Dim.const(len(shape_of(xs[0])))], result_dtype(op), scalar=True),
    "Reshape": _reshape,
    "Shape": _shape,
    "ShapeN": _shape,
    "Size": lambda r, op, xs: sizes_operand(r, [dim_product(shape_of(xs[0]))], result_dtype(op), scalar=True),
    "Split": _split,
    "SplitV": _split_v,
    "Squeeze": folding(_squeeze_sizes, _squeeze),
    "Tile": _tile,
    "Transpose": folding(_transpose_sizes, _transpose),
    "VariableShape": _shape,
    "Unpack": _unpack,
}
