"""Norms of layers, groups and batches, as PyTorch's kernels compute them. Those of 16-bit floats are computed in f32.

PyTorch could decompose them. It takes some 20 ms for each norm, and traces ten ops in the place of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ops.expr import F64
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

# The axis of channels.
_CHANNELS = 1


def _moments(x: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    """Return the mean and the variance over some axes, which stay with size 1."""
    count = x.count(axes, x.dtype)
    mean = x.sum(axes, True) / count
    centred = x - mean
    return mean, (centred * centred).sum(axes, True) / count


def _affine(x: Array, weight: Array | None, bias: Array | None, axes: Sequence[int] | None = None) -> Array:
    """Multiply by a weight and add a bias, if they are given. axes: those that they have, by default the last."""
    if weight is not None:
        x = x * weight.cast(x.dtype).broadcast(x.shape, axes)
    return x if bias is None else x + bias.cast(x.dtype).broadcast(x.shape, axes)


def _typed(r: AtenReader, *results: Array) -> list[Array]:
    return [x.cast(out.dtype) for x, out in zip(results, r.outs, strict=False)]


def _layer_norm(
    r: AtenReader, x: Array, shape: Sequence[object], weight: Array | None, bias: Array | None, epsilon: float
) -> list[Array]:
    """Return (normalised, mean, 1 / deviation), over the last axes."""
    wide = x.cast(computed(x.dtype))
    mean, variance = _moments(wide, range(x.rank - len(shape), x.rank))
    inverse = (variance + epsilon).op("rsqrt")
    return _typed(r, _affine((wide - mean) * inverse, weight, bias), mean, inverse)


def _group_norm(
    r: AtenReader,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    batch: Dim | int,
    channels: Dim | int,
    inner: Dim | int,
    groups: int,
    epsilon: float,
) -> list[Array]:
    """Return (normalised, mean, 1 / deviation) over the channels of each group, and over all axes after them."""
    wide = x.cast(computed(x.dtype))
    each = Dim.of(channels) // groups
    mean, variance = _moments(wide.reshape((batch, groups, each, inner)), (2, 3))
    inverse = (variance + epsilon).op("rsqrt")

    def spread(line: Array) -> Array:
        """Lay out (batch or 1, groups, channels of a group or 1, 1) over the axes of `x`."""
        whole = line.broadcast((Dim.of(batch), Dim.of(groups), each, Dim.of(1)))
        return whole.reshape((batch, channels, *(1,) * (x.rank - 2)))

    def in_groups(line: Array) -> Array:
        return line.cast(wide.dtype).reshape((1, groups, each, 1))

    if weight is None:
        made = (wide - spread(mean)) * spread(inverse)
        offset = None if bias is None else spread(in_groups(bias))
    else:
        scale = inverse * in_groups(weight)
        shift = -mean * scale
        made = wide * spread(scale)
        offset = spread(shift if bias is None else shift + in_groups(bias))
    made = made if offset is None else made + offset
    return _typed(r, made, mean.reshape((batch, groups)), inverse.reshape((batch, groups)))


def _over_channels(x: Array, line: Array) -> Array:
    """Lay out a vector of channels over the axes of `x`."""
    return line.broadcast(x.shape, (_CHANNELS,))


def _others(x: Array) -> list[int]:
    """Return the axes that are not of channels."""
    return [axis for axis in range(x.rank) if axis != _CHANNELS]


def _batch_norm(
    r: AtenReader,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    _momentum: float,
    epsilon: float,
) -> list[Array]:
    """Return (normalised, mean, 1 / deviation) by running moments. PyTorch leaves the last two empty on CPUs."""
    dtype = computed(x.dtype)
    lines = mean.cast(dtype), 1 / (variance.cast(dtype) + epsilon).sqrt()
    m, inverse = (_over_channels(x, line) for line in lines)
    kept = [line.slice(0, 0, out.shape[0]) for line, out in zip(lines, r.outs[1:], strict=False)]
    return _typed(r, _affine((x.cast(dtype) - m) * inverse, weight, bias, (_CHANNELS,)), *kept)


def _batch_norm_functional(
    r: AtenReader,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[Array]:
    """Return (normalised, mean, 1 / deviation, new running mean, new running variance)."""
    if not training:
        return _typed(r, *_batch_norm(r, x, weight, bias, mean, variance, momentum, epsilon), mean, variance)
    dtype, axes = computed(x.dtype), _others(x)
    wide = x.cast(dtype)
    m, v = _moments(wide, axes)
    inverse = (v + epsilon).op("rsqrt")
    count = x.count(axes, F64)
    flat = [line.reshape((x.shape[_CHANNELS],)) for line in (m, inverse, v)]
    unbiased = flat[2] * (count / (count - 1)).cast(dtype)
    new = [made * momentum + old.cast(dtype) * (1 - momentum) for made, old in ((flat[0], mean), (unbiased, variance))]
    return _typed(r, _affine((wide - m) * inverse, weight, bias, (_CHANNELS,)), *flat[:2], *new)


def _batch_norm_grad(
    r: AtenReader,
    grad: Array,
    x: Array,
    weight: Array | None,
    mean: Array | None,
    variance: Array | None,
    saved_mean: Array | None,
    saved_inverse: Array | None,
    training: bool,
    epsilon: float,
    asked: Sequence[bool],
) -> list[Array | None]:
    """Return the gradients of the input, the weight and the bias."""
    dtype, axes = computed(x.dtype), _others(x)
    narrow = x.dtype, *2 * [x.dtype if weight is None else weight.dtype]
    lines = (saved_mean, saved_inverse) if training else (mean, variance)
    m, inverse = (line.cast(dtype) for line in lines if line is not None)
    if not training:
        inverse = (inverse + epsilon).op("rsqrt")
    grad, centred = grad.cast(dtype), x.cast(dtype) - _over_channels(x, m)
    sums, weighted = grad.sum(axes), (grad * centred).sum(axes)
    scale = inverse if weight is None else inverse * weight.cast(dtype)
    change = grad
    if training:
        each = (1 / x.count(axes, F64)).cast(dtype)
        slope, offset = weighted * each * (inverse * inverse), sums * each
        change = grad - centred * _over_channels(x, slope) - _over_channels(x, offset)
    made = change * _over_channels(x, scale), weighted * inverse, sums
    return [y.cast(t) if one else None for y, t, one in zip(made, narrow, (True, *asked[1:]), strict=True)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
    "aten.native_batch_norm_backward.default": _batch_norm_grad,
}
