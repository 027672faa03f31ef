"""The primitives that PyTorch's own decompositions end in: `prims`, whose operands have one type already.

Most are ATen's ops by another name; what follows here are those that ATen has no row of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class
from hlo_disc.dynamic_hlo.ops.expr import F64, I32, where
from hlo_disc.import_.aten.rows.axes import reductions
from hlo_disc.import_.aten.rows.numbers import elementwise as aten
from hlo_disc.import_.aten.rows.numbers import special
from hlo_disc.import_.aten.rows.numbers.elementwise import elementwise
from hlo_disc.import_.by_jax import by_jax
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.jax_later import jnp

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_LEAST_SQUARE_ROOT = math.sqrt(0.5)


def _nan_is_missing(extremum: str) -> Callable[..., Array]:
    """Return the extremum; if one operand is NaN, the other one."""

    def formula(r: AtenReader, a: Array, b: Array) -> Array:
        if dtype_class(a.dtype) != "float":
            return a.op(extremum, b)
        inner = where(aten.is_nan(r, b), a, a.op(extremum, b))
        return where(aten.is_nan(r, a), b, inner)

    return formula


def _bits(r: AtenReader, x: Array) -> Array:
    return x.emit("bitcast_convert", dtype=np.dtype(f"i{x.dtype.itemsize}"))


def sign_bit(r: AtenReader, x: Array) -> Array:
    """Return the sign bit, also of -0.0 and NaN."""
    kind = dtype_class(x.dtype)
    if kind in ("bool", "uint"):
        return r.full(False, np.dtype(bool), x.shape)
    return (_bits(r, x) if kind == "float" else x) < 0


def _frexp(r: AtenReader, x: Array) -> list[Array]:
    """Split into (mantissa in [0.5, 1), exponent), f32 and f64 by their bits; denormal numbers are scaled first."""
    mantissa, bias, scale = (23, 126, 2.0**24) if x.dtype.itemsize == 4 else (52, 1022, 2.0**54)
    tiny = abs(x) < float(np.finfo(x.dtype).tiny)
    bits = _bits(r, where(tiny, x * scale, x))
    ones = (1 << (8 if mantissa == 23 else 11)) - 1
    raw = bits.op("shift_right_logical", mantissa) & ones
    exponent = raw - where(tiny, r.scalar(bias + round(math.log2(scale)), bits.dtype), bias)
    kept = bits & ~(ones << mantissa) | bias << mantissa
    whole = (x == 0) | ~aten.finite(r, x)
    part = where(whole, x, kept.emit("bitcast_convert", dtype=x.dtype))
    return [part, where(whole, 0, exponent).cast(I32)]


def frexp(r: AtenReader, x: Array) -> list[Array]:
    wide = x.cast(computed(x.dtype))
    return [made.cast(out.dtype) for made, out in zip(_frexp(r, wide), r.outs, strict=True)]


def _log2(r: AtenReader, x: Array) -> Array:
    """Compute log2, exact for powers of two: the exponent plus the logarithm of the rest, which is near 1."""
    if dtype_class(x.dtype) == "complex":
        return x.log() / math.log(2)
    part, exponent = _frexp(r, x)
    low = part < _LEAST_SQUARE_ROOT
    part = where(low, part + part, part)
    exponent = where(low, exponent - 1, exponent).cast(x.dtype)
    return part.log() * (1 / math.log(2)) + exponent


def _log10(r: AtenReader, x: Array) -> Array:
    """Compute log10 in f64, so that powers of ten are exact in f32."""
    wide = x.cast(F64) if dtype_class(x.dtype) == "float" else x
    return (wide.log() / math.log(10)).cast(x.dtype)


def _reduced(handler: Callable[..., Array]) -> Callable[..., Array]:
    """Reduce over these axes; over none if there are none."""

    def handle(
        r: AtenReader, x: Array, axes: Sequence[int] | None, *rest: object, output_dtype: object = None
    ) -> Array:
        if axes is not None and not len(axes):
            axes = None if not x.rank else axes
        return handler(r, x, axes, *rest)

    return handle


def _of_aten(name: str) -> Callable[..., object]:
    rows = aten.ROWS | special.ROWS
    kinds = ("default", "Tensor", "Tensor_Tensor")
    return next(rows[row] for kind in kinds if (row := f"aten.{name}.{kind}") in rows)


_SHARED = (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos cosh "
    "digamma eq erf erfc exp expm1 floor fmod ge gt igamma igammac isfinite le lgamma log log1p lt maximum minimum mul "
    "ne neg nextafter pow reciprocal remainder round rsqrt sign sin sinh sqrt sub tan tanh trunc"
).split()


def _fma(r: AtenReader, a: Array, b: Array, c: Array) -> Array:
    """Compute a * b + c in f64, in which the product of two narrower numbers is exact."""
    if a.dtype == F64:
        r.unsupported("f64 has no wider type for the product")
    a, b, c = (x.cast(F64) for x in (a, b, c))
    return (a * b + c).cast(r.out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "prims.fma.default": _fma,
    **{f"prims.{name}.default": _of_aten(name) for name in _SHARED},
    "prims.div.default": elementwise(aten.op("divide")),
    "prims.erf_inv.default": _of_aten("erfinv"),
    "prims.shift_left.default": _of_aten("bitwise_left_shift"),
    "prims.shift_right_arithmetic.default": _of_aten("bitwise_right_shift"),
    "prims.shift_right_logical.default": elementwise(aten.op("shift_right_logical")),
    "prims.where.default": aten.ROWS["aten.where.self"],
    "prims.cbrt.default": elementwise(aten.op("cbrt"), KIND.INT_TO_FLOAT),
    "prims.exp2.default": elementwise(lambda r, x: r.full(2, x.dtype, x.shape).op("power", x), KIND.INT_TO_FLOAT),
    "prims.log2.default": elementwise(_log2, KIND.INT_TO_FLOAT),
    "prims.log10.default": elementwise(_log10, KIND.INT_TO_FLOAT),
    "prims.hypot.default": elementwise(lambda r, a, b: abs(a.emit("complex", b))),
    "prims.fmax.default": elementwise(_nan_is_missing("maximum")),
    "prims.fmin.default": elementwise(_nan_is_missing("minimum")),
    "prims.gcd.default": elementwise(by_jax(jnp.gcd)),
    "prims.signbit.default": elementwise(sign_bit, KIND.ALWAYS_BOOL),
    "prims.frexp.default": frexp,
    "aten.frexp.Tensor": frexp,
    "prims.conj.default": lambda _, x: x.conj(),
    "prims.conj_physical.default": lambda _, x: x.conj(),
    "prims.real.default": aten.ROWS["aten.real.default"],
    "prims.imag.default": lambda r, x: x.op("imag"),
    **{
        f"prims.{name}.default": _reduced(reductions.ROWS[f"aten.{name}.default"])
        for name in ("sum", "prod", "amax", "amin")
    },
    "prims.var.default": _reduced(
        lambda r, x, axes, correction=1: reductions.ROWS["aten.var.correction"](r, x, axes, correction=correction)
    ),
    "prims.fill.default": aten.ROWS["aten.fill.Scalar"],
    "prims.device_put.default": lambda r, x, *_: x,
}
