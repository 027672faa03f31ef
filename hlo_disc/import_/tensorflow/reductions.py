"""Reductions, prefix sums, indices of extrema, and the first elements of sorted rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.formulas.arithmetic import running_logsumexp
from hlo_disc.import_.handlers.arrays import Array, array, filled, joined
from hlo_disc.import_.handlers.sort import take_top
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.elements import Element, Elements
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.elementwise import widely
from hlo_disc.import_.tensorflow.folding import Fold, folding
from hlo_disc.import_.tensorflow.gradients import BroadcastAxes, Reduced
from hlo_disc.import_.tensorflow.indexing.indexing import take_along
from hlo_disc.import_.tensorflow.shapes import axis_of, ints, result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _axes(r: Reader, x: Array, axes: Operand) -> list[int]:
    return sorted({a % x.rank for a in ints(r, axes, "the axes")}) if x.rank else []


def _over_axes(formula: Callable[[Array, list[int], bool], Array]) -> Handler:
    """Make a formula of an operand and axes, which may stay, with size 1."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x = array(r, operands[0])
        axes, keep = _axes(r, x, operands[1]), op.attributes.get("keep_dims", False)
        return widely(lambda y: formula(y, axes, keep))(x).value

    return handler


def _reduce(kind: str) -> Handler:
    plain = _over_axes(lambda x, axes, keep: x.reduce(kind, axes, keep))

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        if not isinstance(operands[1], BroadcastAxes):
            return plain(r, op, operands)
        x = array(r, operands[0])
        made = Reduced(x)
        if not op.attributes.get("keep_dims", False):
            return made
        own = r.tensor_shape(operands[1].own)
        return made.shaped(r, own).reshape((*[ONE] * (x.rank - len(own)), *own)).value

    return handler


def _fold(number: Callable[..., Element | None]) -> Fold:
    """Combine all elements of a vector of sizes."""

    def fold(r: Reader, op: Node, x: np.ndarray, axes: np.ndarray) -> np.ndarray | None:
        if any(not d.is_const for d in axes.reshape(-1)) or (x.ndim > 1) or not (x.ndim and axes.size):
            return None
        scalar, elements = r.evaluator.scalar, x.tolist()
        if elements:
            found = functools.reduce(lambda a, b: number(scalar, a, b), elements)
        else:
            found = {"tf.Prod": ONE, "tf.Sum": ZERO, "tf.All": True, "tf.Any": False}.get(op.name)
        made = np.empty((1,) if op.attributes.get("keep_dims", False) else (), object)
        made[...] = found
        return made if found is not None else None

    return fold


def _arg(largest: bool) -> Handler:
    """Return the first index of the largest or smallest element; for no elements the first index."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x = array(r, operands[0])
        axis, dtype = axis_of(r, operands[1], x.rank), result_dtype(op)
        best = x.reduce("max" if largest else "min", [axis], keep=True)
        place = x.iota(axis, dtype)
        n = filled(r, np.iinfo(dtype).max, dtype, x.shape)
        found = where(x == best.broadcast(x.shape), place, n).reduce("min", [axis])
        return where(found == np.iinfo(dtype).max, 0, found).value

    return handler


def _cumulative(kind: str) -> Handler:
    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x = array(r, operands[0])
        axis = axis_of(r, operands[1], x.rank)
        reverse, exclusive = (op.attributes.get(name, False) for name in ("reverse", "exclusive"))
        made = widely(lambda y: y.cumulative(kind, axis, reverse))(x)
        if exclusive:
            made = _shifted(made, axis, reverse, 0 if kind == "add" else 1)
        return made.value

    return handler


def _shifted(x: Array, axis: int, reverse: bool, number: float) -> Array:
    """Shift by one along an axis, with a number in place of the first (or last) element."""
    n = x.shape[axis]
    one, zero = ([Dim.const(k) if a == axis else ZERO for a in range(x.rank)] for k in (1, 0))
    padded = x.pad(zero, one, number) if reverse else x.pad(one, zero, number)
    return padded.slice(axis, ONE, n + 1) if reverse else padded.slice(axis, ZERO, n)


def _log_cumsum(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    axis = axis_of(r, operands[1], x.rank)
    reverse = op.attributes.get("reverse", False)
    made = running_logsumexp(x, axis, reverse)
    return (_shifted(made, axis, reverse, -np.inf) if op.attributes.get("exclusive", False) else made).value


def _top_k(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = r.data(operands[0])
    (k,) = r.tensor_shape(r.elements(operands[1])) if len(operands) > 1 else (Dim.const(op.attributes["k"]),)
    values, places = take_top(r, x, k, True)
    wanted = result_dtype(op, 1)
    return [values, Array(r, places).cast(wanted).value]


def _in_top_k(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Test for the first elements. Rows with a number that is not finite have none; indices outside are none."""
    scores, targets = array(r, operands[0]), array(r, operands[1])
    own = take_along(scores, targets.expand(1), 1)
    better = (scores > own).cast(np.int32).sum([1])
    k = array(r, operands[2]).cast(np.int32) if len(operands) > 2 else better.like(op.attributes["k"])
    known = (targets >= 0) & (targets < scores.shape[1])
    return ((better < k) & known & scores.op("is_finite").reduce("and", [1])).value


def _bincount(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Count each number below a size, or add up weights: for all elements, or for each row of a matrix."""
    x, weights = array(r, operands[0]), array(r, operands[2])
    (size,) = r.tensor_shape(r.elements(operands[1]))
    dtype, rows = result_dtype(op), op.name != "tf.Bincount" and x.rank == 2
    flat = (dim_product(x.shape),)
    weighs = not any(d.is_const and d.value == 0 for d in weights.shape) or 0 in {
        d.value for d in x.shape if d.is_const
    }
    binary = op.attributes.get("binary_output", False)
    each = weights.reshape(flat) if weighs and not binary else filled(r, 1, dtype, flat)
    at = x.cast(I64).reshape(flat).expand(1)
    if rows:
        at = joined([x.iota(0, I64).reshape(flat).expand(1), at], 1)
    shape = (x.shape[0], size) if rows else (size,)
    made = filled(r, 0, dtype, shape).scatter(at, each, len(shape), "max" if binary else "add")
    return made.value


def _buckets(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Count the boundaries that are not above each number."""
    x = array(r, operands[0])
    x = x.cast(np.float32) if x.dtype.kind in "iu" else x
    boundaries = np.asarray(op.attributes["boundaries"], np.float32).astype(x.dtype)
    line = Array(r, r.constant(boundaries))
    wide = (*x.shape, line.shape[0])
    below = x.broadcast(wide, range(x.rank)) < line.broadcast(wide, (x.rank,))
    return (~below).cast(np.int32).sum([x.rank]).value


def _approximate_top(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return exact results, as XLA does on a CPU."""
    if not op.attributes.get("aggregate_to_topk", True):
        r.unsupported("only aggregate_to_topk=True")
    x = array(r, operands[0])
    axis = op.attributes.get("reduction_dimension", -1) % x.rank
    perm = [*(a for a in range(x.rank) if a != axis), axis]
    back = [perm.index(a) for a in range(x.rank)]
    made = take_top(r, x.transpose(perm).value, Dim.const(op.attributes["k"]), op.attributes.get("is_max_k", True))
    return [Array(r, y).transpose(back).value for y in made]


HANDLERS: dict[str, Handler] = {
    "ApproxTopK": _approximate_top,
    "Bincount": _bincount,
    "Bucketize": _buckets,
    "All": folding(_fold(lambda s, a, b: s.all((a, b))), _reduce("and")),
    "Any": folding(_fold(lambda s, a, b: s.any((a, b))), _reduce("or")),
    "ArgMax": _arg(True),
    "ArgMin": _arg(False),
    "Cumprod": _cumulative("mul"),
    "Cumsum": _cumulative("add"),
    "CumulativeLogsumexp": _log_cumsum,
    "DenseBincount": _bincount,
    "EuclideanNorm": _over_axes(lambda x, axes, keep: (x * x.conj()).sum(axes, keep).sqrt()),
    "InTopKV2": _in_top_k,
    "Max": folding(_fold(Elements.maximum), _reduce("max")),
    "Mean": _over_axes(Array.mean),
    "Min": folding(_fold(Elements.minimum), _reduce("min")),
    "Prod": folding(_fold(lambda s, a, b: a * b), _reduce("mul")),
    "Sum": folding(_fold(lambda s, a, b: a + b), _reduce("add")),
    "TopKV2": _top_k,
}
