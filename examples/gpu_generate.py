"""Greedy decoding with a cache that grows, for batches that change, on a GPU where JAX has one.

    python examples/gpu_generate.py --tokens 16

A small model with random weights answers groups of prompts of any number and length. Sizes of batches and caches are
dims: one program reads all prompts and makes all tokens. It is compiled for the machine on which the weights lie.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc

WORDS, WIDTH, HEADS, LAYERS, LONGEST = 1000, 64, 4, 2, 256
# How many prompts come together, and how long they are.
GROUPS = ((1, 5), (4, 9), (2, 17), (1, 40))


def weights(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32) * np.float32(0.2))

    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = [{name: matrix(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    return {"words": matrix(WORDS, WIDTH), "places": matrix(LONGEST, WIDTH), "layers": layers}


def normalised(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def block(layer: dict, x: jax.Array, cache: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple]:
    """Return x (b, s, width) after a layer, and the cache with its keys and values. cache: (b, heads, l, ·) twice."""
    b, s, _ = x.shape
    heads = (normalised(x) @ layer["qkv"]).reshape(b, s, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
    key, value = (jnp.concatenate([old, new], 2) for old, new in zip(cache, heads[1:], strict=True))
    length = cache[0].shape[2]
    seen = jnp.arange(s)[:, None] + length >= jnp.arange(s + length)[None, :]
    scores = jnp.where(seen, heads[0] @ jnp.swapaxes(key, -1, -2) * (WIDTH // HEADS) ** -0.5, -1e9)
    mixed = (jax.nn.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(b, s, WIDTH)
    x = x + mixed @ layer["out"]
    return x + jax.nn.gelu(normalised(x) @ layer["up"]) @ layer["down"], (key, value)


def step(params: dict, ids: jax.Array, caches: list) -> tuple[jax.Array, list]:
    """Return the likeliest words after ids (b, s), and the caches with ids included."""
    length = caches[0][0].shape[2]
    x = params["words"][ids] + jnp.take(params["places"], jnp.arange(ids.shape[1]) + length, axis=0, mode="clip")
    grown = []
    for layer, cache in zip(params["layers"], caches, strict=True):
        x, cache = block(layer, x, cache)
        grown.append(cache)
    return jnp.argmax(normalised(x[:, -1]) @ params["words"].T, -1).astype(jnp.int32), grown


def generate(run, params: dict, prompts: np.ndarray, tokens: int) -> np.ndarray:
    """Return the `tokens` words that follow each of the prompts (b, s)."""
    empty = jnp.zeros((len(prompts), HEADS, 0, WIDTH // HEADS))
    word, caches = run(params, jnp.asarray(prompts), [(empty, empty)] * LAYERS)
    words = [word]
    for _ in range(tokens - 1):
        word, caches = run(params, word[:, None], caches)
        words.append(word)
    return np.stack(words, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=16)
    tokens = parser.parse_args().tokens
    platform = jax.devices()[0].platform
    print(f"on {jax.devices()[0]}" if platform != "cpu" else "there is no GPU, or JAX does not see it: on the CPU")
    run = hlo_disc.jit(step, dims={"ids": "(b, s)", "caches": "(b, _, l, _)"}, fallback=False)
    params, rng = weights(), np.random.default_rng(1)
    for count, length in GROUPS:
        prompts = rng.integers(0, WORDS, (count, length)).astype(np.int32)
        start = time.perf_counter()
        words = generate(run, params, prompts, tokens)
        seconds = time.perf_counter() - start
        print(f"{count} prompts of {length} words, {seconds:.2f} s: {' '.join(map(str, words[0]))}")
    print(f"compiled {run.stats().compilations} times, for {run.stats().calls} calls")


if __name__ == "__main__":
    main()
