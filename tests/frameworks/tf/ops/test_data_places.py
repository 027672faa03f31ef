"""Parts of a tensor whose place is data, from either end: values, and gradients."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

PARTS = {
    "a row": lambda x, i: x[i],
    "a column": lambda x, i: x[:, i],
    "from the end": lambda x, i: x[-1 - i],
    "an element": lambda x, i: x[1, i],
    "the rest": lambda x, i: x[:, i:],
    "the last": lambda x, i: x[-i:],
    "up to": lambda x, i: x[..., : i + 1],
    "all but the last": lambda x, i: x[:, :-i],
    "from it to the last": lambda x, i: x[i:-1],
    "from the third but last": lambda x, i: x[-3:i],
    "the rest of every other": lambda x, i: x[::2, tf.newaxis, i],
    "of what is reversed": lambda x, i: x[::-1, i, tf.newaxis],
}


def same(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def some(*shape):
    return tf.random.stateless_normal(shape, [1, 2])


@pytest.mark.parametrize("name", PARTS)
def test_values(name):
    function = hlo_disc.tensorflow.jit(PARTS[name])
    called = 0
    for i in (0, 1, 2, -1, -2, -3, 5, -7):
        for shape in ((3, 4), (6, 3), (1, 1)):
            try:
                want = PARTS[name](some(*shape), tf.constant(i))
            except tf.errors.InvalidArgumentError:  # outside of the tensor, which programs do not look for
                continue
            same(function(some(*shape), tf.constant(i)), want)
            called += 1
    assert called >= 8
    assert len(function.programs()) == 1


def gradient(function):
    def of(x, i):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(function(x, i)))
        return tape.gradient(loss, x)

    return of


@pytest.mark.parametrize("name", PARTS)
def test_gradients(name):
    inner = hlo_disc.tensorflow.jit(gradient(PARTS[name]))
    outer = gradient(hlo_disc.tensorflow.jit(PARTS[name]))
    for i in (0, 1, -1, -2, 2):
        for shape in ((5, 4), (6, 3)):
            want = tf.function(gradient(PARTS[name]))(some(*shape), tf.constant(i))
            for of in (inner, outer):
                same(of(some(*shape), tf.constant(i)), want)
    assert len(inner.programs()) == 1


def test_a_window_has_the_size_that_it_is_written_with():
    """A window has the size that it is written with, also in a loop, where no size may depend on data.

    A window outside of the tensor is moved inside, as by XLA.
    """

    def window(x, i):
        return x[:, i : i + 2]

    for function in (window, gradient(window)):
        compiled = hlo_disc.tensorflow.jit(function)
        for i in (0, 1, 2, -3):
            same(compiled(some(3, 5), tf.constant(i)), tf.function(function)(some(3, 5), tf.constant(i)))
    same(hlo_disc.tensorflow.jit(window)(some(3, 5), tf.constant(4)), some(3, 5)[:, 3:])


def test_parts_whose_sizes_are_data():
    function = hlo_disc.tensorflow.jit(tf.split)
    for rows, sizes in ((9, [2, 3, 4]), (9, [9, 0, 0]), (3, [1, 1, 1])):
        given = some(rows, 4), tf.constant(sizes)
        tf.nest.map_structure(same, function(*given), tf.split(*given))
    for sizes in ([2, 3, 3], [5, -1, 5]):
        with pytest.raises(hlo_disc.ShapeError):
            function(some(9, 4), tf.constant(sizes))


def test_strides_at_data_are_refused():
    def function(x, i):
        return x[i::2]

    for compiled in (function, gradient(function)):
        with pytest.raises(
            hlo_disc.UnsupportedOpError, match="positions that depend on data with strides other than 1"
        ):
            hlo_disc.tensorflow.jit(compiled)(some(3, 4), tf.constant(1))
