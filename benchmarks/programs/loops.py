"""Loops inside one function, as JAX has them: of scalars, and greedy decoding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Program
from benchmarks.programs import gpt2
from benchmarks.programs.gpt2 import HEADS, WIDTH
from benchmarks.programs.kernels import no_weights, of_inputs

TOKENS, ROOM, LAYERS = 16, 64, 4


def count(ops: Any, n: Any) -> Any:
    """Run `n` iterations of a loop of scalars: generate random numbers, and count those that are divisible by seven."""

    def step(state: Any) -> Any:
        i, x, found = state
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        return i + 1, x, found + jnp.where(x % 7 == 0, 1, 0)

    return lax.while_loop(lambda state: state[0] < n, step, (jnp.int32(0), jnp.int32(1), jnp.int32(0)))[2]


def greedy(ops: Any, weights: Any, ids: Any, count: Any) -> Any:
    """Decode `count` tokens after ids (b,), one after the other, with caches of 64 positions. Return tokens (b, 64)."""
    (b,), size = ids.shape, WIDTH // HEADS
    steps = jnp.arange(ROOM)

    def block(layer: Any, x: Any, cache: Any, i: Any) -> Any:
        qkv = ops.dense(layer["qkv"], ops.layer_norm(layer["norm_1"], x, 1e-5)).reshape(b, 3, HEADS, size)
        cache = [lax.dynamic_update_slice(c, qkv[:, k, :, None], (0, 0, i, 0)) for k, c in enumerate(cache, 1)]
        scores = jnp.einsum("bhd,bhld->bhl", qkv[:, 0], cache[0]) * size**-0.5
        mixed = jnp.einsum("bhl,bhld->bhd", ops.softmax(jnp.where(steps <= i, scores, -1e9), axis=-1), cache[1])
        x = x + ops.dense(layer["output"], mixed.reshape(b, WIDTH))
        y = ops.dense(layer["up"], ops.layer_norm(layer["norm_2"], x, 1e-5))
        return x + ops.dense(layer["down"], ops.gelu(y, approximate=True)), cache

    def step(state: Any) -> Any:
        i, ids, out, caches = state
        x, grown = weights["words"][ids] + weights["positions"][i], []
        for layer, cache in zip(weights["layers"], caches, strict=True):
            x, cache = block(layer, x, cache, i)
            grown.append(cache)
        ids = jnp.argmax(gpt2.logits(ops, weights, x), axis=-1).astype(jnp.int32)
        return i + 1, ids, lax.dynamic_update_slice(out, ids[:, None], (0, i)), grown

    caches = [[jnp.zeros((b, HEADS, ROOM, size), weights["words"].dtype) for _ in "kv"] for _ in range(LAYERS)]
    out = jnp.zeros((b, ROOM), jnp.int32)
    return lax.while_loop(lambda state: state[0] < count, step, (jnp.int32(0), ids, out, caches))[2]


def token(b: int) -> list[np.ndarray]:
    return [np.random.default_rng(b).integers(0, gpt2.WORDS, b, np.int32), np.asarray(TOKENS, np.int32)]


PROGRAMS = [
    Program(
        "while_loop of scalars",
        "n iterations",
        of_inputs(count),
        no_weights,
        lambda n: [np.asarray(n, np.int32)],
        dims=("()",),
        shapes=[dict(n=100000)],
        stream={"n": (0, 1000, 1)},
    ),
    Program(
        "greedy decoding",
        f"{TOKENS} tokens of each of b sequences by {LAYERS} layers of GPT-2",
        greedy,
        lambda draw: gpt2.weights(draw, LAYERS),
        token,
        dims=("(b)", "()"),
        shapes=[dict(b=b) for b in (1, 4)],
        stream={"b": (1, 8, 1)},
    ),
]
