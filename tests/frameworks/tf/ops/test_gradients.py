"""Gradients of ops: the backward function is imported with unknown sizes too."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

X = tf.constant(np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32))
IMAGE = tf.constant(np.random.default_rng(1).normal(size=(2, 6, 6, 3)).astype(np.float32))
KERNEL = tf.constant(np.random.default_rng(2).normal(size=(3, 3, 3, 4)).astype(np.float32))


def definite(x):
    return x @ tf.transpose(x) + 4.0 * tf.eye(tf.shape(x)[0])


def enlarged(x):
    shape = tf.shape(x)
    return tf.nn.conv2d_transpose(x, tf.transpose(KERNEL, [0, 1, 3, 2]), [shape[0], shape[1] * 2, shape[2] * 2, 4], 2)


OF_MATRICES = {
    "gather": lambda x: tf.gather(x, [0, 2, 2]) * x[:3],
    "slice": lambda x: x[1:, ::2] * 2.0,
    "slice from the end": lambda x: x[::-1, -3:] * 2.0,
    "concat": lambda x: tf.concat([x, x * x], 1),
    "stack": lambda x: tf.stack([x, x * x], 1),
    "split": lambda x: tf.split(x, 2, 1)[0],
    "sort": lambda x: tf.sort(x) * tf.range(8.0),
    "top_k": lambda x: tf.math.top_k(x, 3)[0],
    "cumsum": lambda x: tf.cumsum(x, 1),
    "cumprod": lambda x: tf.math.cumprod(x, 1),
    "reduce_max": lambda x: tf.reduce_max(x, 1),
    "reduce_prod": lambda x: tf.reduce_prod(x, 1),
    "reduce_std": lambda x: tf.math.reduce_std(x, 1),
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "cholesky": lambda x: tf.linalg.cholesky(definite(x)),
    "inv": lambda x: tf.linalg.inv(definite(x)),
    "slogdet": lambda x: tf.linalg.slogdet(definite(x))[1],
    "einsum": lambda x: tf.einsum("ij,kj->ik", x, x),
    "pad": lambda x: tf.pad(x, [[1, 1], [0, 2]]),
    "pad reflected": lambda x: tf.pad(x, [[1, 1], [0, 2]], "REFLECT"),
    "tile": lambda x: tf.tile(x, [2, 1]),
    "roll": lambda x: tf.roll(x, 1, 0),
    "reshape": lambda x: tf.reshape(x, [-1, 2]),
    "segments": lambda x: tf.math.unsorted_segment_sum(x, [0, 1, 0, 1], 2),
    "scatter": lambda x: tf.tensor_scatter_nd_update(x, [[0], [2]], x[:2] * 2.0),
    "rfft": lambda x: tf.abs(tf.signal.rfft(x)),
    "activations": lambda x: tf.nn.gelu(x) + tf.nn.elu(x) + tf.nn.selu(x) + tf.nn.softplus(x) + tf.nn.leaky_relu(x),
    "cross entropy": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2, 3], x),
}
OF_IMAGES = {
    "conv2d": lambda x: tf.nn.conv2d(x, KERNEL, 2, "SAME"),
    "conv2d_transpose": enlarged,
    "depthwise_conv2d": lambda x: tf.nn.depthwise_conv2d(x, KERNEL, [1] * 4, "SAME"),
    "max_pool2d": lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
    "avg_pool2d": lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "resize": lambda x: tf.image.resize(x, [3, 9]),
    "resize nearest": lambda x: tf.image.resize(x, [9, 4], "nearest"),
    "fused batch norm": lambda x: tf.compat.v1.nn.fused_batch_norm(x, tf.ones(3), tf.zeros(3))[0],
}
ROWS = [*((name, f, X) for name, f in OF_MATRICES.items()), *((name, f, IMAGE) for name, f in OF_IMAGES.items())]


@pytest.mark.parametrize(("name", "function", "x"), ROWS, ids=[name for name, _, _ in ROWS])
def test_gradient(name, function, x):
    def gradient(f):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(f(x) ** 2)
        return np.asarray(tf.convert_to_tensor(tape.gradient(loss, x)))

    want = gradient(function)
    got = gradient(hlo_disc.tensorflow.jit(function))
    np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, np.abs(want).max()))


def test_an_op_without_a_gradient_of_ours_is_named():
    kernel = tf.ones([2, 2, IMAGE.shape[3]])
    f = hlo_disc.tensorflow.jit(lambda x: tf.nn.dilation2d(x, kernel, [1] * 4, "SAME", "NHWC", [1] * 4))
    with tf.GradientTape() as tape:
        tape.watch(IMAGE)
        y = f(IMAGE)
    with pytest.raises(hlo_disc.UnsupportedOpError, match="the gradient of .*tf.Dilation2DBackpropInput"):
        tape.gradient(y, IMAGE)


def test_gradients_of_a_convolution_of_groups():
    """TensorFlow's own kernels have them with oneDNN alone; XLA has them everywhere."""
    kernel = KERNEL[:, :, :2]

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            total = tf.reduce_sum(tf.nn.conv2d(x, kernel, [1, 2], "SAME") ** 2)
        return tape.gradient(total, [x, kernel])

    compiled = hlo_disc.tensorflow.jit(function)
    for sizes in ((2, 7, 6), (1, 4, 4), (3, 5, 8)):
        x = tf.constant(np.random.default_rng(5).normal(size=(*sizes, 4)).astype(np.float32))
        for got, want in zip(compiled(x), tf.function(function, jit_compile=True)(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
