"""Loops, branches, lists of tensors, calls, and random numbers."""

import tensorflow as tf

from .case import cases

X = "f32[a, b]"


@tf.function
def inner(x):
    return tf.nn.relu(x) + 1.0


def counted(x):
    return tf.while_loop(lambda i, y: i < tf.shape(x)[0], lambda i, y: (i + 1, y * 0.5 + 1.0), (0, x))


def counted_down(x):
    """Run a loop of one iteration more than x has rows. Its gradient needs a value of each iteration."""
    return tf.while_loop(lambda i, y: i <= tf.shape(x)[0], lambda i, y: (i + 1, tf.sin(y) + y * y), (0, x * 0.5))[1]


def until(x):
    return tf.while_loop(lambda y: tf.reduce_sum(tf.abs(y)) > 1.0, lambda y: (y * 0.5,), (x,))


@tf.function
def with_autograph(x):
    total = tf.zeros([tf.shape(x)[1]])
    for row in x:
        if tf.reduce_sum(row) > 0.0:
            total += row
    return total


@tf.function
def listed(x):
    rows = tf.TensorArray(tf.float32, size=tf.shape(x)[0])
    for i in tf.range(tf.shape(x)[0]):
        rows = rows.write(i, x[i] * tf.cast(i, tf.float32))
    return rows.stack()


CASES = cases(
    "control",
    [
        ("while_loop", counted, X),
        ("while_loop until data say so", until, X),
        ("gradient of a loop", lambda x: tf.gradients(counted_down(x), x)[0], X),
        ("cond", lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x - 1.0), X),
        ("cond of a size", lambda x: tf.cond(tf.shape(x)[0] > 2, lambda: x * 2.0, lambda: x - 1.0), X),
        ("switch_case", lambda i, x: tf.switch_case(i, [lambda: x, lambda: -x, lambda: x * 3.0]), ("i32[]@0:3", X)),
        ("case", lambda x: tf.case([(tf.reduce_sum(x) > 1.0, lambda: x)], default=lambda: -x), X),
        ("function", inner, X),
        ("function in a function", lambda x: inner(inner(x) * 2.0), X),
        ("for over rows", with_autograph, X),
        ("TensorArray", listed, X),
        ("scan", lambda x: tf.scan(lambda a, r: a * 0.5 + r, x), X, ((3, 5), (6, 2), (1, 1), (2, 0))),
        ("scan from a start", lambda x: tf.scan(lambda a, r: a + r, x, tf.zeros([tf.shape(x)[1]])), X),
        ("map_fn", lambda x: tf.map_fn(lambda r: tf.reduce_sum(r) * r, x), X, ((3, 5), (6, 2), (1, 1), (2, 0))),
        ("foldl", lambda x: tf.foldl(lambda a, r: a + r * r, x), X, ((3, 5), (6, 2), (1, 1), (2, 0))),
        ("vectorized_map", lambda x: tf.vectorized_map(lambda r: tf.nn.softmax(r), x), X, ((3, 5), (6, 2), (1, 1))),
        (
            "nested loops",
            lambda x: tf.map_fn(lambda r: tf.foldl(lambda a, e: a + e, r), x),
            X,
            ((3, 5), (6, 2), (1, 1)),
        ),
        ("stateless_uniform", lambda x: tf.random.stateless_uniform(tf.shape(x), [1, 2]), X),
        (
            "stateless_uniform of halves",
            lambda x: tf.random.stateless_uniform(tf.shape(x), [1, 2], 0, 1, tf.float16),
            X,
        ),
        ("stateless_normal", lambda x: tf.random.stateless_normal(tf.shape(x), [3, 4]), X),
        ("stateless integers", lambda x: tf.random.stateless_uniform(tf.shape(x), [5, 6], 0, 10, tf.int32), X),
        ("gradient", lambda x: tf.gradients(tf.reduce_sum(tf.sin(x) * x), x)[0], X),
        ("gradient of a softmax", lambda x, y: tf.gradients(tf.nn.log_softmax(x + y) * x, [x, y]), (X, "f32[b]")),
        ("assertion", lambda x: (tf.debugging.assert_rank(x, 2), x + 1.0)[1], X),
        ("stop_gradient", lambda x: tf.stop_gradient(x) + tf.identity(x), X),
    ],
)
