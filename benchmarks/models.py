"""Models in plain JAX with random weights: BERT-base, GPT-2 small (prefill and decode) and an MLP.

Weights are a pytree argument, as users pass them. Every function computes in the dtype of its weights, so that the
float64 reference of a model is the model itself with float64 weights.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

LAYERS = 12
WIDTH = 768
HEADS = 12
BERT_WORDS = 30522
GPT2_WORDS = 50257


def dense(layer: Params, x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def layer_norm(layer: Params, x: jax.Array, epsilon: float) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * layer["scale"] + layer["bias"]


class Weights:
    """Random f32 weights of the size that trained ones have; biases and scales are not quite 0 and 1."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def matrix(self, *shape: int) -> jax.Array:
        return jnp.asarray(self._rng.standard_normal(shape, np.float32) * np.float32(0.02))

    def dense(self, inputs: int, outputs: int) -> Params:
        return {"w": self.matrix(inputs, outputs), "b": self.matrix(outputs)}

    def norm(self, width: int) -> Params:
        return {"scale": 1 + self.matrix(width), "bias": self.matrix(width)}


def bert_params(layers: int = LAYERS, seed: int = 0) -> Params:
    """The weights of BERT-base (Devlin et al. 2018, arXiv:1810.04805) without pooler and heads."""
    make = Weights(seed)

    def layer() -> Params:
        return {
            **{name: make.dense(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
            "output_norm": make.norm(WIDTH),
            "up": make.dense(WIDTH, 4 * WIDTH),
            "down": make.dense(4 * WIDTH, WIDTH),
            "down_norm": make.norm(WIDTH),
        }

    return {
        "words": make.matrix(BERT_WORDS, WIDTH),
        "positions": make.matrix(512, WIDTH),
        "type": make.matrix(WIDTH),
        "norm": make.norm(WIDTH),
        "layers": [layer() for _ in range(layers)],
    }


def bert(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Hidden states: ids and mask i32 (b, s) to (b, s, 768)."""
    dtype = params["words"].dtype
    b, s = ids.shape
    bias = (1 - mask[:, None, None, :].astype(dtype)) * -1e9
    positions = jnp.take(params["positions"], jnp.arange(s), axis=0, mode="clip")
    x = layer_norm(params["norm"], params["words"][ids] + positions + params["type"], 1e-12)
    for layer in params["layers"]:
        heads = (b, s, HEADS, WIDTH // HEADS)
        query, key, value = (dense(layer[name], x).reshape(heads) for name in ("query", "key", "value"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (WIDTH // HEADS) ** -0.5 + bias
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
        x = layer_norm(layer["output_norm"], x + dense(layer["output"], mixed.reshape(b, s, WIDTH)), 1e-12)
        hidden = jax.nn.gelu(dense(layer["up"], x), approximate=False)
        x = layer_norm(layer["down_norm"], x + dense(layer["down"], hidden), 1e-12)
    return x


def bert_inputs(b: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and a mask whose rows have different lengths, the first one the full one."""
    rng = np.random.default_rng(1000 * b + s)
    lengths = rng.integers(max(s // 2, 1), s + 1, b)
    lengths[0] = s
    ids = rng.integers(0, BERT_WORDS, (b, s)).astype(np.int32)
    return ids, (np.arange(s) < lengths[:, None]).astype(np.int32)


def gpt2_params(layers: int = LAYERS, seed: int = 1) -> Params:
    """The weights of GPT-2 small (Radford et al. 2019); the head is the transposed word embedding."""
    make = Weights(seed)

    def layer() -> Params:
        return {
            "norm_1": make.norm(WIDTH),
            "qkv": make.dense(WIDTH, 3 * WIDTH),
            "output": make.dense(WIDTH, WIDTH),
            "norm_2": make.norm(WIDTH),
            "up": make.dense(WIDTH, 4 * WIDTH),
            "down": make.dense(4 * WIDTH, WIDTH),
        }

    return {
        "words": make.matrix(GPT2_WORDS, WIDTH),
        "positions": make.matrix(1024, WIDTH),
        "layers": [layer() for _ in range(layers)],
        "norm": make.norm(WIDTH),
    }


def _gpt2_layer(layer: Params, x: jax.Array, past: tuple[jax.Array, jax.Array] | None) -> tuple[jax.Array, Any]:
    """One pre-norm block on x (b, s, d). Returns it, and keys and values (b, h, length, 64), past included."""
    b, s, _ = x.shape
    qkv = dense(layer["qkv"], layer_norm(layer["norm_1"], x, 1e-5))
    heads = qkv.reshape(b, s, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
    query, key, value = heads[0], heads[1], heads[2]
    if past is not None:
        key, value = (jnp.concatenate([old, new], 2) for old, new in zip(past, (key, value), strict=True))
    scores = query @ jnp.swapaxes(key, -1, -2) * (WIDTH // HEADS) ** -0.5
    if past is None:
        causal = jnp.arange(s)[:, None] >= jnp.arange(s)[None, :]
        scores = jnp.where(causal, scores, -1e9)
    mixed = (jax.nn.softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3).reshape(b, s, WIDTH)
    x = x + dense(layer["output"], mixed)
    hidden = jax.nn.gelu(dense(layer["up"], layer_norm(layer["norm_2"], x, 1e-5)), approximate=True)
    return x + dense(layer["down"], hidden), (key, value)


def gpt2_prefill(params: Params, ids: jax.Array) -> tuple[jax.Array, list]:
    """ids i32 (b, s) to the logits of the last position (b, 50257) and each layer's keys and values (b, 12, s, 64)."""
    x = params["words"][ids] + jnp.take(params["positions"], jnp.arange(ids.shape[1]), axis=0, mode="clip")
    caches = []
    for layer in params["layers"]:
        x, cache = _gpt2_layer(layer, x, None)
        caches.append(cache)
    return layer_norm(params["norm"], x[:, -1], 1e-5) @ params["words"].T, caches


def gpt2_decode(params: Params, ids: jax.Array, caches: list) -> tuple[jax.Array, list]:
    """One token a sequence: ids i32 (b,) and caches of length l to logits (b, 50257) and caches of length l + 1."""
    length = caches[0][0].shape[2]
    position = jnp.take(params["positions"], jnp.asarray(length)[None], axis=0, mode="clip")
    x = (params["words"][ids] + position)[:, None, :]
    grown = []
    for layer, cache in zip(params["layers"], caches, strict=True):
        x, cache = _gpt2_layer(layer, x, cache)
        grown.append(cache)
    return layer_norm(params["norm"], x[:, 0], 1e-5) @ params["words"].T, grown


def gpt2_inputs(b: int, s: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(1000 * b + s).integers(0, GPT2_WORDS, (b, s)).astype(np.int32),)


def gpt2_decode_inputs(b: int, length: int, layers: int = LAYERS) -> tuple[np.ndarray, list]:
    """A token a sequence, and caches of `length` random keys and values."""
    rng = np.random.default_rng(1000 * b + length)
    shape = (b, HEADS, length, WIDTH // HEADS)
    caches = [tuple(jnp.asarray(rng.standard_normal(shape, np.float32)) for _ in "kv") for _ in range(layers)]
    return rng.integers(0, GPT2_WORDS, (b,)).astype(np.int32), caches


def mlp_params(seed: int = 2) -> Params:
    make = Weights(seed)
    return {"layers": [make.dense(784, 512), make.dense(512, 512)], "out": make.dense(512, 10)}


def mlp(params: Params, x: jax.Array) -> jax.Array:
    """x (b, 784) to class probabilities (b, 10)."""
    for layer in params["layers"]:
        x = jax.nn.relu(dense(layer, x))
    return jax.nn.softmax(dense(params["out"], x), axis=-1)


def mlp_inputs(b: int) -> tuple[jax.Array]:
    return (jnp.asarray(np.random.default_rng(b).standard_normal((b, 784), np.float32)),)
