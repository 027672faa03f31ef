"""Train steps of Keras as one program: losses and weights of 30 steps are those of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

SHAPES = ((8, 16), (5, 9), (1, 7), (16, 12), (3, 5))
OPTIMIZERS = ["Adam", "SGD", "RMSprop", "Adafactor", "Ftrl"]


def images():
    return [
        keras.Input([None, None, 3]),
        keras.layers.Conv2D(8, 3, padding="same", use_bias=False),  # a bias has no gradient here but noise
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.3, seed=5),
        keras.layers.Dense(4),
    ]


def words():
    return [
        keras.Input([None], dtype="int32"),
        keras.layers.Embedding(20, 8),
        keras.layers.LSTM(6, return_sequences=True),
        keras.layers.LayerNormalization(),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.GaussianNoise(0.1, seed=3),
        keras.layers.Dense(4),
    ]


def model(layers, optimizer, **options):
    keras.utils.set_random_seed(3)
    made = keras.Sequential(layers())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    chosen = getattr(keras.optimizers, optimizer)(0.01, clipnorm=1.0, **options)
    made.compile(chosen, loss, metrics=["accuracy"], jit_compile=False)
    return made


def batches(layers):
    rng = np.random.default_rng(0)
    for batch, size in SHAPES * 6:
        if layers is images:
            x = rng.normal(size=(batch, size, size, 3)).astype(np.float32)
        else:
            x = rng.integers(0, 20, (batch, size)).astype(np.int32)
        yield x, rng.integers(0, 4, batch)


@pytest.mark.parametrize(
    ("layers", "optimizer"),
    [(images, name) for name in OPTIMIZERS] + [(words, "Adam")],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_losses_of_a_train_step(layers, optimizer):
    theirs, mine = model(layers, optimizer), model(layers, optimizer)
    mine.train_step = hlo_disc.tensorflow.jit(mine.train_step)
    for x, y in batches(layers):
        np.testing.assert_allclose(mine.train_on_batch(x, y), theirs.train_on_batch(x, y), rtol=2e-4, atol=1e-5)
    for a, b in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    assert len(mine.train_step.programs()) == 1
    assert mine.optimizer.iterations.numpy() == 30


def test_fit(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(37, 9, 9, 3)).astype(np.float32), rng.integers(0, 4, 37)
    options = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}  # of which the last batch has 5 rows
    theirs, mine = (model(images, "SGD", use_ema=True, ema_overwrite_frequency=4) for _ in range(2))
    mine.train_step = hlo_disc.tensorflow.jit(mine.train_step)
    wanted, found = theirs.fit(x, y, **options).history, mine.fit(x, y, **options).history
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4)
    predicted = mine.predict(x, verbose=0)
    np.testing.assert_allclose(predicted, theirs.predict(x, verbose=0), rtol=1e-3, atol=1e-4)
    mine.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), predicted, rtol=1e-5, atol=1e-6)


def test_gradients_outside_of_a_layer_in_training():
    """The layer's averages are assigned once, though the gradient's program computes forward again."""
    layers = [keras.layers.BatchNormalization() for _ in range(2)]
    x = tf.constant(np.random.default_rng(1).normal(size=(7, 3)), tf.float32)
    for layer in layers:
        layer.build(x.shape)
    own = hlo_disc.tensorflow.jit(lambda x: layers[0](x, training=True))
    found = []
    for call, layer in ((own, layers[0]), (lambda x: layers[1](x, training=True), layers[1])):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(call(x) ** 3)
        found.append([*tape.gradient(loss, [x, *layer.trainable_variables]), *layer.variables])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
