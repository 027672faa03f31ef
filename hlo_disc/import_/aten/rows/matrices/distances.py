"""Distances between all rows of two matrices, by their differences; products of three tensors; sums of products.

The square of a Euclidean distance is never taken apart into products, which eager mode does of many rows and which
loses the digits of small distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.tensors import F64, I64, Operand
from hlo_disc.import_.handlers.gather import make_take

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _differences(r: AtenReader, a: Value, b: Value) -> Value:
    """(…, rows of a, rows of b, elements)."""
    return r.op("subtract", r.unsqueeze(a, -2), r.unsqueeze(b, -3))


def _cdist(r: AtenReader, a: Value, b: Value, p: float, _: int | None = None) -> Value:
    sizes = r.emit("abs", (_differences(r, a, b),))
    if p == 0:
        return r.reduce(r.convert(r.compare(sizes, "NE", 0.0), a.dtype), -1, "add")
    if p == 1:
        return r.reduce(sizes, -1, "add")
    if p == 2:
        return r.emit("sqrt", (r.reduce(r.op("multiply", sizes, sizes), -1, "add"),))
    if math.isinf(p):
        return r.op("maximum", r.reduce(sizes, -1, "max"), 0.0)
    return r.op("power", r.reduce(r.op("power", sizes, p), -1, "add"), 1 / p)


def _cdist_backward(r: AtenReader, gradient: Value, a: Value, b: Value, p: float, distances: Value) -> Value:
    """Compute the gradient of `a`. Where a distance is 0, its gradient is 0."""
    differences = _differences(r, a, b)
    g, d = r.unsqueeze(gradient, -1), r.unsqueeze(distances, -1)
    sign = r.emit("sign", (differences,))
    if p == 0:
        return r.full(0, r.out.dtype, r.out.shape)
    if p == 1:
        made = r.op("multiply", sign, g)
    elif p == 2:
        made = r.op("multiply", differences, r.select(r.compare(d, "EQ", 0.0), 0.0, r.op("divide", g, d)))
    elif math.isinf(p):
        largest = r.compare(r.emit("abs", (differences,)), "EQ", d)
        made = r.select(largest, r.op("multiply", sign, g), r.scalar(0.0, a.dtype))
    else:
        power = r.op("power", r.op("divide", r.emit("abs", (differences,)), d), p - 1)
        made = r.op("multiply", r.op("multiply", sign, power), g)
        none = r.compare(d, "EQ", 0.0)
        if p < 1:
            none = r.op("or", none, r.compare(differences, "EQ", 0.0))
        made = r.select(none, r.scalar(0.0, a.dtype), made)
    made = r.reduce(made, -2, "add")
    shape = r.out.shape
    extra = tuple(range(made.rank - len(shape)))
    return r.reduce(made, extra, "add") if extra else made


# Distances of the rows of one matrix: those of (i, j) with i < j, row by row


def _pdist(r: AtenReader, x: Value, p: float = 2.0) -> Value:
    """Compute the distances between the rows of x, pair by pair.

    The row of element k is the solution of a quadratic equation, which f64 solves exactly for all that fits memory.
    """
    n, count = x.shape[0], r.out.shape
    k = r.iota(I64, count)
    root = r.emit("sqrt", (r.convert(r.op("subtract", 4 * n * (n - 1) - 7, r.op("multiply", k, 8)), F64),))
    steps = r.convert(r.emit("floor", (r.op("subtract", r.op("multiply", root, 0.5), 0.5),)), I64)
    row = r.op("subtract", n - 2, steps)
    column = r.op("add", r.op("subtract", k, _first(r, row, n)), r.op("add", row, 1))
    flat = r.reshape(_cdist(r, x, x, p), (n * n,))
    return make_take(r, flat, r.op("add", r.op("multiply", row, n), column), 0)


def _first(r: AtenReader, row: Value, n: Dim) -> Value:
    """The number of the first pair of a row: row * (2 n - row - 1) / 2."""
    return r.op("divide", r.op("multiply", row, r.op("subtract", 2 * n - 1, row)), 2)


def _pdist_backward(r: AtenReader, gradient: Value, x: Value, p: float, distances: Value) -> Value:
    n = x.shape[0]
    rows, columns = (r.iota(I64, (n, n), axis) for axis in (0, 1))
    low, high = r.op("minimum", rows, columns), r.op("maximum", rows, columns)
    at = r.op("subtract", r.op("add", _first(r, low, n), high), r.op("add", low, 1))
    same = r.compare(rows, "EQ", columns)

    def matrix(pairs: Value) -> Value:
        padded = r.pad(pairs, 0.0, (0,), (1,))  # of a single row there is no pair
        return r.select(same, r.scalar(0.0, pairs.dtype), make_take(r, padded, at, 0))

    return _cdist_backward(r, matrix(gradient), x, x, p, matrix(distances))


def _trilinear(
    r: AtenReader,
    a: Value,
    b: Value,
    c: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    _: int = 1,
) -> Value:
    """The sum over some axes of a * b * c, each with new axes among its own."""
    dtype = computed(r.out.dtype)
    wide = []
    for x, axes in ((a, expand_a), (b, expand_b), (c, expand_c)):
        made = r.convert(x, dtype)
        for axis in sorted(axes):
            made = r.unsqueeze(made, axis)
        wide.append(made)
    product = r.op("multiply", r.op("multiply", wide[0], wide[1]), wide[2])
    return r.convert(r.reduce(product, tuple(summed), "add") if summed else product, r.out.dtype)


def _addbmm(r: AtenReader, c: Value, a: Value, b: Value, *, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """All products of a batch are added."""
    made = r.reduce(r.matmul(a, b, computed(a.dtype), 1), 0, "add")
    if alpha != 1:
        made = r.op("multiply", made, alpha)
    if beta != 0:
        old = r.convert(c, made.dtype)
        made = r.op("add", made, old if beta == 1 else r.op("multiply", old, beta))
    return r.convert(made, r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._cdist_forward.default": _cdist,
    "aten._cdist_backward.default": _cdist_backward,
    "aten._pdist_forward.default": _pdist,
    "aten._pdist_backward.default": _pdist_backward,
    "aten._trilinear.default": _trilinear,
    "aten.addbmm.default": _addbmm,
}
