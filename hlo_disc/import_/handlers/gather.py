"""Gathers, scatters, and slices whose start is data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.families.indexing import OF_SCATTER
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.handlers.reductions.reduce import scalar_body
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.handlers.views import make_reshape, make_slice
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.stablehlo.decode import integer, ints
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.construction import Construction
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


OF_GATHER = {name: name for name in OF_SCATTER}
_IN_PYTHON = {**OF_SCATTER, "start_index_map": "scattered_dims_to_operand_dims"}


class _Written(Protocol):
    """The dimension numbers in StableHLO's or XLA's form."""

    index_vector_dim: int


def numbers_of(written: _Written, names: Mapping[str, str]) -> Attributes:
    """Decode dimension numbers. names: what the lists of axes are called there, by their names in a gather."""
    axes = {own: tuple(getattr(written, name)) for own, name in names.items()}
    return cast("Attributes", {**axes, "index_vector_dim": written.index_vector_dim})


def _gather_numbers(attribute: ir.Attribute) -> Attributes:
    return numbers_of(stablehlo.GatherDimensionNumbers(attribute), OF_GATHER)


def _scatter_numbers(attribute: ir.Attribute) -> Attributes:
    return numbers_of(stablehlo.ScatterDimensionNumbers(attribute), _IN_PYTHON)


def _real_dynamic_slice(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
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
        return make_dynamic_slice(r, x, starts, sizes)  # type: ignore[arg-type]
    if any(r.is_opaque(d) for d in limit):
        sizes = r.tensor_shape(tuple(r.facts.canonical(high - low) for low, high in zip(start, limit, strict=True)))
        limit = tuple(low + size for low, size in zip(start, sizes, strict=True))
    return make_slice(r, x, start, limit, stride)


def _dynamic_slice(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, sizes = r.data(operands[0]), r.attr(op, "slice_sizes", ints)
    return make_dynamic_slice(r, x, operands[1:], r.policy.window(r, op, x, sizes))


def make_dynamic_slice(r: Reader, x: Value, starts: Sequence[Operand], sizes: Shape) -> Value:
    _fits(r, sizes, x.shape)
    corner = _known_corner(r, starts, x.shape, sizes)
    if corner is not None:
        limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
        return make_slice(r, x, corner, limit, (1,) * x.rank)
    # The whole of an axis starts at 0, wherever it is said to: programs that differ in nothing else are the same.
    zero = r.constant(np.asarray(0, np.int32))
    whole = [size is limit for size, limit in zip(sizes, x.shape, strict=True)]
    corners = [zero if all_of_it else r.data(start) for all_of_it, start in zip(whole, starts, strict=True)]
    return r.emit("dynamic_slice", (x, *corners), sizes=sizes)


def _fits(r: Reader, sizes: Shape, limits: Shape) -> None:
    for axis, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
        r.at_most(size, limit, f"the size {{0}} to take in dimension {axis} is larger than the operand's {{1}}")


def _known_corner(r: Reader, starts: Sequence[Operand], limits: Shape, sizes: Shape) -> Shape | None:
    """Return a start that is known not to be clamped, so that a plain slice will do; else None."""
    corner = []
    for start, limit, size in zip(starts, limits, sizes, strict=True):
        if size is limit:
            corner.append(ZERO)
            continue
        if type(start) is not Symbolic or not start.exact:
            return None
        low = r.evaluator.scalar.number(start.elements[0])
        if any(d is not low for d, _ in start.wraps):  # itself it has not wrapped where it lies in an array
            return None
        if r.facts.at_most(ZERO, low) is not Truth.YES or r.facts.at_most(low + size, limit) is not Truth.YES:
            return None
        corner.append(low)
    return tuple(corner)


def _dynamic_update_slice(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, update = r.data(operands[0]), r.data(operands[1])
    r.policy.update(r, op, x, update)
    return make_update(r, x, update, [r.data(start) for start in operands[2:]])


def make_update(r: Reader, x: Value, update: Value, starts: Sequence[Value]) -> Value:
    """Write a window at a position of an operand."""
    for axis, (size, limit) in enumerate(zip(update.shape, x.shape, strict=True)):
        r.at_most(size, limit, f"the update's size {{0}} in dimension {axis} is larger than the operand's {{1}}")
    return r.emit("dynamic_update_slice", (x, update, *starts))


def _gather(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    sizes = r.policy.window(r, op, x, r.attr(op, "slice_sizes", ints))
    return make_gather(r, x, operands[1], r.attr(op, "dimension_numbers", _gather_numbers), sizes)


def _dynamic_gather(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    numbers = r.attr(op, "dimension_numbers", _gather_numbers)
    return make_gather(r, r.data(operands[0]), operands[1], numbers, r.sizes(operands[2]))


def make_gather(r: Reader, x: Value, indices: Operand, numbers: Attributes, sizes: Shape) -> Value:
    """Gather windows of an operand. numbers: the axes, by the names of DHLO's attributes."""
    # Nothing is taken where there is no index: a gather of no elements from an empty dimension is fine.
    index_shape = tuple(map(Dim.of, indices.sizes)) if isinstance(indices, Symbolic) else r.data(indices).shape
    some = Dim.min(1, dim_product(n for a, n in enumerate(index_shape) if a != numbers["index_vector_dim"]))
    _fits(r, tuple(some * n for n in sizes), x.shape)
    if type(indices) is Symbolic and len(indices.sizes) == 1 and numbers["index_vector_dim"] == 0:
        # One window at a known place is a slice.
        corner = _known_corner(r, window_start(indices, numbers["start_index_map"], x.rank), x.shape, sizes)
        if corner is not None:
            limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
            window = make_slice(r, x, corner, limit, (1,) * x.rank)
            kept = tuple(d for axis, d in enumerate(sizes) if axis not in numbers["collapsed_slice_dims"])
            return make_reshape(r, window, kept)
    at = r.data(indices)
    _index_fits(r, numbers, at.shape)
    pairs = zip(numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True)
    for axis, index_axis in pairs:
        r.equal(x.shape[axis], at.shape[index_axis], f"batching dimensions {axis} and {index_axis}")
    return r.emit("gather", (x, at), **numbers | {"slice_sizes": sizes})


def _index_fits(r: Reader, numbers: Attributes, indices: Shape) -> None:
    """Require that an index vector has one entry for each axis that it indexes."""
    vector, count = numbers["index_vector_dim"], len(numbers["start_index_map"])
    length = indices[vector] if vector < len(indices) else ONE
    r.equal(length, Dim.const(count), "the length of an index vector and the number of axes that it is for")


def window_start(indices: Symbolic, axes: Sequence[int], rank: int) -> list[Operand]:
    """Return where a window begins whose position is known on some axes; on the others it is 0."""
    zero = Symbolic(indices.dtype, (), (ZERO,))
    starts: list[Operand] = [zero] * rank
    for axis, element in zip(axes, indices.elements, strict=True):
        start = starts[axis] = Symbolic(indices.dtype, (), (element,), indices.exact)
        start.wraps = indices.wraps
    return starts


def _scatter(r: Reader, op: ir.OpView, operands: list[Operand]) -> Sequence[Value]:
    numbers, count = r.attr(op, "scatter_dimension_numbers", _scatter_numbers), len(operands) // 2
    # The body may compute in a wider type than the operand has: that is the result's.
    dtypes = [r.decoder.tensor(result.type)[0] for result in op.results]
    at = r.data(operands[count])
    xs = [_converted(r, x, t) for x, t in zip(operands[:count], dtypes, strict=True)]
    updates = [_converted(r, x, t) for x, t in zip(operands[count + 1 :], dtypes, strict=True)]
    body = scalar_body(r, op.regions[0], [*dtypes, *dtypes])
    unique = "unique_indices" in op.attributes and r.attr(op, "unique_indices", bool)
    return make_scatter(r, xs, at, updates, numbers, body, unique)


def make_scatter(
    r: Reader,
    xs: Sequence[Value],
    at: Value,
    updates: Sequence[Value],
    numbers: Attributes,
    combining: tuple[Region, tuple[Value, ...]],
    unique: bool = False,
) -> Sequence[Value]:
    """Scatter windows into operands. combining: the region, and its captured values. unique: no index occurs twice."""
    for values in (xs, updates):
        r.same_shape(values)
    _scatter_fits(r, numbers, xs[0].shape, at.shape, updates[0].shape)
    body, captured = combining
    attrs = numbers | {"unique": unique, "count": len(xs), "body": body}
    return r.emit_all("scatter", (*xs, at, *updates, *captured), **attrs)


def _converted(r: Reader, x: Operand, dtype: np.dtype) -> Value:
    value = r.data(x)
    return value if value.dtype == dtype else r.emit("convert", (value,), dtype=dtype)


def _scatter_fits(r: Reader, numbers: Attributes, shape: Shape, indices: Shape, updates: Shape) -> None:
    _index_fits(r, numbers, indices)
    vector, dropped = numbers["index_vector_dim"], numbers["collapsed_slice_dims"] + numbers["operand_batching_dims"]
    batch = [n for axis, n in enumerate(indices) if axis != vector]
    outer = [n for axis, n in enumerate(updates) if axis not in numbers["offset_dims"]]
    for axis, (a, b) in enumerate(zip(outer, batch, strict=True)):
        r.equal(a, b, f"batch dimension {axis} of updates and indices")
    for axis, index_axis in zip(numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True):
        r.equal(shape[axis], indices[index_axis], f"batching dimensions {axis} and {index_axis}")
    # Nothing is written where there is no index, so that a window for an empty dimension is fine.
    some = Dim.min(1, dim_product(batch))
    kept = [n for axis, n in enumerate(shape) if axis not in dropped]
    _fits(r, tuple(some * updates[a] for a in numbers["offset_dims"]), tuple(kept))


def _torch_index_select(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Take whole slices of one dimension; the first `batch_dims` dimensions are paired with those of the index."""
    x, at = map(r.data, operands)
    dim, batch = r.attr(op, "dim", integer), r.attr(op, "batch_dims", integer)
    if not 0 <= batch <= dim < x.rank or batch > at.rank:
        r.unsupported(f"batch_dims = {batch} <= dim = {dim} do not fit operands of rank {x.rank} and {at.rank}")
    for axis in range(batch):
        r.equal(x.shape[axis], at.shape[axis], f"batching dimensions {axis} of the operands")
    result = make_take(r, x, at, dim, batch)
    r.need_types(op, [result])
    return result


def make_take(r: Construction, x: Value, at: Value, axis: int, batch: int = 0) -> Value:
    """Take whole slices of one axis, by their numbers; the first `batch` axes are paired with those of `at`."""
    after = range(axis + at.rank - batch, x.rank + at.rank - batch - 1)
    return r.emit(
        "gather",
        (x, at),
        offset_dims=(*range(batch, axis), *after),
        collapsed_slice_dims=(axis,),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
        start_index_map=(axis,),
        index_vector_dim=at.rank,
        slice_sizes=tuple(ONE if a < batch or a == axis else n for a, n in enumerate(x.shape)),
    )


HANDLERS: dict[str, Handler] = {
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.scatter": _scatter,
}
