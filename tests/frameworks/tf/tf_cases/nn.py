"""tf.nn."""

import numpy as np
import tensorflow as tf

from .case import cases

X = "f32[a, b]"
IMAGE = "f32[a, b, c, 3]"
IMAGES = ((2, 7, 6), (3, 5, 8), (1, 4, 4), (0, 5, 6), (2, 9, 5))
KERNEL = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype(np.float32))
FLAT = tf.constant(np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32))
VOLUME = tf.constant(np.random.default_rng(2).normal(size=(2, 2, 2, 3, 4)).astype(np.float32))

ACTIVATIONS = [
    (name, getattr(tf.nn, name), X)
    for name in "relu relu6 elu selu leaky_relu gelu silu softplus softsign softmax log_softmax crelu".split()
]


def moved(x):
    mean, variance = tf.nn.moments(x, [0, 1])
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)


def fused(training):
    def function(x):
        line = tf.range(1.0, 4.0)
        made = tf.compat.v1.nn.fused_batch_norm(x, line, line, line, line * 2, is_training=training)
        return made[0]

    return function


def norm_slopes(gradient, forward):
    """An older op for the gradient of a norm by a batch."""

    def function(x):
        line = tf.range(1.0, 4.0)
        _, _, _, mean, variance = forward(x=x, scale=line, offset=line, mean=[], variance=[])[:5]
        return gradient(y_backprop=tf.sin(x), x=x, scale=line, reserve_space_1=mean, reserve_space_2=variance)[:3]

    return function


def lrn_slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.nn.local_response_normalization(x, 2, 0.5, 0.7, 0.6) ** 2)
    return tape.gradient(total, x)


def in_another_format(x):
    shape = tf.raw_ops.DataFormatVecPermute(x=tf.shape(x))
    rows = tf.raw_ops.DataFormatVecPermute(
        x=tf.reshape(tf.cast(x[0, :2, :2, 0] * 9, tf.int32), [2, 2]), src_format="NCHW", dst_format="NHWC"
    )
    axes = tf.raw_ops.DataFormatDimMap(x=tf.concat([tf.range(-4, 4), tf.cast(x[0, :2, 0, 0], tf.int32)], 0))
    return tf.reshape(x, shape), rows, axes


CASES = cases(
    "nn",
    [
        ("lrn_grad", lrn_slope, IMAGE, IMAGES, 1e-4),
        *(
            (
                f"gradient by {gradient.__name__}",
                norm_slopes(gradient, forward),
                IMAGE,
                ((2, 7, 6), (3, 5, 8), (1, 4, 4)),
                1e-3,
            )
            for gradient, forward in (
                (tf.raw_ops.FusedBatchNormGrad, tf.raw_ops.FusedBatchNorm),
                (tf.raw_ops.FusedBatchNormGradV2, lambda **of: tf.raw_ops.FusedBatchNormV2(**of)),
            )
        ),
        ("another data format", in_another_format, "f32[a, b, c, 3]", ((2, 7, 6), (3, 5, 8), (1, 4, 4))),
        (
            "batch_to_space of a block",
            lambda x: tf.raw_ops.BatchToSpace(input=x, crops=[[0, 1], [1, 0]], block_size=2),
            "f32[a, b, c, 3]",
            ((4, 3, 2), (8, 2, 5), (4, 1, 1)),
        ),
        (
            "space_to_batch of a block",
            lambda x: tf.raw_ops.SpaceToBatch(input=x, paddings=[[0, 1], [1, 0]], block_size=2),
            "f32[a, b, c, 3]",
            ((4, 3, 3), (2, 1, 5), (1, 1, 1), (0, 3, 3)),
        ),
        (
            "conv of any rank",
            lambda x: tf.raw_ops.Conv(input=x, filter=KERNEL, strides=[1, 2, 1, 1], padding="SAME"),
            IMAGE,
            IMAGES,
            1e-4,
        ),
        *ACTIVATIONS,
        ("bias_add", lambda x: tf.nn.bias_add(x, tf.range(4.0)), "f32[a, b, 4]"),
        ("softmax over rows", lambda x: tf.nn.softmax(x, axis=0), X),
        ("log_softmax of large numbers", lambda x: tf.nn.log_softmax(x * 1000), X),
        (
            "softmax_cross_entropy_with_logits",
            lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
            (X, X),
        ),
        (
            "sparse_softmax_cross_entropy_with_logits",
            lambda y, x: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
            ("i32[a]@0:b", X),
            ((3, 5), (6, 2), (1, 1), (0, 3)),
        ),
        (
            "sigmoid_cross_entropy_with_logits",
            lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(y, x),
            (X, "f32[a, b]@0:1"),
        ),
        (
            "weighted_cross_entropy_with_logits",
            lambda x, y: tf.nn.weighted_cross_entropy_with_logits(y, x, 2.0),
            (X, "f32[a, b]@0:1"),
        ),
        ("l2_loss", tf.nn.l2_loss, X),
        ("moments", lambda x: tf.nn.moments(x, [1]), X),
        ("batch_normalization", moved, X),
        ("fused batch norm", fused(False), IMAGE, IMAGES),
        ("fused batch norm in training", fused(True), IMAGE, ((2, 7, 6), (3, 5, 8), (1, 4, 4))),
        ("conv2d same", lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"), IMAGE, IMAGES, 1e-4),
        ("conv2d valid", lambda x: tf.nn.conv2d(x, KERNEL, 1, "VALID"), IMAGE, IMAGES, 1e-4),
        ("conv2d strided", lambda x: tf.nn.conv2d(x, KERNEL, 2, "SAME"), IMAGE, IMAGES, 1e-4),
        ("conv2d dilated", lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME", dilations=2), IMAGE, IMAGES, 1e-4),
        ("conv2d padded", lambda x: tf.nn.conv2d(x, KERNEL, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), IMAGE, IMAGES, 1e-4),
        (
            "conv2d_transpose",
            lambda x: tf.nn.conv2d_transpose(
                x, tf.transpose(KERNEL, [0, 1, 3, 2]), [tf.shape(x)[0], tf.shape(x)[1] * 2, tf.shape(x)[2] * 2, 4], 2
            ),
            IMAGE,
            IMAGES,
            1e-4,
        ),
        ("conv1d", lambda x: tf.nn.conv1d(x, FLAT, 1, "SAME"), "f32[a, b, 4]", ((2, 7), (3, 4), (1, 1), (0, 5)), 1e-4),
        (
            "conv3d",
            lambda x: tf.nn.conv3d(x, VOLUME, [1] * 5, "SAME"),
            "f32[a, b, c, d, 3]",
            ((2, 3, 4, 3), (1, 2, 2, 2), (1, 5, 3, 4)),
            1e-4,
        ),
        ("depthwise_conv2d", lambda x: tf.nn.depthwise_conv2d(x, KERNEL, [1] * 4, "SAME"), IMAGE, IMAGES, 1e-4),
        (
            "separable_conv2d",
            lambda x: tf.nn.separable_conv2d(x, KERNEL[..., :1], KERNEL[:1, :1], [1] * 4, "SAME"),
            IMAGE,
            IMAGES,
            1e-4,
        ),
        ("max_pool2d", lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), IMAGE, IMAGES),
        ("max_pool2d same", lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), IMAGE, IMAGES),
        ("avg_pool2d", lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID"), IMAGE, IMAGES),
        ("avg_pool2d same", lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), IMAGE, IMAGES),
        (
            "avg_pool3d",
            lambda x: tf.nn.avg_pool3d(x, 2, 1, "SAME"),
            "f32[a, b, c, d, 3]",
            ((2, 3, 4, 3), (1, 2, 2, 2), (1, 5, 3, 4)),
        ),
        (
            "dilation2d",
            lambda x: tf.nn.dilation2d(x, KERNEL[..., 0], [1] * 4, "SAME", "NHWC", [1] * 4),
            IMAGE,
            IMAGES[:3],
        ),
        ("local_response_normalization", lambda x: tf.nn.local_response_normalization(x, 2), IMAGE, IMAGES),
        ("embedding_lookup", lambda i: tf.nn.embedding_lookup(KERNEL[0, 0], i), "i32[a, b]@0:3"),
        ("dropout without any", lambda x: tf.nn.dropout(x, 0.0), X),
        ("normalize_moments", lambda x: tf.nn.l2_normalize(x, axis=-1), X),
        ("depth_to_space", lambda x: tf.nn.depth_to_space(x, 2), "f32[a, b, c, 12]", IMAGES),
        ("space_to_depth", lambda x: tf.nn.space_to_depth(x, 2), IMAGE, ((2, 6, 4), (3, 2, 8), (1, 4, 4), (0, 4, 6))),
        (
            "space_to_batch",
            lambda x: tf.nn.space_to_batch(x, [2, 2], [[0, 0], [1, 1]]),
            IMAGE,
            ((2, 6, 4), (3, 2, 8), (1, 4, 4)),
        ),
        (
            "batch_to_space",
            lambda x: tf.batch_to_space(x, [2, 2], [[0, 0], [1, 0]]),
            IMAGE,
            ((4, 6, 4), (8, 2, 8), (4, 1, 1)),
        ),
        (
            "attention",
            lambda q, k: tf.nn.softmax(q @ tf.transpose(k, [0, 2, 1]) / 2.0) @ k,
            ("f32[a, b, 4]", "f32[a, c, 4]"),
            ((2, 3, 5), (1, 1, 1), (3, 4, 2), (0, 2, 2)),
            1e-4,
        ),
    ],
)
