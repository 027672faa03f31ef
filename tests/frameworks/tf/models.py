"""Keras models with unknown sizes, and what to call them with."""

import keras
import numpy as np
import tensorflow as tf

L = keras.layers


def mlp():
    x = keras.Input([20])
    return keras.Model(x, L.Dense(3)(L.Dropout(0.5)(L.Dense(50, activation="relu")(x))))


def bert(vocabulary=100, width=32, heads=4, layers=2):
    ids = keras.Input([None], dtype="int32")
    x = L.Embedding(vocabulary, width)(ids)
    for _ in range(layers):
        attended = L.MultiHeadAttention(heads, width // heads)(x, x)
        x = L.LayerNormalization()(L.Add()([x, attended]))
        hidden = L.Dense(width)(L.Dense(2 * width, activation="gelu")(x))
        x = L.LayerNormalization()(L.Add()([x, hidden]))
    return keras.Model(ids, L.Dense(10, activation="softmax")(L.GlobalAveragePooling1D()(x)))


def cnn():
    image = keras.Input([16, 16, 3])
    x = L.MaxPooling2D()(L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, padding="same")(image))))
    x = L.ReLU()(L.Conv2D(16, 3, strides=2, padding="same")(x))
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))


def lstm():
    x = keras.Input([None, 8])
    return keras.Model(x, L.Dense(3)(L.LSTM(16)(x)))


def gru():
    x = keras.Input([None, 8])
    return keras.Model(x, L.Bidirectional(L.GRU(8, return_sequences=True))(x))


def floats(*sizes):
    return tf.constant(np.random.default_rng(len(sizes)).normal(size=sizes).astype(np.float32))


def numbers(*sizes):
    return tf.constant(np.random.default_rng(0).integers(0, 100, sizes).astype(np.int32))


# A model, its signature, and its argument for a batch of a size.
MODELS = {
    "mlp": (mlp, tf.TensorSpec([None, 20]), lambda b: floats(b, 20)),
    "bert": (bert, tf.TensorSpec([None, None], tf.int32), lambda b: numbers(b, 3 * b)),
    "cnn": (cnn, tf.TensorSpec([None, 16, 16, 3]), lambda b: floats(b, 16, 16, 3)),
    "lstm": (lstm, tf.TensorSpec([None, None, 8]), lambda b: floats(b, 2 * b, 8)),
    "gru": (gru, tf.TensorSpec([None, None, 8]), lambda b: floats(b, 2 * b, 8)),
}
