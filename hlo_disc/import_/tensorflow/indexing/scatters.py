"""Scatters, sums of segments, and ops that write rows at indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.folding import folding
from hlo_disc.import_.tensorflow.indexing.uniques import chosen, kept
from hlo_disc.import_.tensorflow.shapes import ints, shape_of

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def scattered(r: Reader, x: Array, at: Array, updates: Array, kind: str) -> Array:
    """Scatter updates at vectors of numbers."""
    depth = r.constants((at.shape[-1],), "the length of an index vector")[0]
    wanted = (*at.shape[:-1], *x.shape[depth:])
    if len(wanted) != updates.rank:
        r.unsupported(f"updates of rank {updates.rank} where it is {len(wanted)}")
    for axis, (d, n) in enumerate(zip(updates.shape, wanted, strict=True)):
        r.equal(d, n, f"dimension {axis} of the updates and of what they go to")
    return x.scatter(at, updates, depth, kind)


def scatter_into(kind: str) -> Handler:
    """Scatter updates into the first operand. kind: as in `combining`."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x, at, updates = (array(r, o) for o in operands)
        return scattered(r, x, at, updates, kind).value

    return handler


def _scatter_nd(r: Reader, op: Node, operands: list[Operand]) -> Result:
    at, updates = array(r, operands[0]), array(r, operands[1])
    x = filled(r, 0, updates.dtype, r.sizes(operands[2]))
    return scattered(r, x, at, updates, "add").value


def _segments(kind: str, mean: bool = False) -> Handler:
    """Combine rows by the number of their segment; a negative number drops the row."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x, ids = array(r, operands[0]), array(r, operands[1])
        if len(operands) > 2:
            (count,) = r.tensor_shape(r.elements(operands[2]))
        else:  # sorted numbers: the last one says how many
            count = _last_segment(r, ids)
        rest = x.shape[ids.rank :]
        flat = x.reshape((dim_product(ids.shape), *rest))
        at = ids.reshape((dim_product(ids.shape), ONE))
        start = filled(r, identity(kind, x.dtype), x.dtype, (count, *rest))
        if kind in ("max", "min"):
            start = filled(r, _finite(kind, x.dtype), x.dtype, (count, *rest))
        made = start.scatter(at, flat, 1, kind)
        if len(operands) > 2 and not mean:
            return made.value
        ones = filled(r, 1, np.int32, (flat.shape[0],))
        rows = filled(r, 0, np.int32, (count,)).scatter(at, ones, 1, "add")
        rows = rows.broadcast((count, *rest), (0,))
        if mean:
            made = made / rows.maximum(1).cast(x.dtype)
        return where(rows == 0, 0, made).value if kind != "mul" else made.value

    return handler


def _finite(kind: str, dtype: np.dtype) -> np.generic | np.ndarray:
    if dtype.kind in "iu":
        return identity(kind, dtype)
    info = ml_dtypes.finfo(dtype)
    end: np.generic = info.min if kind == "max" else info.max
    return end


def _last_segment(r: Reader, ids: Array) -> Dim:
    """Return the number of segments that are numbered from 0."""
    most = ids.cast(I64).reduce("max", [0]).maximum(-1) + 1
    return r.sizes(most.reshape((ONE,)).value)[0]


def _dense(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Write values into a tensor of a default, at one position, a vector of positions, or a vector of index vectors."""
    at, values, default = (array(r, operands[i]) for i in (0, 2, 3))
    shape = r.sizes(operands[1])
    at = at.reshape((dim_product(at.shape[:1]), at.shape[1] if at.rank > 1 else ONE))
    r.equal(at.shape[1], len(shape) * ONE, "the length of an index and the rank")
    return default.broadcast(shape).scatter(at, values.broadcast(at.shape[:1]), len(shape)).value


def _where(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the positions of true elements, whose number is data."""
    x = array(r, operands[0])
    place, size = kept(r, (x if x.dtype == np.bool_ else x != 0).flat())
    axes = [chosen(x.iota(axis, I64).flat(), place, size).expand(1) for axis in range(x.rank)]
    return joined(axes, 1).value if axes else filled(r, 0, I64, (size, ZERO)).value


def _dynamic_stitch(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Write rows at positions from several vectors; if two are equal, the last one wins."""
    half = len(operands) // 2
    if not all(isinstance(x, Symbolic) and x.is_known for x in operands[:half]):
        return _stitched(r, *([array(r, x) for x in part] for part in (operands[:half], operands[half:]))).value
    places = [ints(r, x, "the places") for x in operands[:half]]
    count = max((max(p, default=-1) for p in places), default=-1) + 1
    rows: list[Array | None] = [None] * count
    for numbers, place, x in zip(operands[:half], places, operands[half:], strict=True):
        part = array(r, x)
        part = part.reshape((len(place), *part.shape[len(shape_of(numbers)) :]))
        for i, p in enumerate(place):
            rows[p] = part.slice(0, i, i + 1)
    if None in rows:
        r.unsupported("a place that nothing is for")
    return joined(rows, 0).value  # type: ignore[arg-type]


def _stitched(r: Reader, places: list[Array], parts: list[Array]) -> Array:
    """Write rows at positions from data, which also decide the number of rows; rows without a position are 0."""
    flat = [x.flat() for x in places]
    rest = parts[0].shape[places[0].rank :]
    rows = [x.reshape((at.shape[0], *rest)) for at, x in zip(flat, parts, strict=True)]
    at, x = joined(flat, 0), joined(rows, 0)
    return filled(r, 0, x.dtype, (_last_segment(r, at), *rest)).scatter(at.expand(1), x, 1)


def _stitch_elements(r: Reader, op: Node, *xs: np.ndarray) -> np.ndarray | None:
    half = len(xs) // 2
    if any(not d.is_const for x in xs[:half] for d in x.reshape(-1)) or any(x.ndim > 1 for x in xs):
        return None
    pairs = [
        (d.value, e)
        for at, x in zip(xs[:half], xs[half:], strict=True)
        for d, e in zip(at.reshape(-1), x.reshape(-1), strict=True)
    ]
    if {p for p, _ in pairs} != set(range(len({p for p, _ in pairs}))):
        return None
    made = np.empty(max((p for p, _ in pairs), default=-1) + 1, object)
    for place, element in pairs:
        made[place] = element
    return made


HANDLERS: dict[str, Handler] = {
    "DynamicStitch": folding(_stitch_elements, _dynamic_stitch),
    "ParallelDynamicStitch": folding(_stitch_elements, _dynamic_stitch),
    "ScatterNd": _scatter_nd,
    **{
        form.format(name): _segments(kind)
        for name, kind in (("Max", "max"), ("Min", "min"), ("Prod", "mul"), ("Sum", "add"))
        for form in ("Segment{}", "Segment{}V2", "UnsortedSegment{}")
    },
    "SegmentMean": _segments("add", mean=True),
    "SparseToDense": _dense,
    **{f"TensorScatter{kind.title()}": scatter_into(kind) for kind in ("add", "max", "min", "sub")},
    "TensorScatterUpdate": scatter_into("set"),
    "Where": _where,
}
