"""Images of another size whose pixels are means of all that they cover: products with a matrix of weights an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.tensors import I64

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_CUBIC = -0.5  # the parameter of the kernel
Kernel = Callable[["AtenReader", Value], Value]


def _triangle(r: AtenReader, d: Value) -> Value:
    return r.op("maximum", r.op("subtract", 1, d), 0)


def _cubic(r: AtenReader, d: Value) -> Value:
    def polynomial(*coefficients: float) -> Value:
        made: Any = coefficients[0]
        for c in coefficients[1:]:
            made = r.op("add", r.op("multiply", d, made), c)
        return made

    near = polynomial(_CUBIC + 2, -(_CUBIC + 3), 0, 1)
    far = polynomial(_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    return r.select(r.compare(d, "LT", 1), near, r.select(r.compare(d, "LT", 2), far, 0))


def _weights(
    r: AtenReader, before: Dim, after: Dim, kernel: Kernel, reach: int, align: bool, factor: Any, dtype: np.dtype
) -> Value:
    """(after, before): what each new element has of each old one. reach: how far the kernel goes, in all."""
    if factor is not None and not align:
        scale = r.op("divide", r.scalar(1, dtype), r.scalar(factor, dtype))
    else:
        sizes = [r.scalar(d - 1 if align else d, dtype) for d in (before, after)]
        scale = r.op("divide", *sizes)
        scale = r.select(r.compare(sizes[1], "LE", 0), 0, scale) if align else scale
    wide = r.op("maximum", scale, 1)
    row, column = (r.convert(r.iota(I64, (after, before), axis), dtype) for axis in (0, 1))
    centre = r.op("multiply", r.op("add", row, 0.5), scale)
    support = r.op("multiply", wide, reach / 2)
    first = r.emit("floor", (r.op("add", r.op("subtract", centre, support), 0.5),))
    last = r.emit("floor", (r.op("add", r.op("add", centre, support), 0.5),))
    inside = r.op("and", r.compare(column, "GE", first), r.compare(column, "LT", last))
    distance = r.op("divide", r.op("add", r.op("subtract", column, centre), 0.5), wide)
    made = r.select(inside, kernel(r, r.emit("abs", (distance,))), 0)
    return r.op("divide", made, r.broadcast(r.reduce(made, 1, "add", keep=True), made.shape))


def _product(r: AtenReader, x: Value, matrices: Sequence[Value]) -> Value:
    """(batch, channels, rows, columns), of which each new axis is (new, old) by the old one."""
    for matrix in reversed(matrices):  # each time the last axis becomes the one before
        lines = r.reshape(x, (dim_product(x.shape[:-1]), x.shape[-1]))
        made = r.matmul(lines, r.transpose(matrix, (1, 0)), x.dtype)
        made = r.reshape(made, (*x.shape[:-1], matrix.shape[0]))
        x = r.transpose(made, (0, 1, 3, 2))
    return x


def _resized(kernel: Kernel, reach: int) -> Callable[..., Value]:
    def handle(r: AtenReader, x: Value, _: Any, align: bool, *factors: Any) -> Value:
        dtype, factors = computed(x.dtype), factors or (None, None)
        matrices = [
            _weights(r, x.shape[axis], r.out.shape[axis], kernel, reach, align, factor, dtype)
            for axis, factor in zip((2, 3), factors, strict=True)
        ]
        return r.convert(_product(r, r.convert(x, dtype), matrices), r.out.dtype)

    return handle


def _backward(r: AtenReader, gradient: Value, _: Any, __: Any, align: bool, *factors: Any) -> Value:
    dtype, factors = computed(gradient.dtype), factors or (None, None)
    matrices = [
        _weights(r, r.out.shape[axis], gradient.shape[axis], _triangle, 2, align, factor, dtype)
        for axis, factor in zip((2, 3), factors, strict=True)
    ]
    turned = [r.transpose(matrix, (1, 0)) for matrix in matrices]
    return r.convert(_product(r, r.convert(gradient, dtype), turned), r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._upsample_bilinear2d_aa.default": _resized(_triangle, 2),
    "aten._upsample_bicubic2d_aa.default": _resized(_cubic, 4),
    "aten._upsample_bilinear2d_aa_backward.default": _backward,
}
