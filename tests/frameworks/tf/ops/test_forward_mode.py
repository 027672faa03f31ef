"""Derivatives forward (`tf.autodiff.ForwardAccumulator`) and second ones, inside of a compiled function."""

import depth
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

FUNCTIONS = {
    "product": lambda x: tf.sin(x) * x,
    "rows": lambda x: x * x[:1],
    "bias": lambda x: x + x[0],
    "scalar": lambda x: x * tf.reduce_sum(x),
    "norm": lambda x: x / tf.reduce_sum(x * x, 1, keepdims=True),
    "matmul": lambda x: x @ tf.transpose(x),
    "softmax": tf.nn.softmax,
    "where": lambda x: tf.where(x > 0, x, x[:1]),
    "maximum": lambda x: tf.maximum(x, x[:1]),
    "difference": lambda x: tf.math.squared_difference(x, x[:1]),
    "quotient": lambda x: x / (2.0 + x[:, :1] ** 2),
    "power": lambda x: tf.pow(tf.abs(x) + 0.1, x[:1]),
    "mean": lambda x: tf.reduce_mean(tf.exp(x), 0),
    "broadcast": lambda x: tf.broadcast_to(x[:1], tf.shape(x)) * x,
    "clip": lambda x: tf.clip_by_value(x, x[:1] - 1.0, x[:1] + 1.0),
    "einsum": lambda x: tf.einsum("ij,kj->ik", x, x),
}


def forward(function, x):
    with tf.autodiff.ForwardAccumulator(x, tf.cos(x)) as accumulator:
        y = function(x)
    return y, accumulator.jvp(y)


def slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(function(x) ** 2)
    return tape.gradient(loss, x)


def forward_over_reverse(function, x):
    with tf.autodiff.ForwardAccumulator(x, tf.cos(x)) as accumulator:
        gradient = slope(function, x)
    return accumulator.jvp(gradient)


def twice(function, x):
    return slope(lambda x: slope(function, x), x)


@depth.sampled(3)
@pytest.mark.parametrize("derive", [forward, forward_over_reverse, twice], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_inside(name, derive):
    compiled = hlo_disc.tensorflow.jit(lambda x: derive(FUNCTIONS[name], x))
    for shape in ((4, 3), (1, 3), (1, 1)):
        x = tf.random.stateless_normal(shape, [1, 2])
        want = tf.function(lambda x: derive(FUNCTIONS[name], x))(x)
        for a, b in zip(tf.nest.flatten(compiled(x)), tf.nest.flatten(want), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert len(compiled.programs()) == 1
