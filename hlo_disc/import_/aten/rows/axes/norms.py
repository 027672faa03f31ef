"""Norms of layers, groups and batches, and their gradients. Those of 16-bit floats are computed in f32.

PyTorch could decompose them. It takes tens of milliseconds for each, and traces ten ops in the place of one. Source:
these decompositions (`torch/_decomp`, `torch/_refs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import F64
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.formulas.norms import Features, moments
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

# The axis of channels.
_CHANNELS = 1


def _affine(x: Array, weight: Array | None, bias: Array | None, axes: Sequence[int] | None = None) -> Array:
    """Multiply by a weight and add a bias, if they are given. axes: those that they have, by default the last."""
    if weight is not None:
        x = x * weight.cast(x.dtype).broadcast(x.shape, axes)
    return x if bias is None else x + bias.cast(x.dtype).broadcast(x.shape, axes)


def _typed(r: AtenReader, *results: Array) -> list[Array]:
    """Convert to the types that PyTorch has found for the first results of the op."""
    return [x.cast(out.dtype) for x, out in zip(results, r.outs, strict=False)]


def _gradients(r: AtenReader, asked: Sequence[bool], *all_: Array) -> list[Array | None]:
    """Return the gradients that are asked for. PyTorch has types of these alone."""
    types = iter(r.outs)
    return [x.cast(next(types).dtype) if one else None for x, one in zip(all_, asked, strict=True)]


def _layer_norm(
    r: AtenReader, x: Array, shape: Sequence[object], weight: Array | None, bias: Array | None, epsilon: float
) -> list[Array]:
    """Return (normalised, mean, 1 / deviation), over the last axes."""
    wide = x.cast(computed(x.dtype))
    mean, variance = moments(wide, range(x.rank - len(shape), x.rank))
    inverse = (variance + epsilon).op("rsqrt")
    return _typed(r, _affine((wide - mean) * inverse, weight, bias), mean, inverse)


def _layer_norm_grad(
    r: AtenReader,
    grad: Array,
    x: Array,
    shape: Sequence[object],
    mean: Array,
    inverse: Array,
    weight: Array | None,
    bias: Array | None,
    asked: Sequence[bool],
) -> list[Array | None]:
    """Return the gradients of the input, the weight and the bias."""
    dtype, first = computed(x.dtype), x.rank - len(shape)
    inner, outer = range(first, x.rank), range(first)
    grad, mean, inverse = grad.cast(dtype), mean.cast(dtype), inverse.cast(dtype)
    normal = (x.cast(dtype) - mean) * inverse
    change = _affine(grad, weight, None)
    count = x.count(inner, dtype)
    centred = change * count - change.sum(inner, True) - normal * (change * normal).sum(inner, True)
    present = asked[0], asked[1] and weight is not None, asked[2] and bias is not None
    return _gradients(r, present, centred * (inverse / count), (grad * normal).sum(outer), grad.sum(outer))


def _in_groups(line: Array, groups: int) -> Array:
    """Lay out a vector of channels as (1, groups, channels of a group, 1)."""
    return line.reshape((1, groups, line.shape[0] // groups, 1))


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
    mean, variance = moments(wide.reshape((batch, groups, each, inner)), (2, 3))
    inverse = (variance + epsilon).op("rsqrt")

    def spread(line: Array) -> Array:
        """Lay out (batch or 1, groups, channels of a group or 1, 1) over the axes of `x`."""
        whole = line.broadcast((Dim.of(batch), Dim.of(groups), each, Dim.of(1)))
        return whole.reshape((batch, channels, *(1,) * (x.rank - 2)))

    if weight is None:
        made = (wide - spread(mean)) * spread(inverse)
    else:  # one product and one sum an element
        scale = inverse * _in_groups(weight.cast(wide.dtype), groups)
        shift = -mean * scale
        if bias is not None:
            shift = shift + _in_groups(bias.cast(wide.dtype), groups)
        made, bias = wide * spread(scale) + spread(shift), None
    made = _affine(made, None, bias, (_CHANNELS,))
    return _typed(r, made, mean.reshape((batch, groups)), inverse.reshape((batch, groups)))


def _group_norm_grad(
    r: AtenReader,
    grad: Array,
    x: Array,
    mean: Array,
    inverse: Array,
    weight: Array | None,
    batch: Dim | int,
    channels: Dim | int,
    inner: Dim | int,
    groups: int,
    asked: Sequence[bool],
) -> list[Array | None]:
    """Return the gradients of the input, the weight and the bias."""
    dtype, each = computed(x.dtype), Dim.of(channels) // groups
    grad, wide = (y.cast(dtype).reshape((batch, groups, each, inner)) for y in (grad, x))
    mean, inverse = (y.cast(dtype).reshape((batch, groups, 1, 1)) for y in (mean, inverse))
    of_channels = (grad * wide).sum(3, True), grad.sum(3, True)
    scale, weighted = inverse, of_channels
    if weight is not None:
        line = _in_groups(weight.cast(dtype), groups)
        scale, weighted = inverse * line, (of_channels[0] * line, of_channels[1] * line)
    products, total = (y.sum(2, True) for y in weighted)
    share = (1 / wide.count((2, 3), F64)).cast(dtype)
    slope = (total * mean - products) * inverse * inverse * inverse * share
    offset = -slope * mean - total * inverse * share
    made = (grad * scale + wide * slope + offset).reshape(x.shape)
    lines = (of_channels[0] - of_channels[1] * mean) * inverse, of_channels[1]
    return _gradients(r, asked, made, *(y.sum(0).reshape((channels,)) for y in lines))


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
    m, inverse = map(Features(x.shape, _CHANNELS).spread, lines)
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
    dtype, f = computed(x.dtype), Features(x.shape, _CHANNELS)
    wide, count = x.cast(dtype), x.count(f.others, F64)
    m, v = f.moments(wide)
    inverse, unbiased = (v + epsilon).op("rsqrt"), v * (count / (count - 1)).cast(dtype)
    new = [made * momentum + old.cast(dtype) * (1 - momentum) for made, old in ((m, mean), (unbiased, variance))]
    normal = (wide - f.spread(m)) * f.spread(inverse)
    return _typed(r, _affine(normal, weight, bias, (_CHANNELS,)), m, inverse, *new)


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
    dtype, f = computed(x.dtype), Features(x.shape, _CHANNELS)
    lines = (saved_mean, saved_inverse) if training else (mean, variance)
    m, inverse = (line.cast(dtype) for line in lines if line is not None)
    if not training:
        inverse = (inverse + epsilon).op("rsqrt")
    grad, centred = grad.cast(dtype), x.cast(dtype) - f.spread(m)
    sums, weighted = f.sums(grad, centred)
    scale = inverse if weight is None else inverse * weight.cast(dtype)
    change = grad
    if training:
        each = (1 / x.count(f.others, F64)).cast(dtype)
        slope, offset = weighted * each * (inverse * inverse), sums * each
        change = grad - centred * f.spread(slope) - f.spread(offset)
    # PyTorch returns the input's whether or not it is asked for.
    return _gradients(r, (True, *asked[1:]), change * f.spread(scale), weighted * inverse, sums)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_grad,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_group_norm_backward.default": _group_norm_grad,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
    "aten.native_batch_norm_backward.default": _batch_norm_grad,
}
