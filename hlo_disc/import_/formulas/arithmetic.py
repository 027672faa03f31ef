"""Arithmetic of elements, and along one axis."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ops.expr import A, formula_region, where
from hlo_disc.import_.handlers.arrays import Array, filled, joined, together


def floor_quotient(a: Array, b: Array) -> Array:
    """Divide integers towards minus infinity."""
    a, b = together([a, b])
    quotient = a / b
    if dtype_class(a.dtype) == "uint":
        return quotient
    inexact = (quotient * b != a) & ((a < 0) ^ (b < 0))
    return where(inexact, quotient - 1, quotient)


def floor_remainder(a: Array, b: Array) -> Array:
    """Return the remainder that has the sign of the divisor."""
    a, b = together([a, b])
    rest = a.op("remainder", b)
    if dtype_class(a.dtype) == "uint":
        return rest
    return where((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def cross(a: Array, b: Array, axis: int) -> Array:
    """Return the cross product of vectors of three elements along an axis."""
    (a0, a1, a2), (b0, b1, b2) = ([x.slice(axis, i, i + 1) for i in range(3)] for x in (a, b))
    return joined([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis)


def softmax(x: Array, axis: int) -> Array:
    exps = (x - x.reduce("max", axis, keep=True)).exp()
    return exps / exps.sum(axis, keep=True)


def log_softmax(x: Array, axis: int) -> Array:
    shifted = x - x.reduce("max", axis, keep=True)
    return shifted - shifted.exp().sum(axis, keep=True).log()


def log_add_exp(a: A, b: A) -> A:
    """Compute log(exp(a) + exp(b)); for two equal infinities the result is that infinity."""
    high, low = a.maximum(b), a.minimum(b)
    sum_ = high + (low - high).exp().op("log_plus_one")
    return where((high == low) & ~high.op("is_finite"), high, sum_)


def running_logsumexp(x: Array, axis: int, reverse: bool = False) -> Array:
    body = formula_region(x.r.facts, [x.dtype] * 2, lambda a, b: [log_add_exp(a, b)])
    return x.emit("cumulative", filled(x.r, -np.inf, x.dtype), dim=axis % x.rank, reverse=reverse, body=body)
