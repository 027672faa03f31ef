"""Scaled dot products of (batch, heads, length, width), and their gradient.

What a causal mask hides is counted from the first key, and a row that is hidden as a whole gives zeros, as in eager
mode. Heads of keys may be fewer than those of queries: each is that of several in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.tensors import BOOL, I64
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_SWAPPED = (0, 1, 3, 2)


def _heads(r: AtenReader, x: Value, query: Value) -> Value:
    """Keys or values for each head of the queries."""
    batch, heads, length, width = x.shape
    if heads is query.shape[1]:
        return x
    if not heads.is_const or not query.shape[1].is_const:
        r.unsupported("heads of queries and of keys are different sizes")
    each = query.shape[1] // heads
    spread = r.broadcast(r.reshape(x, (batch, heads, ONE, length, width)), (batch, heads, each, length, width))
    return r.reshape(spread, (batch, query.shape[1], length, width))


def _gathered(r: AtenReader, x: Value, heads: Any) -> Value:
    """The adjoint: sums over the heads that share a key."""
    batch, all_heads, length, width = x.shape
    if heads is all_heads:
        return x
    return r.reduce(r.reshape(x, (batch, heads, all_heads // heads, length, width)), 2, "add")


def _scale(r: AtenReader, query: Value, scale: Any, dtype: np.dtype) -> Value:
    return r.emit("rsqrt", (r.scalar(query.shape[-1], dtype),)) if scale is None else r.scalar(scale, dtype)


def _scores(r: AtenReader, query: Value, key: Value, causal: bool, mask: Value | None, scale: Any) -> Value:
    """Compute the scores of queries and keys in a wide type; a hidden score is minus infinity."""
    dtype = query.dtype
    scaled = r.op("multiply", query, _scale(r, query, scale, dtype))
    scores = r.matmul(scaled, r.transpose(key, _SWAPPED), dtype, 2)
    hidden = r.scalar(float("-inf"), dtype)
    if causal:
        rows, columns = (r.iota(I64, scores.shape[-2:], axis) for axis in (0, 1))
        scores = r.select(r.compare(rows, "GE", columns), scores, hidden)
    if mask is not None and mask.dtype == BOOL:
        return r.select(mask, scores, hidden)
    return scores if mask is None else r.op("add", scores, r.convert(mask, dtype))


def _widened(r: AtenReader, query: Value, key: Value, value: Value, dropout: float) -> list[Value]:
    """In the type of sums, with as many heads of keys and values as of queries."""
    if dropout:
        r.unsupported("dropout inside of an attention is not supported")
    return [r.convert(x, computed(query.dtype)) for x in (query, _heads(r, key, query), _heads(r, value, query))]


def _attention(
    r: AtenReader,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: Any = None,
) -> list[Value]:
    """Also the logarithms of the softmax's sums."""
    q, k, v = _widened(r, query, key, value, dropout)
    dtype = q.dtype
    scores = _scores(r, q, k, causal, attn_mask, scale)
    top = r.reduce(scores, -1, "max", True)
    top = r.select(r.compare(top, "EQ", float("-inf")), 0.0, top)
    exps = r.emit("exponential", (r.op("subtract", scores, top),))
    total = r.reduce(exps, -1, "add", True)
    total = r.select(r.compare(total, "EQ", 0.0), 1.0, total)
    made = r.matmul(r.op("divide", exps, total), v, dtype, 2)
    sums = r.squeeze(r.op("add", r.emit("log", (total,)), top), -1)
    return [r.convert(made, r.outs[0].dtype), r.convert(sums, r.outs[1].dtype)]


def _backward(
    r: AtenReader,
    gradient: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    sums: Value,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: Any = None,
) -> list[Value]:
    """Compute the gradients of queries, keys and values, with weights from `sums`, the logarithms of their sums."""
    q, k, v = _widened(r, query, key, value, dropout)
    dtype = q.dtype
    g, o = r.convert(gradient, dtype), r.convert(out, dtype)
    scores = _scores(r, q, k, causal, attn_mask, scale)
    weights = r.emit("exponential", (r.op("subtract", scores, r.unsqueeze(r.convert(sums, dtype), -1)),))
    of_weights = r.matmul(g, r.transpose(v, _SWAPPED), dtype, 2)
    common = r.reduce(r.op("multiply", g, o), -1, "add", True)
    of_scores = r.op("multiply", weights, r.op("subtract", of_weights, common))
    of_scores = r.op("multiply", of_scores, _scale(r, query, scale, dtype))
    made = (
        r.matmul(of_scores, k, dtype, 2),
        _gathered(r, r.matmul(r.transpose(of_scores, _SWAPPED), q, dtype, 2), key.shape[1]),
        _gathered(r, r.matmul(r.transpose(weights, _SWAPPED), g, dtype, 2), value.shape[1]),
    )
    return [r.convert(x, type_.dtype) for x, type_ in zip(made, r.outs, strict=True)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _backward,
}
