"""Sizes as numbers: those of `tf.shape` are i32 and wrap as integers of TensorFlow do, or i64 with `out_type`."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow
from hlo_disc.errors import ShapeError, SizeOverflowError

SIZES = (1, 5, 127, 128, 46340, 46341, 46342, 65536, 92681, 100000)


def numbers(x):
    d, wide = tf.shape(x)[0], tf.shape(x, out_type=tf.int64)[0]
    m = d * d
    return {
        "product": m,
        "floor": m // 2,
        "quotient": tf.truncatediv(m, 2),
        "floor of a sum": (m + 7) // 3,
        "remainder": m % 7,
        "truncated remainder": tf.truncatemod(m, 7),
        "largest": tf.maximum(m, 5),
        "smallest": tf.minimum(m, 5),
        "greater": m > 5,
        "chosen": tf.where(m > 5, 1.0, 2.0),
        "branch": tf.cond(m > 5, lambda: 1.0, lambda: 2.0),
        "negative": -m // 3,
        "square": tf.square(d) // 2,
        "power": d**2 // 2,
        "reshaped": tf.reshape(m, [1])[0] // 2,
        "filled": tf.fill([2], m)[1] // 2,
        "taken apart": tf.unstack(tf.stack([m, d]))[0] // 2,
        "product of a vector": tf.reduce_prod(tf.stack([d, d])) // 3,
        "wider": tf.cast(m, tf.int64),
        "narrower": tf.cast(d, tf.int8),
        "float": tf.cast(m, tf.float32),
        "true quotient": m / 2,
        "pairs": tf.cast(d * (d - 1) // 2, tf.float32),
        "wide": wide * wide // 2,
        "wide float": tf.cast(wide * (wide - 1) // 2, tf.float32),
    }


def test_as_tensorflow_computes_them():
    function = tf.function(numbers, input_signature=[tf.TensorSpec([None, 0], tf.float32)])
    compiled = hlo_disc.tensorflow.compile(function)
    for n in SIZES:
        x = tf.zeros((n, 0))
        got, want = compiled(x), function(x)
        for name in want:
            ours, theirs = np.asarray(got[name]), np.asarray(want[name])
            assert (ours.dtype, ours.item()) == (theirs.dtype, theirs.item()), (name, n)


def test_a_size_that_wrapped_is_refused():
    function = tf.function(
        lambda x: tf.range(tf.shape(x)[0] * tf.shape(x)[0] // 2**16),
        input_signature=[tf.TensorSpec([None, 0], tf.float32)],
    )
    compiled = hlo_disc.tensorflow.compile(function)
    for n in (5, 300, 46340):
        np.testing.assert_array_equal(compiled(tf.zeros((n, 0))), function(tf.zeros((n, 0))))
    with pytest.raises(ShapeError, match="in int32, which does not hold"):
        compiled(tf.zeros((46341, 0)))


@pytest.mark.parametrize("sizes", [tf.shape, tf.size], ids=["shape", "size"])
def test_sizes_that_an_i32_does_not_hold(sizes):
    """TensorFlow refuses 2^31 - 1 as well."""
    function = tf.function(
        lambda x, y: tf.reduce_max(sizes(tf.broadcast_to(y, [tf.shape(x)[0] // 3, 3]))) + tf.shape(x)[0] // 2,
        input_signature=[tf.TensorSpec([None, 0], tf.int8), tf.TensorSpec([], tf.int8)],
    )
    compiled = hlo_disc.tensorflow.compile(function)
    for n in (6, 46341):
        x, y = tf.zeros([n, 0], tf.int8), tf.constant(1, tf.int8)
        np.testing.assert_array_equal(compiled(x, y), function(x, y))
    x = tf.zeros([2**31, 0], tf.int8)
    with pytest.raises(tf.errors.InvalidArgumentError):
        function(x, y)
    with pytest.raises(SizeOverflowError, match="2147483648 for the size .*: int32 does not hold it"):
        compiled(x, y)
