"""The ops in JAX: plain jax.numpy, as its users write."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import relu, relu6, sigmoid, silu, softmax  # noqa: F401
from jax.numpy import argmax, concatenate, cumsum, reshape, sort, sqrt, tanh, transpose, where  # noqa: F401
from jax.numpy import sum as total  # noqa: F401

from benchmarks import tree

DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f64": np.float64}


def load(weights: Any, dtype: str, images: bool = False) -> Any:
    return tree.mapped(lambda x: array(x, dtype, images), weights)


def array(x: np.ndarray, dtype: str, images: bool = False) -> Any:
    return jnp.asarray(x, DTYPES[dtype] if x.dtype == np.float32 else x.dtype)


def numpy(x: Any, images: bool = False) -> np.ndarray:
    return np.asarray(x, np.float64) if jnp.issubdtype(x.dtype, jnp.floating) else np.asarray(x)


def cast(x: jax.Array, like: jax.Array) -> jax.Array:
    return x.astype(like.dtype)


def shape(x: jax.Array) -> Any:
    return x.shape


def take(table: jax.Array, ids: jax.Array) -> jax.Array:
    return table[ids]


def row(table: jax.Array, index: Any) -> jax.Array:
    """Return one row of a table, as (1, …). Its index is a size."""
    return jnp.take(table, jnp.asarray(index)[None], axis=0, mode="clip")


def split(x: jax.Array, count: int) -> list[jax.Array]:
    """Return `count` equal parts of the last axis."""
    return jnp.split(x, count, axis=-1)


def dense(layer: Any, x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def unembed(table: jax.Array, x: jax.Array) -> jax.Array:
    """Return the products of x with each row of a table."""
    return x @ table.T


def linear(w: jax.Array, x: jax.Array) -> jax.Array:
    """Return a dense layer's result without bias."""
    return x @ w


def layer_norm(layer: Any, x: jax.Array, epsilon: float) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + epsilon) * layer["scale"] + layer["bias"]


def rms_norm(scale: jax.Array, x: jax.Array, epsilon: float) -> jax.Array:
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon) * scale


def group_norm(layer: Any, x: jax.Array, groups: int, epsilon: float) -> jax.Array:
    """Normalise groups of channels of images."""
    b, h, w, c = x.shape
    parts = x.reshape(b, h, w, groups, c // groups)
    centred = parts - parts.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(centred).mean((1, 2, 4), keepdims=True)
    return (centred * lax.rsqrt(variance + epsilon)).reshape(x.shape) * layer["scale"] + layer["bias"]


def gelu(x: jax.Array, approximate: bool) -> jax.Array:
    return jax.nn.gelu(x, approximate=approximate)


def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None = None, causal: bool = False
) -> jax.Array:
    """Return the attention (b, h, s, d) of queries of that shape to keys and values (b, g, t, d).

    h // g heads of queries share one head of keys. bias: added to the scores.
    """
    b, h, s, d = query.shape
    g, t = key.shape[1:3]
    query = query.reshape(b, g, h // g, s, d)
    scores = jnp.einsum("bghsd,bgtd->bghst", query, key) * d**-0.5
    if bias is not None:
        scores = scores + bias[:, :, None]
    if causal:
        scores = jnp.where(jnp.arange(s)[:, None] >= jnp.arange(t)[None, :], scores, -jnp.inf)
    return jnp.einsum("bghst,bgtd->bghsd", softmax(scores, axis=-1), value).reshape(b, h, s, d)


def conv(layer: Any, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    """Convolve, then apply batch norm, or add the bias of a layer that has no batch norm.

    The image is padded so that a stride of 1 keeps height and width.
    """
    size = layer["kernel"].shape[0]
    pads = [(size // 2, size // 2)] * 2
    x = lax.conv_general_dilated(
        x,
        layer["kernel"],
        (stride, stride),
        pads,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    if "mean" not in layer:
        return x + layer["bias"]
    return (x - layer["mean"]) * (lax.rsqrt(layer["variance"] + 1e-5) * layer["scale"]) + layer["bias"]


def max_pool(x: jax.Array, size: int, stride: int) -> jax.Array:
    pad = (size // 2, size // 2) if size % 2 else (0, 0)
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, ((0, 0), pad, pad, (0, 0)))


def average_pool(x: jax.Array, size: int) -> jax.Array:
    window = (1, size, size, 1)
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") * (1 / size**2)


def image_mean(x: jax.Array, keep: bool = False) -> jax.Array:
    """Return the mean over height and width."""
    return x.mean((1, 2), keepdims=keep)


def channels(*images: jax.Array) -> jax.Array:
    return jnp.concatenate(images, axis=-1)


def double(x: jax.Array) -> jax.Array:
    """Return images of twice the height and width, each pixel repeated."""
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def lstm(layer: Any, xs: jax.Array) -> Any:
    """Return all outputs (t, b, n) and the last state, (b, n) twice, of an LSTM on xs (t, b, i)."""

    def cell(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = split(linear(layer["input"]["w"], x) + linear(layer["hidden"]["w"], h) + layer["bias"], 4)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], layer["bias"].shape[0] // 4), xs.dtype)
    (h, c), outputs = lax.scan(cell, (zeros, zeros), xs)
    return outputs, h, c


def gru(layer: Any, xs: jax.Array) -> Any:
    """Return all outputs (t, b, n) of a GRU on xs (t, b, i), and the last one.

    The reset gate multiplies the product with the hidden weights (cuDNN's form).
    """

    def cell(h: jax.Array, x: jax.Array) -> Any:
        from_input = split(linear(layer["input"]["w"], x) + layer["input_bias"], 3)
        from_hidden = split(linear(layer["hidden"]["w"], h) + layer["hidden_bias"], 3)
        reset, update = (sigmoid(a + b) for a, b in zip(from_input[:2], from_hidden[:2], strict=True))
        new = tanh(from_input[2] + reset * from_hidden[2])
        h = (1 - update) * new + update * h
        return h, h

    zeros = jnp.zeros((xs.shape[1], layer["hidden_bias"].shape[0] // 3), xs.dtype)
    h, outputs = lax.scan(cell, zeros, xs)
    return outputs, h


def embedding_bag(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the sums (b, d) of the rows of a table that ids (b, n) name."""
    return table[ids].sum(1)


def segment_sum(values: jax.Array, ids: jax.Array, like: jax.Array) -> jax.Array:
    """Sum the rows of `values` that have the same id. Each id is a row of the result, which has the rows of `like`."""
    return jax.ops.segment_sum(values, ids, like.shape[0])


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy over all labels (…) with logits (…, n)."""
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def value_and_grad(loss: Any, weights: Any) -> Any:
    return jax.value_and_grad(loss)(weights)
