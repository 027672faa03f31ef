"""Softmax and losses, normalisation, and biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.formulas.arithmetic import log_softmax, softmax
from hlo_disc.import_.formulas.norms import Features
from hlo_disc.import_.formulas.windows import Pool
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, together
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.elementwise import formula, widely

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _over_last(function: Callable[[Array, int], Array]) -> Handler:
    return formula(widely(lambda x: function(x, -1)))


def _cross_entropy(r: Reader, op: Node, operands: list[Operand]) -> Result:
    logits, labels = (array(r, x) for x in operands)
    logits, labels = together([logits, labels])
    logs = log_softmax(logits, -1)
    terms = where(labels == 0, 0, labels * logs)
    return [(-terms.sum([1])).value, (logs.exp() - labels).value]


def _sparse_cross_entropy(r: Reader, op: Node, operands: list[Operand]) -> Result:
    logits, labels = (array(r, x) for x in operands)
    n = logits.shape[1]
    place = labels.broadcast(logits.shape, (0,))
    own = iota(r, logits.shape, 1, labels.dtype) == place
    fine = (place >= 0) & (place < n)
    logs = log_softmax(logits, -1)
    nan = logs.like(np.nan)
    loss = -where(own, logs, 0).sum([1])
    ok = (labels >= 0) & (labels < n)
    grad = logs.exp() - own.cast(logs.dtype)
    return [where(ok, loss, nan).value, where(fine, grad, nan).value]


def _channels(op: Node, x: Array) -> Features:
    return Features(x.shape, 1 if op.attributes.get("data_format", "NHWC").startswith("NC") else x.rank - 1)


def _bias_add(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, bias = (array(r, o) for o in operands)
    f = _channels(op, x)
    r.equal(bias.shape[0], x.shape[f.axis], "the bias and the channels")
    return (x + f.spread(bias)).value


def _bias_add_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return x.sum(_channels(op, x).others).value


def _batch_norm(r: Reader, op: Node, operands: list[Operand]) -> Result:
    given, scale, offset, mean, variance = (array(r, o) for o in operands)
    f, epsilon = _channels(op, given), op.attributes.get("epsilon", 1e-4)
    x = given.cast(scale.dtype)
    if op.attributes.get("is_training", True):
        batch_mean, batch_variance = f.moments(x)
        y = _normalised(f, x, scale, offset, batch_mean, batch_variance, epsilon)
        n = x.count(f.others, x.dtype)
        unbiased = batch_variance * (n / (n - 1).maximum(1))
        factor = op.attributes.get("exponential_avg_factor", 1.0)
        if factor != 1.0:
            mean, unbiased = (
                old * (1 - factor) + new * factor for old, new in ((mean, batch_mean), (variance, unbiased))
            )
        else:
            mean = batch_mean
        saved = [batch_mean, batch_variance]
        return [x.value for x in (y.cast(given.dtype), mean, unbiased, *saved, y.like(0))][: len(op.results)]
    y = _normalised(f, x, scale, offset, mean, variance, epsilon)
    rest = [mean, variance, mean, variance, y.like(0)]
    return [x.value for x in (y.cast(given.dtype), *rest)][: len(op.results)]


def _normalised(
    f: Features, x: Array, scale: Array, offset: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    factor = scale * (variance + epsilon).op("rsqrt")
    return (x - f.spread(mean)) * f.spread(factor) + f.spread(offset)


def _batch_norm_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dy, x, scale, mean, variance = (array(r, o) for o in operands[:5])
    f, epsilon = _channels(op, x), op.attributes.get("epsilon", 1e-4)
    given = x.dtype
    dy, x = dy.cast(scale.dtype), x.cast(scale.dtype)
    m, inv, s = (f.spread(line) for line in (mean, (variance + epsilon).op("rsqrt"), scale))
    normal = (x - m) * inv
    d_offset, d_scale = f.sums(dy, normal)
    dx = dy * s * inv
    if op.attributes.get("is_training", True):
        n = x.count(f.others, x.dtype)
        means = [f.spread(line / n) for line in (d_offset, d_scale)]
        dx = (dy - means[0] - normal * means[1]) * s * inv
    zero = filled(r, 0, scale.dtype, ())
    return [v.value for v in (dx.cast(given), d_scale, d_offset, zero, zero)]


def _lrn(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    size, beta = _lrn_size(op, x)
    return (x * size.op("power", -beta)).value


def _lrn_size(op: Node, x: Array) -> tuple[Array, float]:
    """Return the base of the divisor of local response normalisation, by channels."""
    bias, alpha, beta = (op.attributes.get(name, d) for name, d in (("bias", 1.0), ("alpha", 1.0), ("beta", 0.5)))
    return _over_channels(op, x * x) * alpha + bias, beta


def _over_channels(op: Node, x: Array) -> Array:
    """Sum over neighbouring channels."""
    radius = op.attributes.get("depth_radius", 5)
    window = (ONE, ONE, ONE, Dim.const(2 * radius + 1))
    return Pool(window, [1] * 4, [(0, 0)] * 3 + [(radius, radius)], [1] * 4).reduce(x, "add")


def _lrn_grad(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dy, x, y = (array(r, o) for o in operands)
    size, beta = _lrn_size(op, x)
    others = _over_channels(op, dy * y / size)
    alpha: float = op.attributes.get("alpha", 1.0)
    return (dy * size.op("power", -beta) - x * others * (2 * alpha * beta)).value


HANDLERS: dict[str, Handler] = {
    "BiasAdd": _bias_add,
    "BiasAddGrad": _bias_add_grad,
    "BiasAddV1": _bias_add,
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormGrad": _batch_norm_grad,
    "FusedBatchNormGradV2": _batch_norm_grad,
    "FusedBatchNormGradV3": _batch_norm_grad,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "LRN": _lrn,
    "LRNGrad": _lrn_grad,
    "LogSoftmax": _over_last(log_softmax),
    "Softmax": _over_last(softmax),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}
