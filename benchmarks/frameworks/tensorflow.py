"""The ops in TensorFlow, as its users and Keras's layers call them. Sizes are numbers where they are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import concat as concatenate  # noqa: F401
from tensorflow import cumsum, reshape, sigmoid, sort, sqrt, tanh, transpose, where  # noqa: F401
from tensorflow import gather as take  # noqa: F401
from tensorflow import reduce_sum as total  # noqa: F401
from tensorflow.nn import relu, relu6, silu, softmax  # noqa: F401

from benchmarks import tree

DTYPES = {"f32": tf.float32, "bf16": tf.bfloat16, "f64": tf.float64}


def load(weights: Any, dtype: str, images: bool = False) -> Any:
    return tree.mapped(lambda x: array(x, dtype, images), weights)


def array(x: np.ndarray, dtype: str, images: bool = False) -> tf.Tensor:
    return tf.cast(x, DTYPES[dtype]) if x.dtype == np.float32 else tf.constant(x)


def numpy(x: tf.Tensor, images: bool = False) -> np.ndarray:
    return (tf.cast(x, tf.float64) if x.dtype.is_floating else x).numpy()


def cast(x: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, like.dtype)


def shape(x: tf.Tensor) -> Any:
    if x.shape.is_fully_defined():
        return tuple(x.shape)
    sizes = tf.shape(x)
    return tuple(sizes[axis] if size is None else size for axis, size in enumerate(x.shape))


def argmax(x: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.argmax(x, axis, tf.int32)


def row(table: tf.Tensor, index: Any) -> tf.Tensor:
    return table[index : index + 1]


def split(x: tf.Tensor, count: int) -> list[tf.Tensor]:
    return tf.split(x, count, axis=-1)


def dense(layer: Any, x: tf.Tensor) -> tf.Tensor:
    return linear(layer["w"], x) + layer["b"]


def unembed(table: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, table, transpose_b=True)


def linear(w: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute one product, as Keras's layer does: tf.matmul would compute one for each x of the batch."""
    return tf.matmul(x, w) if x.shape.rank == 2 else tf.tensordot(x, w, 1)


def layer_norm(layer: Any, x: tf.Tensor, epsilon: float) -> tf.Tensor:
    average, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, average, variance, layer["bias"], layer["scale"], epsilon)


def rms_norm(scale: tf.Tensor, x: tf.Tensor, epsilon: float) -> tf.Tensor:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + epsilon) * scale


def group_norm(layer: Any, x: tf.Tensor, groups: int, epsilon: float) -> tf.Tensor:
    b, h, w, c = shape(x)
    parts = tf.reshape(x, (b, h, w, groups, c // groups))
    average, variance = tf.nn.moments(parts, [1, 2, 4], keepdims=True)
    scale, bias = (tf.reshape(layer[name], (groups, c // groups)) for name in ("scale", "bias"))
    return tf.reshape(tf.nn.batch_normalization(parts, average, variance, bias, scale, epsilon), (b, h, w, c))


def gelu(x: tf.Tensor, approximate: bool) -> tf.Tensor:
    return tf.nn.gelu(x, approximate)


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, bias: tf.Tensor | None = None, causal: bool = False
) -> tf.Tensor:
    """Compute attention. Heads of queries that share keys are rows of one product."""
    b, h, s, d = shape(query)
    g, t = shape(key)[1:3]
    rows_of_group = (b, g, h // g * s, -1)
    scores = tf.matmul(tf.reshape(query, rows_of_group), key, transpose_b=True) * d**-0.5
    scores = tf.reshape(scores, (b, h, s, t))
    if bias is not None:
        scores += bias
    if causal:
        scores = tf.where(tf.range(s)[:, None] >= tf.range(t), scores, scores.dtype.min)
    mixed = tf.matmul(tf.reshape(softmax(scores), rows_of_group), value)
    return tf.reshape(mixed, (b, h, s, d))


def conv(layer: Any, x: tf.Tensor, stride: int = 1, groups: int = 1) -> tf.Tensor:
    kernel = layer["kernel"]
    pads = [(0, 0), *[(kernel.shape[0] // 2,) * 2] * 2, (0, 0)]
    if groups > 1 and kernel.shape[2] == 1:
        kernel = tf.reshape(kernel, (*kernel.shape[:2], -1, 1))
        x = tf.nn.depthwise_conv2d(x, kernel, (1, stride, stride, 1), pads)
    else:
        x = tf.nn.conv2d(x, kernel, stride, pads)
    if "mean" not in layer:
        return x + layer["bias"]
    return tf.nn.batch_normalization(x, layer["mean"], layer["variance"], layer["bias"], layer["scale"], 1e-5)


def max_pool(x: tf.Tensor, size: int, stride: int) -> tf.Tensor:
    """Pad before the pool: XLA has no padded pools."""
    if size % 2:
        pad = (size // 2, size // 2)
        x = tf.pad(x, [(0, 0), pad, pad, (0, 0)], constant_values=-np.inf)
    return tf.nn.max_pool2d(x, size, stride, "VALID")


def average_pool(x: tf.Tensor, size: int) -> tf.Tensor:
    return tf.nn.avg_pool2d(x, size, size, "VALID")


def image_mean(x: tf.Tensor, keep: bool = False) -> tf.Tensor:
    return tf.reduce_mean(x, (1, 2), keepdims=keep)


def channels(*images: tf.Tensor) -> tf.Tensor:
    return tf.concat(images, -1)


def double(x: tf.Tensor) -> tf.Tensor:
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)


def _scan(cell: Any, states: tuple[tf.Tensor, ...], xs: tf.Tensor) -> Any:
    """Return the first state of all steps, then each state of the last step: the loop of Keras's recurrent layers."""
    steps = shape(xs)[0]
    inputs = tf.TensorArray(xs.dtype, steps).unstack(xs)
    outputs = tf.TensorArray(xs.dtype, steps, element_shape=states[0].shape)

    def step(time: tf.Tensor, outputs: tf.TensorArray, *states: tf.Tensor) -> Any:
        states = cell(inputs.read(time), *states)
        return time + 1, outputs.write(time, states[0]), *states

    started = (tf.constant(0), outputs, *states)
    _, outputs, *states = tf.while_loop(lambda time, *_: time < steps, step, started, maximum_iterations=steps)
    return outputs.stack(), *states


def lstm(layer: Any, xs: tf.Tensor) -> Any:
    def cell(x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        i, f, g, o = split(linear(layer["input"]["w"], x) + linear(layer["hidden"]["w"], h) + layer["bias"], 4)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(c), c

    zeros = tf.zeros((shape(xs)[1], shape(layer["bias"])[0] // 4), xs.dtype)
    return _scan(cell, (zeros, zeros), xs)


def gru(layer: Any, xs: tf.Tensor) -> Any:
    def cell(x: tf.Tensor, h: tf.Tensor) -> Any:
        from_input = split(linear(layer["input"]["w"], x) + layer["input_bias"], 3)
        from_hidden = split(linear(layer["hidden"]["w"], h) + layer["hidden_bias"], 3)
        reset, update = (sigmoid(a + b) for a, b in zip(from_input[:2], from_hidden[:2], strict=True))
        new = tanh(from_input[2] + reset * from_hidden[2])
        return ((1 - update) * new + update * h,)

    zeros = tf.zeros((shape(xs)[1], shape(layer["hidden_bias"])[0] // 3), xs.dtype)
    return _scan(cell, (zeros,), xs)


def embedding_bag(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.gather(table, ids), 1)


def segment_sum(values: tf.Tensor, ids: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_sum(values, ids, shape(like)[0])


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def value_and_grad(loss: Any, weights: Any) -> Any:
    """Return the loss and its gradients. Gradients of tables are dense, too."""
    with tf.GradientTape() as tape:
        tape.watch(tree.leaves(weights))
        value = loss(weights)
    return value, tree.mapped(tf.convert_to_tensor, tape.gradient(value, weights))
