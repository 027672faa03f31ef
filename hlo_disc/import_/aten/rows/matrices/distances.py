"""Distances between all rows of two matrices, by their differences; products of three tensors.

Squares of Euclidean distances are never expanded into products. Eager mode expands them for many rows, which loses
digits of small distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import F64, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.handlers.arrays import Array, filled, iota

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _differences(r: AtenReader, a: Array, b: Array) -> Array:
    """Compute the differences (…, rows of a, rows of b, elements)."""
    return a.expand(-2) - b.expand(-3)


def _cdist(r: AtenReader, a: Array, b: Array, p: float, _: int | None = None) -> Array:
    sizes = abs(_differences(r, a, b))
    if p == 0:
        return (sizes != 0.0).cast(a.dtype).sum(-1)
    if p == 1:
        return sizes.sum(-1)
    if p == 2:
        return (sizes * sizes).sum(-1).sqrt()
    if math.isinf(p):
        return sizes.reduce("max", -1).maximum(0.0)
    return sizes.op("power", p).sum(-1).op("power", 1 / p)


def _cdist_backward(r: AtenReader, gradient: Array, a: Array, b: Array, p: float, distances: Array) -> Array:
    """Compute the gradient of `a`. Where a distance is 0, its gradient is 0."""
    differences = _differences(r, a, b)
    g, d = gradient.expand(-1), distances.expand(-1)
    sign = differences.op("sign")
    if p == 0:
        return r.full(0, r.out.dtype, r.out.shape)
    if p == 1:
        made = sign * g
    elif p == 2:
        made = differences * where(d == 0.0, 0.0, g / d)
    elif math.isinf(p):
        largest = abs(differences) == d
        made = where(largest, sign * g, 0.0)
    else:
        power = (abs(differences) / d).op("power", p - 1)
        made = sign * power * g
        none = d == 0.0
        if p < 1:
            none = none | (differences == 0.0)
        made = where(none, 0.0, made)
    made = made.sum(-2)
    shape = r.out.shape
    extra = tuple(range(made.rank - len(shape)))
    return made.sum(extra) if extra else made


# Distances of the rows of one matrix: those of (i, j) with i < j, row by row


def _pdist(r: AtenReader, x: Array, p: float = 2.0) -> Array:
    """Compute the distances between the rows of x, pair by pair.

    The row of element k is the solution of a quadratic equation, which f64 solves exactly for all that fits memory.
    """
    n, count = x.shape[0], r.out.shape
    k = iota(r, count, 0, I64)
    root = (filled(r, 4 * n * (n - 1) - 7, I64) - k * 8).cast(F64).sqrt()
    steps = (root * 0.5 - 0.5).op("floor").cast(I64)
    row = filled(r, n - 2, I64) - steps
    column = k - _first(r, row, n) + (row + 1)
    flat = _cdist(r, x, x, p).reshape((n * n,))
    return flat.take(row * n + column, 0)


def _first(r: AtenReader, row: Array, n: Dim) -> Array:
    """Return the number of the first pair of a row: row * (2 n - row - 1) / 2."""
    return row * (2 * n - 1 - row) / 2


def _pdist_backward(r: AtenReader, gradient: Array, x: Array, p: float, distances: Array) -> Array:
    n = x.shape[0]
    rows, columns = (iota(r, (n, n), axis, I64) for axis in (0, 1))
    low, high = rows.minimum(columns), rows.maximum(columns)
    at = _first(r, low, n) + high - (low + 1)
    same = rows == columns

    def matrix(pairs: Array) -> Array:
        padded = pairs.pad((0,), (1,), 0.0)  # of a single row there is no pair
        return where(same, 0.0, padded.take(at, 0))

    return _cdist_backward(r, matrix(gradient), x, x, p, matrix(distances))


def _trilinear(
    r: AtenReader,
    a: Array,
    b: Array,
    c: Array,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    _: int = 1,
) -> Array:
    """Sum a * b * c over some axes, each operand with new axes among its own."""
    dtype = computed(r.out.dtype)
    wide = []
    for x, axes in ((a, expand_a), (b, expand_b), (c, expand_c)):
        made = x.cast(dtype)
        for axis in sorted(axes):
            made = made.expand(axis)
        wide.append(made)
    product = wide[0] * wide[1] * wide[2]
    return (product.sum(tuple(summed)) if summed else product).cast(r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._cdist_forward.default": _cdist,
    "aten._cdist_backward.default": _cdist_backward,
    "aten._pdist_forward.default": _pdist,
    "aten._pdist_backward.default": _pdist_backward,
    "aten._trilinear.default": _trilinear,
}
