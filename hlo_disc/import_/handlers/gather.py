"""Gathers and slices whose start is data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.facts import Truth
from hlo_disc.dynamic_hlo.graph import Shape, Value
from hlo_disc.import_.decode import ints
from hlo_disc.import_.elements import ZERO
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.handlers.views import make_reshape, make_slice
from hlo_disc.import_.shapes import Operand, Symbolic
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader


def _real_dynamic_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    start, limit, strides = (r.elements(operand) for operand in operands[1:])
    stride = r.constants(strides, "strides")
    if any(r.is_opaque(d) for d in start):
        sizes = r.tensor_shape(tuple(r.facts.canonical(high - low) for low, high in zip(start, limit, strict=True)))
        if any(s != 1 for s in stride):
            r.unsupported("a slice whose start depends on data must have strides of 1")
        # Such a slice need not clamp; but where it must not, it is in range and clamping changes nothing.
        starts = [r.start_index(d, n - size) for d, n, size in zip(start, x.shape, sizes, strict=True)]
        if None in starts:
            corner = r.data(operands[1])
            starts = [r.element(corner, i) if s is None else s for i, s in enumerate(starts)]
        return _make_dynamic_slice(r, x, starts, sizes)  # type: ignore[arg-type]
    if any(r.is_opaque(d) for d in limit):
        sizes = r.tensor_shape(tuple(r.facts.canonical(high - low) for low, high in zip(start, limit, strict=True)))
        limit = tuple(low + size for low, size in zip(start, sizes, strict=True))
    return make_slice(r, x, start, limit, stride)


def _dynamic_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, sizes = r.data(operands[0]), r.attr(op, "slice_sizes", ints)
    return _make_dynamic_slice(r, x, operands[1:], r.policy.window(r, op, x, sizes))


def _make_dynamic_slice(r: Reader, x: Value, starts: Sequence[Operand], sizes: Shape) -> Value:
    _fits(r, sizes, x.shape)
    corner = _known_corner(r, starts, x.shape, sizes)
    if corner is not None:
        limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
        return make_slice(r, x, corner, limit, (1,) * x.rank)
    return r.emit("dynamic_slice", (x, *map(r.data, starts)), sizes=sizes)


def _fits(r: Reader, sizes: Shape, limits: Shape) -> None:
    for axis, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
        r.at_most(size, limit, f"the size {{0}} to take in dimension {axis} is larger than the operand's {{1}}")


def _known_corner(r: Reader, starts: Sequence[Operand], limits: Shape, sizes: Shape) -> Shape | None:
    """The start of a slice that is known not to be clamped, for which a plain slice will do."""
    corner = []
    for start, limit, size in zip(starts, limits, sizes, strict=True):
        if size is limit:
            corner.append(ZERO)
            continue
        if type(start) is not Symbolic or not start.exact:
            return None
        low = r.evaluator.scalar.number(start.elements[0])
        if r.facts.at_most(ZERO, low) is not Truth.YES or r.facts.at_most(low + size, limit) is not Truth.YES:
            return None
        corner.append(low)
    return tuple(corner)


def _dynamic_update_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, update = r.data(operands[0]), r.data(operands[1])
    for axis, (size, limit) in enumerate(zip(update.shape, x.shape, strict=True)):
        r.at_most(size, limit, f"the update's size {{0}} in dimension {axis} is larger than the operand's {{1}}")
    return r.emit("dynamic_update_slice", (x, update, *map(r.data, operands[2:])))


def _gather(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return _make_gather(r, op, x, operands[1], r.policy.window(r, op, x, r.attr(op, "slice_sizes", ints)))


def _dynamic_gather(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_gather(r, op, r.data(operands[0]), operands[1], r.sizes(operands[2]))


def _make_gather(r: Reader, op: Any, x: Value, indices: Operand, sizes: Shape) -> Value:
    numbers = r.attr(op, "dimension_numbers", _gather_numbers)
    # Nothing is taken where there is no index: a gather of no elements from an empty dimension is fine.
    index_shape = tuple(map(Dim.of, indices.sizes)) if isinstance(indices, Symbolic) else indices.shape
    some = Dim.min(1, dim_product(n for a, n in enumerate(index_shape) if a != numbers["index_vector_dim"]))
    _fits(r, tuple(some * n for n in sizes), x.shape)
    if type(indices) is Symbolic and len(indices.sizes) == 1 and numbers["index_vector_dim"] == 0:
        # One window at a known place is a slice.
        corner = _known_corner(r, _window_start(indices, numbers["start_index_map"], x.rank), x.shape, sizes)
        if corner is not None:
            limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
            window = make_slice(r, x, corner, limit, (1,) * x.rank)
            kept = tuple(d for axis, d in enumerate(sizes) if axis not in numbers["collapsed_slice_dims"])
            return make_reshape(r, window, kept)
    at = r.data(indices)
    pairs = zip(numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True)
    for axis, index_axis in pairs:
        r.equal(x.shape[axis], at.shape[index_axis], f"batching dimensions {axis} and {index_axis}")
    return r.emit("gather", (x, at), **numbers, slice_sizes=sizes)


def _window_start(indices: Symbolic, axes: tuple[int, ...], rank: int) -> list[Operand]:
    zero = Symbolic(indices.dtype, (), (ZERO,))
    starts: list[Operand] = [zero] * rank
    for axis, element in zip(axes, indices.elements, strict=True):
        starts[axis] = Symbolic(indices.dtype, (), (element,), indices.exact)
    return starts


def _gather_numbers(attribute: Any) -> dict[str, Any]:
    numbers = stablehlo.GatherDimensionNumbers(attribute)
    lists = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims")
    result: dict[str, Any] = {name: tuple(getattr(numbers, name)) for name in (*lists, "start_index_map")}
    return result | {"index_vector_dim": numbers.index_vector_dim}


HANDLERS: dict[str, Handler] = {
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_gather": _dynamic_gather,
}
