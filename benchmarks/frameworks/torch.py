"""The ops in PyTorch: the functions behind its layers. Images are NCHW, channels last in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, argmax, concatenate, cumsum, reshape, sigmoid, sqrt, tanh, where  # noqa: F401
from torch import permute as transpose  # noqa: F401
from torch import sum as total  # noqa: F401
from torch.nn.functional import relu, relu6, silu, softmax  # noqa: F401

from benchmarks import tree
from benchmarks.program import DENSE, KERNEL

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


def load(weights: Any, dtype: str, images: bool = False) -> Any:
    """Lay out dense matrices as (outputs, inputs), and kernels as (outputs, inputs of a group, height, width)."""

    def laid_out(key: str, x: np.ndarray) -> Tensor:
        made = torch.from_numpy(np.ascontiguousarray(x.T) if key == DENSE else x)
        if key == KERNEL:
            made = made.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        return made.to(DTYPES[dtype]) if made.is_floating_point() else made

    return tree.with_keys(laid_out, weights)


def array(x: np.ndarray, dtype: str, images: bool = False) -> Tensor:
    made = torch.from_numpy(np.ascontiguousarray(x))
    made = made.permute(0, 3, 1, 2) if images and made.ndim == 4 else made
    return made.to(DTYPES[dtype]) if made.is_floating_point() else made


def numpy(x: Tensor, images: bool = False) -> np.ndarray:
    x = x.detach().permute(0, 2, 3, 1) if images and x.ndim == 4 else x.detach()
    return (x.double() if x.is_floating_point() else x).numpy()


def stored(key: str, weight: Tensor) -> np.ndarray:
    """Return a weight that `load` has laid out, in its original layout."""
    weight = weight.T if key == DENSE else weight.permute(2, 3, 1, 0) if key == KERNEL else weight
    return numpy(weight)


def cast(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def shape(x: Tensor) -> Any:
    return x.shape


def sort(x: Tensor) -> Tensor:
    return torch.sort(x)[0]


def take(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids, table)


def row(table: Tensor, index: Any) -> Tensor:
    return table[index : index + 1]


def split(x: Tensor, count: int) -> Any:
    return x.chunk(count, dim=-1)


def dense(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer["w"], layer["b"])


def unembed(table: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, table)


def linear(w: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, w)


def layer_norm(layer: Any, x: Tensor, epsilon: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], layer["scale"], layer["bias"], epsilon)


def rms_norm(scale: Tensor, x: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], scale, epsilon)


def group_norm(layer: Any, x: Tensor, groups: int, epsilon: float) -> Tensor:
    return F.group_norm(x, groups, layer["scale"], layer["bias"], epsilon)


def gelu(x: Tensor, approximate: bool) -> Tensor:
    return F.gelu(x, approximate="tanh" if approximate else "none")


def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
    grouped = bool(query.shape[1] != key.shape[1])
    return F.scaled_dot_product_attention(query, key, value, bias, is_causal=causal, enable_gqa=grouped)


def conv(layer: Any, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    bias = None if "mean" in layer else layer["bias"]
    x = F.conv2d(x, layer["kernel"], bias, stride, layer["kernel"].shape[-1] // 2, groups=groups)
    if bias is not None:
        return x
    return F.batch_norm(x, layer["mean"], layer["variance"], layer["scale"], layer["bias"])


def max_pool(x: Tensor, size: int, stride: int) -> Tensor:
    return F.max_pool2d(x, size, stride, size // 2 if size % 2 else 0)


def average_pool(x: Tensor, size: int) -> Tensor:
    return F.avg_pool2d(x, size)


def image_mean(x: Tensor, keep: bool = False) -> Tensor:
    return x.mean((2, 3), keepdim=keep)


def channels(*images: Tensor) -> Tensor:
    return torch.cat(images, 1)


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0)


def _recurrent(name: str, weights: list[Tensor], xs: Tensor, states: Any) -> Any:
    return getattr(torch, name)(xs, states, weights, True, 1, 0.0, False, False, False)


def lstm(layer: Any, xs: Tensor) -> Any:
    zeros = xs.new_zeros(1, xs.shape[1], layer["bias"].shape[0] // 4)
    weights = [layer["input"]["w"], layer["hidden"]["w"], layer["bias"], torch.zeros_like(layer["bias"])]
    outputs, h, c = _recurrent("lstm", weights, xs, [zeros, zeros])
    return outputs, h[0], c[0]


def gru(layer: Any, xs: Tensor) -> Any:
    zeros = xs.new_zeros(1, xs.shape[1], layer["hidden_bias"].shape[0] // 3)
    weights = [layer["input"]["w"], layer["hidden"]["w"], layer["input_bias"], layer["hidden_bias"]]
    outputs, h = _recurrent("gru", weights, xs, zeros)
    return outputs, h[0]


def embedding_bag(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding_bag(ids, table, mode="sum")


def segment_sum(values: Tensor, ids: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).index_add(0, ids, values)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten().long())


def value_and_grad(loss: Any, weights: Any) -> Any:
    grads, value = torch.func.grad_and_value(loss)(weights)
    return value, grads
