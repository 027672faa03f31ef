"""Fourier transforms of any axes, three at a time. The inverse has the factor that PyTorch asks for, not 1/n."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ops.expr import F64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_AT_ONCE = 3
_BY_ROOT, _BY_SIZE = 1, 2


def _along(r: AtenReader, x: Array, axes: Sequence[int], transform: str, last: Dim | None = None) -> Array:
    """Transform with axes moved to the end and back. last: the length of the last one when it is whole."""
    order = [axis for axis in range(x.rank) if axis not in axes] + list(axes)
    turned = x.transpose(order)
    length = [*turned.shape[x.rank - len(axes) :]]
    if last is not None:
        length[-1] = last
    made = turned.emit("fft", transform=transform, length=tuple(length))
    return made.transpose(tuple(map(order.index, range(x.rank))))


def _complex(r: AtenReader, x: Array, axes: Sequence[int], forward: bool) -> Array:
    for start in range(0, len(axes), _AT_ONCE):
        x = _along(r, x, axes[start : start + _AT_ONCE], "FFT" if forward else "IFFT")
    return x


def _scaled(r: AtenReader, x: Array, count: Dim, mode: int, divided: bool) -> Array:
    """Scale a result. divided: the transform has already divided by the number of elements."""
    power = {0: 0.0, _BY_ROOT: -0.5, _BY_SIZE: -1.0}[mode] + (1.0 if divided else 0.0)
    if not power:
        return x
    factor = r.scalar(count, F64)
    if abs(power) == 0.5:
        factor = factor.sqrt()
    if power < 0:
        factor = r.scalar(1.0, F64) / factor
    real = part_dtype(x.dtype) if x.dtype.kind == "c" else x.dtype
    return x * factor.cast(real).cast(x.dtype)


def _axes(x: Array, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis % x.rank for axis in axes)


def _count(x: Array, axes: Sequence[int]) -> Dim:
    return math.prod((x.shape[axis] for axis in axes), start=ONE)


def _c2c(r: AtenReader, x: Array, axes: Sequence[int], mode: int, forward: bool) -> Array:
    axes = _axes(x, axes)
    if not axes:
        return x
    return _scaled(r, _complex(r, x, axes, forward), _count(x, axes), mode, not forward)


def _r2c(r: AtenReader, x: Array, axes: Sequence[int], mode: int, onesided: bool) -> Array:
    axes = _axes(x, axes)
    if onesided:
        made = _complex(r, _along(r, x, axes[-1:], "RFFT"), axes[:-1], True)
    else:
        made = _complex(r, x.cast(r.out.dtype), axes, True)
    return _scaled(r, made, _count(x, axes), mode, False)


def _c2r(r: AtenReader, x: Array, axes: Sequence[int], mode: int, last: Dim | int) -> Array:
    axes = _axes(x, axes)
    made = _along(r, _complex(r, x, axes[:-1], False), axes[-1:], "IRFFT", Dim.of(last))
    return _scaled(r, made, _count(made, axes), mode, True)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._fft_c2c.default": _c2c,
    "aten._fft_r2c.default": _r2c,
    "aten._fft_c2r.default": _c2r,
    "prims.fft_c2c.default": lambda r, x, *, dim, forward: _c2c(r, x, dim, 0, forward),
    "prims.fft_r2c.default": lambda r, x, *, dim, onesided: _r2c(r, x, dim, 0, onesided),
    "prims.fft_c2r.default": lambda r, x, *, dim, last_dim_size: _c2r(r, x, dim, 0, last_dim_size),
}
