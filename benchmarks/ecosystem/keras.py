"""Models of Keras 3, called without state: their variables are arguments."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
from keras import layers, ops  # noqa: E402

from benchmarks.ecosystem.program import LENGTHS, Made, Program, normal, tokens  # noqa: E402

IMAGES = (96, 128, 64, 97, 112, 80)


class Positions(layers.Layer):
    """A layer that adds an embedding of each position in the sequence, as keras_hub's PositionEmbedding."""

    def __init__(self, longest: int, width: int):
        super().__init__()
        self.table = self.add_weight(shape=(longest, width), initializer="glorot_uniform")

    def call(self, x):
        return x + ops.broadcast_to(self.table[: ops.shape(x)[1]], ops.shape(x))

    def compute_output_shape(self, shape):
        return shape


def stateless(model: keras.Model, inputs) -> Made:
    trainable = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def predict(trainable, others, *inputs):
        return model.stateless_call(trainable, others, inputs if len(inputs) > 1 else inputs[0], training=False)

    return predict, lambda n: (trainable, others, *inputs(n))


def bert() -> Made:
    """Make an encoder with a padding mask and layer norm behind each residual sum, as keras_hub's BertBackbone."""
    keras.utils.set_random_seed(0)
    ids, mask = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    x = Positions(512, 64)(layers.Embedding(100, 64)(ids))
    x = layers.Dropout(0.1)(layers.LayerNormalization(epsilon=1e-12)(x))
    attended = ops.cast(mask, "bool")[:, None, :]
    for _ in range(2):
        y = layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x, attention_mask=attended)
        x = layers.LayerNormalization(epsilon=1e-12)(x + layers.Dropout(0.1)(y))
        y = layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
        x = layers.LayerNormalization(epsilon=1e-12)(x + layers.Dropout(0.1)(y))
    pooled = layers.Dense(64, activation="tanh")(x[:, 0, :])
    return stateless(
        keras.Model((ids, mask), (x, pooled)),
        lambda n: (tokens(2, n, below=100), (jnp.arange(n) < jnp.asarray([[n], [max(n - 3, 1)]])).astype(jnp.int32)),
    )


def gpt2() -> Made:
    """Make a decoder with layer norm before attention, as keras_hub's GPT2Backbone. It returns logits of next words."""
    keras.utils.set_random_seed(1)
    ids = keras.Input((None,), dtype="int32")
    embedding = layers.Embedding(100, 64)
    x = Positions(512, 64)(embedding(ids))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.MultiHeadAttention(4, 16)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.Dense(64)(layers.Dense(256, activation=lambda x: keras.activations.gelu(x, True))(y))
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    logits = layers.Dense(100, use_bias=False)(x)
    return stateless(keras.Model(ids, logits), lambda n: (tokens(2, n, below=100),))


def image_model(kind, **parameters) -> Made:
    keras.utils.set_random_seed(2)
    model = kind(weights=None, include_top=False, pooling="avg", input_shape=(None, None, 3), **parameters)
    return stateless(model, lambda n: (normal(1, n, n, 3),))


PROGRAMS = [
    Program("keras BERT", bert, LENGTHS),
    Program("keras GPT-2", gpt2, LENGTHS),
    Program("keras ResNet50V2", lambda: image_model(keras.applications.ResNet50V2), IMAGES),
    Program("keras MobileNet", lambda: image_model(keras.applications.MobileNet, alpha=0.5), IMAGES),
    Program("keras EfficientNet", lambda: image_model(keras.applications.EfficientNetB0), IMAGES),
]
