"""Pools, their gradients, and gradients of these."""

import numpy as np
import tensorflow as tf

from .case import cases

raw = tf.raw_ops
IMAGE, VOLUME = "f32[a, b, c, 3]", "f32[a, b, c, d, 2]"
IMAGES, VOLUMES = ((2, 7, 6), (1, 4, 4), (3, 5, 8), (0, 5, 6)), ((2, 5, 4, 6), (1, 3, 2, 2), (2, 2, 7, 3))
WINDOW = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1]}


def halves(x):
    """Numbers of which many are equal."""
    return tf.round(x * 2) / 2


def taken(op, padding):
    def function(x):
        x = halves(x)
        y = raw.MaxPool(input=x, padding=padding, **WINDOW)
        return op(orig_input=x, orig_output=y, grad=tf.sin(x), padding=padding, **WINDOW)

    return function


def slope(pool):
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(pool(x) ** 2)
        return tape.gradient(total, x)

    return function


def given_back(x):
    y = raw.MaxPoolV2(input=x, padding="SAME", **WINDOW)
    return y, raw.MaxPoolGradV2(orig_input=x, orig_output=y, grad=y * y, padding="SAME", **WINDOW)


CASES = cases(
    "pools",
    [
        ("windows as operands", given_back, IMAGE, IMAGES),
        *(
            (f"gradients of gradients, {padding}", taken(op, padding), IMAGE, IMAGES)
            for op, padding in ((raw.MaxPoolGradGrad, "SAME"), (raw.MaxPoolGradGradV2, "VALID"))
        ),
        (
            "places in an image",
            lambda x: tf.nn.max_pool_with_argmax(halves(x), 3, 2, "SAME"),
            IMAGE,
            ((2, 7, 6), (1, 4, 4), (3, 5, 8)),
        ),
        (
            "places in all images",
            lambda x: tf.nn.max_pool_with_argmax(
                halves(x), 2, 2, "VALID", output_dtype=tf.int32, include_batch_in_index=True
            ),
            IMAGE,
            ((2, 7, 6), (1, 4, 4), (3, 5, 8)),
        ),
        (
            "places beside what is no number",
            lambda x: tf.nn.max_pool_with_argmax(tf.where(halves(x) == 0.5, np.nan, halves(x)), 2, 2, "VALID"),
            IMAGE,
            ((2, 7, 6), (1, 4, 4), (3, 5, 8), (8, 2, 2)),
        ),
        *(
            (
                f"gradient at places, {'in all images' if whole else 'in an image'}",
                slope(
                    lambda x, whole=whole: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME", include_batch_in_index=whole)[0]
                ),
                IMAGE,
                ((2, 7, 6), (1, 4, 4), (3, 5, 8)),
            )
            for whole in (False, True)
        ),
        ("second derivative", slope(slope(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"))), IMAGE, IMAGES),
        ("gradient of max_pool3d", slope(lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME")), VOLUME, VOLUMES),
        ("gradient of avg_pool3d", slope(lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME")), VOLUME, VOLUMES),
        (
            "gradients of gradients of volumes",
            lambda x: raw.MaxPool3DGradGrad(
                orig_input=x,
                orig_output=tf.nn.max_pool3d(x, 2, 2, "VALID"),
                grad=tf.sin(x),
                ksize=[1, 2, 2, 2, 1],
                strides=[1, 2, 2, 2, 1],
                padding="VALID",
            ),
            VOLUME,
            VOLUMES,
        ),
    ],
)
