"""Distances between all rows of two matrices, by their differences; products of three tensors; sums of products.

The square of a Euclidean distance is never taken apart into products, which eager mode does of many rows and which
loses the digits of small distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.reductions import computed
from hlo_disc.import_.aten.tensors import Operand

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
    """Of a. Where there is no distance, there is no gradient."""
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
    "aten._trilinear.default": _trilinear,
    "aten.addbmm.default": _addbmm,
}
