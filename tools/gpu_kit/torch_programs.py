"""The cases' functions in PyTorch. Their arguments are those of the functions in JAX, as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

HEADS = 12


def _dense(layer: dict, x: torch.Tensor) -> torch.Tensor:
    return x @ layer["w"] + layer["b"]


def _norm(layer: dict, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], layer["scale"], layer["bias"], epsilon)


def _heads(x: torch.Tensor) -> torch.Tensor:
    b, s, width = x.shape
    return x.reshape(b, s, HEADS, width // HEADS).transpose(1, 2)


def _merged(x: torch.Tensor) -> torch.Tensor:
    b, _, s, width = x.shape
    return x.transpose(1, 2).reshape(b, s, HEADS * width)


def bert(params: dict, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    s = ids.shape[1]
    embedded = params["words"][ids.long()] + params["positions"][:s] + params["type"]
    x = _norm(params["norm"], embedded, 1e-12)
    bias = (1 - mask[:, None, None, :].to(x.dtype)) * -1e9
    for layer in params["layers"]:
        query, key, value = (_heads(_dense(layer[name], x)) for name in ("query", "key", "value"))
        mixed = _merged(F.scaled_dot_product_attention(query, key, value, attn_mask=bias))
        x = _norm(layer["output_norm"], x + _dense(layer["output"], mixed), 1e-12)
        x = _norm(layer["down_norm"], x + _dense(layer["down"], F.gelu(_dense(layer["up"], x))), 1e-12)
    return x


def _gpt2_layer(layer: dict, x: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
    query, key, value = (_heads(part) for part in _dense(layer["qkv"], _norm(layer["norm_1"], x, 1e-5)).chunk(3, -1))
    if past is not None:
        key, value = (torch.cat([old, new], 2) for old, new in zip(past, (key, value), strict=True))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
    x = x + _dense(layer["output"], _merged(mixed))
    hidden = F.gelu(_dense(layer["up"], _norm(layer["norm_2"], x, 1e-5)), approximate="tanh")
    return x + _dense(layer["down"], hidden), (key, value)


def gpt2(params: dict, ids: torch.Tensor) -> torch.Tensor:
    x = params["words"][ids.long()] + params["positions"][: ids.shape[1]]
    for layer in params["layers"]:
        x, _ = _gpt2_layer(layer, x, None)
    return _norm(params["norm"], x[:, -1], 1e-5) @ params["words"].T


def gpt2_decode(params: dict, ids: torch.Tensor, caches: list) -> tuple[torch.Tensor, list]:
    length = caches[0][0].shape[2]
    x = (params["words"][ids.long()] + params["positions"][length])[:, None, :]
    grown = []
    for layer, cache in zip(params["layers"], caches, strict=True):
        x, cache = _gpt2_layer(layer, x, cache)
        grown.append(cache)
    return _norm(params["norm"], x[:, 0], 1e-5) @ params["words"].T, grown


PROGRAMS: dict[str, Callable[..., Any]] = {
    "copy": lambda x: x * 2,
    "map": lambda x: torch.tanh(x) * x + 1,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "column sum": lambda x: x.sum(0),
    "transpose": lambda x: x.T.contiguous(),
    "dot": lambda x, y: x @ y,
    "dot bf16": lambda x, y: x @ y,
    "bert": bert,
    "bert bf16": bert,
    "gpt2": gpt2,
    "gpt2 decode": gpt2_decode,
}
