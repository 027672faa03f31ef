"""Samples of images at positions from data (`grid_sample`), in two and three dimensions, and their gradients.

PyTorch has the formula for two dimensions; what it leaves to a kernel is written with JAX, which derives gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.formulas.images import STEEP, cubic_taps
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.jax_later import jax, jnp

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _place(g: jax.Array, size: int, align: bool) -> jax.Array:
    """Map -1 … 1 to a position on an axis; with `align` these are the centres of its first and last element."""
    return (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2


def _bounded(at: jax.Array, size: int, padding: int, align: bool) -> jax.Array:
    """Move a position into the image as the padding says: to the nearest element, or by reflection."""
    if padding == _ZEROS:
        return at
    if padding == _REFLECTION:
        low, span = (0.0, size - 1) if align else (-0.5, size)
        length = jnp.maximum(jnp.asarray(span, at.dtype), 1)
        distance = jnp.abs(at - low)
        turns = jnp.floor(distance / length)
        rest = distance - turns * length
        at = jnp.where(turns % 2 == 0, rest, length - rest) + low
        at = jnp.where(jnp.asarray(span) == 0, 0.0, at).astype(at.dtype)
    return jnp.clip(at, 0, jnp.asarray(size - 1, at.dtype))


def _read(x: jax.Array, places: Sequence[jax.Array], padding: int, align: bool) -> jax.Array:
    """Read the elements at whole positions, (batch, channels, …)."""
    sizes = x.shape[2:]
    inside: jax.Array | bool = True
    at = []
    for place, size in zip(places, sizes, strict=True):
        bounded = _bounded(place, size, padding, align)
        inside = inside & (bounded >= 0) & (bounded <= size - 1)
        at.append(jnp.clip(bounded.astype(np.int64), 0, size - 1))
    one = jax.vmap(lambda image, *indices: image[(slice(None), *indices)])
    return jnp.where(jnp.expand_dims(inside, 1), one(x, *at), 0)


def _weights(fraction: jax.Array, mode: int) -> list[tuple[int, jax.Array]]:
    """List the neighbours of a position: (offset from the whole position below, weight)."""
    if mode == _BILINEAR:
        return [(0, 1 - fraction), (1, fraction)]
    return cubic_taps(fraction, STEEP)


def _sampled(x: jax.Array, grid: jax.Array, mode: int, padding: int, align: bool) -> jax.Array:
    """Sample. The last axis of the grid has positions on the axes of an image, its last axis first."""
    sizes = x.shape[2:]
    places = [_place(grid[..., len(sizes) - 1 - k], size, align) for k, size in enumerate(sizes)]
    if mode != _BICUBIC:
        places = [_bounded(at, size, padding, align) for at, size in zip(places, sizes, strict=True)]
    if mode == _NEAREST:
        return _read(x, [jnp.round(at) for at in places], _ZEROS, align)
    whole = [jax.lax.stop_gradient(jnp.floor(at)) for at in places]
    rows = [_weights(at - low, mode) for at, low in zip(places, whole, strict=True)]
    total: Any = 0
    for corner in itertools.product(*rows):
        weight: Any = 1
        for _, share in corner:
            weight = weight * share
        at = [low + step for low, (step, _) in zip(whole, corner, strict=True)]
        values = _read(x, at, padding if mode == _BICUBIC else _ZEROS, align)
        total = total + values * jnp.expand_dims(weight, 1)
    return total


def _forward(r: AtenReader, x: Array, grid: Array, mode: int, padding: int, align: bool) -> Array:
    dtype = computed(x.dtype)
    wide = [v.cast(dtype) for v in (x, grid)]
    (made,) = traced(r, lambda a, b: _sampled(a, b, mode, padding, align), *wide)
    return made.cast(r.out.dtype)


def _backward(
    r: AtenReader, gradient: Array, x: Array, grid: Array, mode: int, padding: int, align: bool, mask: Sequence[bool]
) -> list[Array | None]:
    """Compute the gradients of the image and of the grid, as far as `mask` asks for them."""
    dtype = computed(x.dtype)
    wide = [v.cast(dtype) for v in (gradient, x, grid)]

    def gradients(g: jax.Array, a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
        return jax.vjp(lambda image, at: _sampled(image, at, mode, padding, align), a, b)[1](g)

    made = traced(r, gradients, *wide)
    return [y.cast(v.dtype) if asked else None for y, v, asked in zip(made, (x, grid), mask, strict=True)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.grid_sampler_2d_backward.default": _backward,
    "aten.grid_sampler_3d.default": _forward,
    "aten.grid_sampler_3d_backward.default": _backward,
}
