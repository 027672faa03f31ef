"""Programs with control flow: a recurrent network, a loop of scalars, and greedy decoding inside one function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.models import HEADS, WIDTH, Params, dense, gpt2_params, layer_norm

HIDDEN, STEPS = 256, 128
TURNS = 100_000
TOKENS, ROOM, DECODER_LAYERS = 16, 64, 4


def lstm_params(seed: int = 3) -> Params:
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32) * HIDDEN**-0.5)

    return {"input": matrix(HIDDEN, 4 * HIDDEN), "hidden": matrix(HIDDEN, 4 * HIDDEN), "bias": matrix(4 * HIDDEN)}


def lstm(params: Params, xs: jax.Array) -> Any:
    """An LSTM over xs (t, b, 256): the last state, and the outputs of all steps (t, b, 256)."""

    def cell(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ params["input"] + h @ params["hidden"] + params["bias"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], HIDDEN))
    return lax.scan(cell, (zeros, zeros), xs)


def lstm_inputs(b: int, t: int = STEPS) -> tuple[jax.Array]:
    return (jnp.asarray(np.random.default_rng(b).standard_normal((t, b, HIDDEN), np.float32)),)


def lstm_work(b: int, t: int = STEPS) -> tuple[float, float]:
    weights = 8 * HIDDEN * HIDDEN
    return 2.0 * t * b * weights, 4.0 * (weights + 2 * t * b * HIDDEN)


def count(n: jax.Array) -> jax.Array:
    """`n` turns of a loop of scalars: a generator of random numbers, and how many of them divide by seven."""

    def step(s: Any) -> Any:
        i, x, found = s
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        return i + 1, x, found + jnp.where(x % 7 == 0, 1, 0)

    return lax.while_loop(lambda s: s[0] < n, step, (jnp.int32(0), jnp.int32(1), jnp.int32(0)))[2]


def greedy_params() -> Params:
    return gpt2_params(DECODER_LAYERS)


def greedy(params: Params, ids: jax.Array, count: jax.Array) -> jax.Array:
    """Decode `count` tokens after ids (b,), one after the other, with caches of 64 positions: tokens (b, 64)."""
    b, size = ids.shape[0], WIDTH // HEADS
    steps = jnp.arange(ROOM)

    def layer(layer: Params, x: jax.Array, cache: Any, i: jax.Array) -> Any:
        qkv = dense(layer["qkv"], layer_norm(layer["norm_1"], x, 1e-5)).reshape(b, 3, HEADS, size)
        cache = [lax.dynamic_update_slice(c, qkv[:, k, :, None], (0, 0, i, 0)) for k, c in enumerate(cache, 1)]
        scores = jnp.einsum("bhd,bhld->bhl", qkv[:, 0], cache[0]) * size**-0.5
        weights = jax.nn.softmax(jnp.where(steps <= i, scores, -1e9), axis=-1)
        x = x + dense(layer["output"], jnp.einsum("bhl,bhld->bhd", weights, cache[1]).reshape(b, WIDTH))
        hidden = jax.nn.gelu(dense(layer["up"], layer_norm(layer["norm_2"], x, 1e-5)), approximate=True)
        return x + dense(layer["down"], hidden), cache

    def step(state: Any) -> Any:
        i, ids, out, caches = state
        x = params["words"][ids] + params["positions"][i]
        grown = []
        for weights, cache in zip(params["layers"], caches, strict=True):
            x, cache = layer(weights, x, cache, i)
            grown.append(cache)
        logits = layer_norm(params["norm"], x, 1e-5) @ params["words"].T
        ids = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return i + 1, ids, lax.dynamic_update_slice(out, ids[:, None], (0, i)), grown

    caches = [[jnp.zeros((b, HEADS, ROOM, size)) for _ in "kv"] for _ in params["layers"]]
    out = jnp.zeros((b, ROOM), jnp.int32)
    return lax.while_loop(lambda s: s[0] < count, step, (jnp.int32(0), ids, out, caches))[2]


def greedy_inputs(b: int, count: int = TOKENS) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(np.random.default_rng(b).integers(0, 50000, b).astype(np.int32)), jnp.int32(count)


def greedy_work(b: int, count: int = TOKENS) -> tuple[float, float]:
    weights = DECODER_LAYERS * 12 * WIDTH * WIDTH + WIDTH * 50257
    return 2.0 * count * b * weights, 4.0 * count * weights
