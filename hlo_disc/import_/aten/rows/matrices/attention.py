"""Scaled dot products of (batch, heads, length, width), and their gradient.

A causal mask is aligned at the first key, and a fully hidden row gives zeros, as in eager mode. There may be fewer
heads of keys than of queries: several consecutive query heads share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.handlers.arrays import Array, iota, matmul

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_SWAPPED = (0, 1, 3, 2)


def _heads(r: AtenReader, x: Array, query: Array) -> Array:
    """Repeat keys or values for each head of the queries."""
    batch, heads, length, width = x.shape
    if heads is query.shape[1]:
        return x
    if not heads.is_const or not query.shape[1].is_const:
        r.unsupported("heads of queries and of keys are different sizes")
    each = query.shape[1] // heads
    spread = x.reshape((batch, heads, ONE, length, width)).broadcast((batch, heads, each, length, width))
    return spread.reshape((batch, query.shape[1], length, width))


def _gathered(r: AtenReader, x: Array, heads: Dim) -> Array:
    """Compute the adjoint of `_heads`: sums over the query heads that share a key head."""
    batch, all_heads, length, width = x.shape
    if heads is all_heads:
        return x
    return x.reshape((batch, heads, all_heads // heads, length, width)).sum(2)


def _scale(r: AtenReader, query: Array, scale: float | None, dtype: np.dtype) -> Array:
    return r.scalar(query.shape[-1], dtype).op("rsqrt") if scale is None else r.scalar(scale, dtype)


def _scores(r: AtenReader, query: Array, key: Array, causal: bool, mask: Array | None, scale: float | None) -> Array:
    """Compute the scores of queries and keys in a wide type; a hidden score is minus infinity."""
    dtype = query.dtype
    scaled = query * _scale(r, query, scale, dtype)
    scores = matmul(scaled, key.transpose(_SWAPPED), dtype, 2)
    hidden = r.scalar(float("-inf"), dtype)
    if causal:
        rows, columns = (iota(r, scores.shape[-2:], axis, I64) for axis in (0, 1))
        scores = where(rows >= columns, scores, hidden)
    if mask is not None and mask.dtype == BOOL:
        return where(mask, scores, hidden)
    return scores if mask is None else scores + mask.cast(dtype)


def _widened(r: AtenReader, query: Array, key: Array, value: Array, dropout: float) -> list[Array]:
    """Convert to the type of sums, with as many heads of keys and values as of queries."""
    if dropout:
        r.unsupported("dropout inside of an attention is not supported")
    return [x.cast(computed(query.dtype)) for x in (query, _heads(r, key, query), _heads(r, value, query))]


def _attention(
    r: AtenReader,
    query: Array,
    key: Array,
    value: Array,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> list[Array]:
    """Compute the attention, and the logarithms of the softmax's sums."""
    q, k, v = _widened(r, query, key, value, dropout)
    dtype = q.dtype
    scores = _scores(r, q, k, causal, attn_mask, scale)
    top = scores.reduce("max", -1, True)
    top = where(top == float("-inf"), 0.0, top)
    exps = (scores - top).exp()
    total = exps.sum(-1, True)
    total = where(total == 0.0, 1.0, total)
    made = matmul(exps / total, v, dtype, 2)
    sums = (total.log() + top).squeeze(-1)
    return [made.cast(r.outs[0].dtype), sums.cast(r.outs[1].dtype)]


def _backward(
    r: AtenReader,
    gradient: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    sums: Array,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> list[Array]:
    """Compute the gradients of queries, keys and values, with weights from `sums`, the logarithms of their sums."""
    q, k, v = _widened(r, query, key, value, dropout)
    dtype = q.dtype
    g, o = gradient.cast(dtype), out.cast(dtype)
    scores = _scores(r, q, k, causal, attn_mask, scale)
    weights = (scores - sums.cast(dtype).expand(-1)).exp()
    of_weights = matmul(g, v.transpose(_SWAPPED), dtype, 2)
    common = (g * o).sum(-1, True)
    of_scores = weights * (of_weights - common)
    of_scores = of_scores * _scale(r, query, scale, dtype)
    made = (
        matmul(of_scores, k, dtype, 2),
        _gathered(r, matmul(of_scores.transpose(_SWAPPED), q, dtype, 2), key.shape[1]),
        _gathered(r, matmul(weights.transpose(_SWAPPED), g, dtype, 2), value.shape[1]),
    )
    return [x.cast(type_.dtype) for x, type_ in zip(made, r.outs, strict=True)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _backward,
}
