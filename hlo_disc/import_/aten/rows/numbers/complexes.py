"""Complex numbers: parts, composition, conjugates. A conjugate is computed, which PyTorch only marks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.import_.aten.rows.axes.views import view_as_complex, view_as_real
from hlo_disc.import_.aten.rows.numbers.elementwise import elementwise, is_float, is_nan
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _joined(r: AtenReader, re: Array, im: Array) -> Array:
    shape = r.out.shape
    if re.dtype.itemsize < 4:
        r.unsupported("complex numbers of 16-bit floats are not supported")
    return re.broadcast(shape).emit("complex", im.broadcast(shape))


def _polar(r: AtenReader, size: Array, angle: Array) -> Array:
    parts = [size * angle.emit(function) for function in ("cosine", "sine")]
    return _joined(r, *parts)


def _angle(r: AtenReader, x: Array) -> Array:
    """Compute the angle of each number; for a real number it is 0 or pi."""
    dtype = x.dtype if is_float(x) else r.out.dtype
    if dtype_class(x.dtype) == "complex":
        return x.op("imag").op("atan2", x.op("real"))
    turned = where(x < 0, r.full(math.pi, dtype, x.shape), 0)
    return where(is_nan(r, x), x, turned) if is_float(x) else turned


ROWS: dict[str, Callable[..., Any]] = {
    "aten.view_as_real.default": view_as_real,
    "aten.view_as_complex.default": view_as_complex,
    "aten.imag.default": lambda r, x: x.op("imag"),
    "aten.complex.default": _joined,
    "aten.polar.default": _polar,
    "aten.angle.default": elementwise(_angle, KIND.COMPLEX_TO_FLOAT),
    "aten._conj.default": lambda _, x: x.conj(),
    "aten._conj_physical.default": lambda _, x: x.conj(),
    "aten.conj_physical.default": lambda _, x: x.conj(),
    "aten.conj.default": lambda _, x: x.conj(),
    "aten._neg_view.default": lambda r, x: -x,
    "aten.resolve_conj.default": lambda r, x: x,
    "aten.resolve_neg.default": lambda r, x: x,
}
