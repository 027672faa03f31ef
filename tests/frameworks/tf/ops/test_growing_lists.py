"""A `tf.TensorArray` that has no tensor at first and grows as it is written."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow


def growing(**settings):
    return tf.TensorArray(tf.float32, size=0, dynamic_size=True, **settings)


def columns(x):
    made = growing(element_shape=[None])
    for i in tf.range(tf.shape(x)[1]):
        made = made.write(i, x[:, i])
    return made.stack()


def rows_and_their_number(x):
    made = growing()
    for i in tf.range(tf.shape(x)[0]):
        made = made.write(i, x[i] * 2.0)
    return made.stack(), made.size()


def counted(x):
    made, i = growing(element_shape=[4]), 0
    for row in x:
        made = made.write(i, row)
        i += 1
    return made.stack()


def one_by_one(x):
    made = growing()
    made = made.write(0, x[0])
    made = made.write(2, x[0] * 2.0)
    return made.stack()


def while_loop(x):
    made, i = growing(), 0
    while i < 3:
        made = made.write(i, x[0])
        i += 1
    return made.concat()


def has_its_size(x):
    made = tf.TensorArray(tf.float32, size=tf.shape(x)[0], dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        made = made.write(i, x[i])
    return made.stack()


@pytest.mark.parametrize(
    "function",
    [columns, rows_and_their_number, counted, one_by_one, while_loop, has_its_size],
    ids=lambda f: f.__name__,
)
def test_lists_that_grow(function):
    compiled = hlo_disc.tensorflow.jit(function)
    for rows in (3, 1, 6):
        x = tf.random.stateless_normal([rows, 4], [1, 2])
        got, want = tf.nest.flatten(compiled(x)), tf.nest.flatten(tf.function(function)(x))
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(compiled.programs()) == 1


def in_a_branch(x):
    made = growing()
    for i in tf.range(tf.shape(x)[0]):
        if tf.reduce_sum(x[i]) > 0.0:
            made = made.write(made.size(), x[i])
    return made.stack()


def every_other(x):
    made = growing()
    for i in tf.range(tf.shape(x)[0]):
        made = made.write(i * 2, x[i])
    return made.stack()


def until(x):
    made = growing()
    for i in tf.range(tf.shape(x)[0]):
        made = made.write(i, x[i])
        if x[i, 0] > 10.0:
            break
    return made.stack()


def from_one(x):
    made = growing()
    for i in tf.range(1, tf.shape(x)[0]):
        made = made.write(i, x[i])
    return made.stack()


@pytest.mark.parametrize("function", [in_a_branch, every_other, until, from_one], ids=lambda f: f.__name__)
def test_lists_whose_length_is_not_known_are_refused(function):
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"test_growing_lists.*give tf\.TensorArray its size"):
        hlo_disc.tensorflow.jit(function)(tf.ones([3, 4]))
