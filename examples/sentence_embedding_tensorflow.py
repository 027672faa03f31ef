"""The sentence embeddings of sentence_embedding.py with the model in TensorFlow, compiled by hlo_disc.

One compilation serves all batches, of one sentence and of many; the vectors are compared with those of the JAX model.

    python examples/sentence_embedding_tensorflow.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from minilm import EPSILON, HEADS, Embedder, Params, compare, load_params

import hlo_disc.tensorflow


class Embedding(tf.Module):
    """The model of minilm.py: ids and mask i32 (b, s) to f32 (b, 384), each row of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.params = tf.nest.map_structure(lambda x: tf.Variable(np.asarray(x)), load_params())

    def __call__(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        params = self.params
        weight = tf.cast(mask, tf.float32)
        bias = (1.0 - weight[:, None, None, :]) * tf.float32.min
        positions = params["positions"][: tf.shape(ids)[1]]
        x = layer_norm(params["norm"], tf.gather(params["words"], ids) + positions + params["type"])
        for layer in params["layers"]:
            x = layer_norm(layer["output_norm"], x + attention(layer, x, bias))
            hidden = tf.nn.gelu(dense(layer["up"], x), approximate=False)
            x = layer_norm(layer["down_norm"], x + dense(layer["down"], hidden))
        pooled = tf.reduce_sum(x * weight[:, :, None], 1) / tf.maximum(tf.reduce_sum(weight, 1, keepdims=True), 1e-9)
        return pooled / tf.norm(pooled, axis=-1, keepdims=True)


def dense(layer: Params, x: tf.Tensor) -> tf.Tensor:
    return x @ layer["w"] + layer["b"]


def layer_norm(layer: Params, x: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, layer["bias"], layer["scale"], EPSILON)


def attention(layer: Params, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Compute multi-head self-attention. x: (b, s, d). bias: (b, 1, 1, s), 0 where a key may be seen, else very low."""
    b, s, d = *tf.unstack(tf.shape(x)[:2]), x.shape[2]
    query, key, value = (tf.reshape(dense(layer[k], x), [b, s, HEADS, d // HEADS]) for k in ("query", "key", "value"))
    scores = tf.einsum("bqhd,bkhd->bhqk", query, key) / np.float32(np.sqrt(d // HEADS)) + bias
    mixed = tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores), value)
    return dense(layer["output"], tf.reshape(mixed, [b, s, d]))


def main() -> None:
    model = Embedding()
    compiled = hlo_disc.tensorflow.jit(model)

    def of_arrays(embed: Any) -> Embedder:
        return lambda ids, mask: embed(tf.constant(ids), tf.constant(mask)).numpy()

    compare(of_arrays(compiled), of_arrays(model), "eager mode")
    print(f"{len(compiled.programs())} program")


if __name__ == "__main__":
    main()
