"""Keras models: results at several sizes from one program, and gradients of all weights."""

import numpy as np
import pytest
import tensorflow as tf
from models import MODELS

import hlo_disc.tensorflow


@pytest.mark.parametrize("name", MODELS)
def test_model_and_its_gradients(name):
    make, signature, argument = MODELS[name]
    model = make()
    compiled = hlo_disc.tensorflow.compile(lambda x: model(x, training=False), [signature])
    for batch in (2, 5, 1):
        x = argument(batch)
        np.testing.assert_allclose(compiled(x), model(x, training=False), atol=1e-5)

    def gradients(function):
        with tf.GradientTape() as tape:
            y = function(x)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, model.trainable_variables)

    x = argument(3)
    pairs = zip(gradients(compiled), gradients(lambda x: model(x, training=False)), strict=True)
    for got, want in pairs:
        want = np.asarray(tf.convert_to_tensor(want))
        np.testing.assert_allclose(tf.convert_to_tensor(got), want, atol=1e-5 * max(1.0, np.abs(want).max()))


def test_a_model_that_wants_static_sizes_is_jitted():
    model = MODELS["mlp"][0]()
    jitted = hlo_disc.tensorflow.jit(model)
    for batch in (3, 1, 7):
        x = MODELS["mlp"][2](batch)
        np.testing.assert_allclose(jitted(x), model(x), atol=1e-5)
    assert len(jitted.programs()) == 1
