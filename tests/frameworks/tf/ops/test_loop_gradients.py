"""Gradients of Python's loops as AutoGraph makes them, taken inside of a function and outside."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow


def some(*shape):
    return tf.random.stateless_normal(shape, [1, 2])


def rows(x):
    return tf.shape(x)[0]


def over(*limits):
    def function(x):
        for i in tf.range(*(n(x) if callable(n) else n for n in limits)):
            x = tf.sin(x) + tf.cast(i, tf.float32) * 0.1
        return x

    return function


def by_two(x):
    i = 0
    while i < rows(x):
        x = tf.sin(x) * 2.0
        i += 2
    return x


def limit_first(x):
    i = tf.constant(0)
    while rows(x) > i:
        x = tf.sin(x) * 2.0
        i = 1 + i
    return x


def down_to_zero(x):
    i = rows(x)
    while i >= 0:
        x = tf.sin(x) * 2.0
        i -= 1
    return x


def down_by_three(x):
    i = tf.shape(x, out_type=tf.int64)[0]
    while i > 1:
        x = tf.sin(x) * 2.0
        i -= 3
    return x


def two_counters(x):
    i, j = tf.constant(0), rows(x) + 3
    while i < j:
        x = tf.sin(x)
        i += 1
        j -= 1
    return x


def loop_in_a_loop(x):
    for _ in tf.range(3):
        for _ in tf.range(rows(x)):
            x = tf.sin(x)
    return x


def each_row(x):
    total = tf.zeros_like(x[0])
    for row in x:
        total = tf.sin(total) + row
    return total


def rows_by_number(x):
    h, w = tf.zeros([2, 4]), tf.ones([4, 4]) * 0.1
    for i in tf.range(rows(x)):
        h = tf.tanh(h @ w + x[i])
    return h


def written_rows(x):
    made = tf.TensorArray(tf.float32, rows(x))
    for i in tf.range(rows(x)):
        made = made.write(i, tf.sin(x[i]) * tf.cast(i, tf.float32))
    return made.stack()


def neighbours(x):
    total = tf.zeros([2])
    for i in tf.range(rows(x)):
        total += tf.sin(x[i, i % 3 : i % 3 + 2])
    return total


def never(x):
    for _ in tf.range(0):
        x = tf.sin(x)
    return x


LOOPS = {
    "a number": over(5),
    "rows": over(rows),
    "from one": over(1, rows),
    "steps of two": over(0, rows, 2),
    "down": over(rows, 0, -1),
    "down by two": over(7, rows, -2),
    **{
        f.__name__: f
        for f in (
            by_two, limit_first, down_to_zero, down_by_three, two_counters, loop_in_a_loop, each_row, rows_by_number,
            written_rows, neighbours, never,
        )
    },
}  # fmt: skip


def gradient(function):
    def of(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(loss, x)

    return of


def check(function, *shapes):
    inner, outer = hlo_disc.tensorflow.jit(gradient(function)), hlo_disc.tensorflow.jit(function)
    for shape in shapes:
        want = tf.function(gradient(function))(some(*shape))
        for got in (inner(some(*shape)), gradient(outer)(some(*shape))):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(inner.programs()) == len(outer.programs()) == 1


@pytest.mark.parametrize("name", LOOPS)
def test_gradients_of_loops_of_python(name):
    check(LOOPS[name], (3, 4), (1, 4), (6, 4))
