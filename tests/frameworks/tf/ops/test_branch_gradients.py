"""Gradients of branches, which keep tensors for them that other branches do not have."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

w = tf.Variable(tf.reshape(tf.range(16.0), [4, 4]) * 0.1)


def products(x):
    return tf.cond(
        tf.reduce_sum(x) > 0.0,
        lambda: tf.sin(x @ tf.transpose(x)),
        lambda: tf.exp(x * 0.5) @ tf.transpose(x),
    )


def one_keeps_nothing(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(tf.cos(x)), lambda: x)


def cases(x):
    branches = [lambda: tf.sin(tf.cos(x)), lambda: tf.tanh(x) * x, lambda: tf.exp(tf.sin(x))]
    return tf.switch_case(tf.cast(tf.reduce_sum(x) > 0.0, tf.int32) * 2, branches)


def nested(x):
    def inner():
        return tf.cond(x[0, 0] > 0.0, lambda: tf.sin(tf.cos(x)), lambda: x * tf.tanh(x))

    return tf.cond(tf.reduce_sum(x) > 0.0, inner, lambda: tf.exp(tf.sin(x)))


def sizes_choose(x):
    return tf.cond(tf.shape(x)[0] > 2, lambda: tf.sin(tf.cos(x)), lambda: tf.exp(tf.sin(x)))


def of_autograph(x):
    y = x
    if tf.reduce_sum(x) > 0.0:
        y = tf.sin(tf.cos(x)) * 2.0
    return y * x


def weights(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.tanh(x @ w), lambda: tf.nn.relu(tf.sin(x) @ w @ w))


def loop_in_a_branch(x):
    def turned():
        y = x
        for _ in tf.range(tf.shape(x)[0]):
            y = tf.sin(y)
        return y

    return tf.cond(tf.reduce_sum(x) > 0.0, turned, lambda: tf.cos(tf.cos(x)))


FUNCTIONS = [products, one_keeps_nothing, cases, nested, sizes_choose, of_autograph, weights, loop_in_a_branch]


def gradients(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(function(x) ** 2)
    return [g for g in tape.gradient(loss, [x, w]) if g is not None]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_of_branches(function):
    inner, outer = hlo_disc.tensorflow.jit(lambda x: gradients(function, x)), hlo_disc.tensorflow.jit(function)
    some = tf.random.stateless_normal([3, 4], [1, 2])
    for x in (some, -some, -tf.abs(some), tf.abs(some)[:1]):
        want = tf.function(lambda x: gradients(function, x))(x)
        for got in (inner(x), gradients(outer, x)):
            for a, b in zip(got, want, strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert len(inner.programs()) == len(outer.programs()) == 1


def test_second_derivatives_of_a_branch_are_refused():
    def twice(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(gradients(one_keeps_nothing, x)[0] ** 2)
        return tape.gradient(loss, x)

    with pytest.raises(hlo_disc.UnsupportedOpError, match="ZerosLike.*test_branch_gradients.*second derivatives of br"):
        hlo_disc.tensorflow.jit(twice)(tf.ones([2, 3]))


def test_a_branch_inside_of_a_loop_is_refused():
    def function(x):
        for _ in tf.range(3):
            x = one_keeps_nothing(x)
        return x

    with pytest.raises(hlo_disc.UnsupportedOpError, match="the gradient of a branch inside of a loop"):
        hlo_disc.tensorflow.jit(lambda x: gradients(function, x))(tf.ones([3, 4]))
