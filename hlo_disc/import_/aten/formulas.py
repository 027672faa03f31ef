"""Formulas for ops that PyTorch does not decompose: its modules call them in place of their own code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import NotImplementedType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten


def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute the gradients of v and g for w = v * g / norms, with the norms of v over all axes but `dim`."""
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    norms = norms.to(g.dtype)
    of_g = (gradient * v).sum(axes, keepdim=True) / norms
    return g / norms * (gradient - v * of_g / norms), of_g


def _self_attention(
    x: Tensor, heads: int, weights: tuple[Tensor, Tensor, Tensor, Tensor], mask: Tensor | None, kind: int | None
) -> Tensor:
    """Self-attention of (batch, length, width). weights: of queries, keys and values together, and of the result, with
    biases.

    mask: not zero at hidden positions. kind: 0 for (length, length), 1 for (batch, length), 2 for all four axes.
    """
    qkv, qkv_bias, out, out_bias = weights
    batch, length, width = x.shape
    parts = functional.linear(x, qkv, qkv_bias).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    allowed = None if mask is None else (mask[:, None, None, :] if kind == 1 else mask) == 0
    made = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=allowed)
    return functional.linear(made.transpose(1, 2).reshape(batch, length, width), out, out_bias)


def _encoder_layer(
    x: Tensor, width: int, heads: int, qkv: Tensor, qkv_bias: Tensor, out: Tensor, out_bias: Tensor, use_gelu: bool,
    norm_first: bool, eps: float, norm1: Tensor, norm1_bias: Tensor, norm2: Tensor, norm2_bias: Tensor, up: Tensor,
    up_bias: Tensor, down: Tensor, down_bias: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor | NotImplementedType:  # fmt: skip
    if x.is_nested:
        return NotImplemented
    first = functools.partial(functional.layer_norm, normalized_shape=(width,), weight=norm1, bias=norm1_bias, eps=eps)
    second = functools.partial(functional.layer_norm, normalized_shape=(width,), weight=norm2, bias=norm2_bias, eps=eps)

    def attend(y: Tensor) -> Tensor:
        return _self_attention(y, heads, (qkv, qkv_bias, out, out_bias), mask, mask_type)

    def feed(y: Tensor) -> Tensor:
        hidden = functional.linear(y, up, up_bias)
        return functional.linear(functional.gelu(hidden) if use_gelu else hidden.relu(), down, down_bias)

    if norm_first:
        x = x + attend(first(x))
        return x + feed(second(x))
    x = first(x + attend(x))
    return second(x + feed(x))


FORMULAS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}
