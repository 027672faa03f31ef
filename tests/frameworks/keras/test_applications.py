"""Keras' models of images with random weights: one program for all sizes, next to eager mode."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

NAMES = (
    "ConvNeXtTiny DenseNet121 EfficientNetB0 EfficientNetV2B0 InceptionResNetV2 InceptionV3 MobileNet MobileNetV2 "
    "MobileNetV3Large MobileNetV3Small NASNetMobile ResNet50 ResNet50V2 VGG16 Xception"
).split()
FIXED = {"NASNetMobile"}  # which Keras pads by sizes that must be known


@pytest.mark.parametrize("name", NAMES)
def test_application(name):
    keras.utils.set_random_seed(1)
    side = 96 if name in FIXED else None
    model = getattr(keras.applications, name)(
        weights=None, include_top=False, pooling="avg", input_shape=(side, side, 3)
    )
    own = hlo_disc.tensorflow.jit(lambda x: model(x, training=False))
    rng = np.random.default_rng(0)
    for batch, height, width in ((1, 96, 104), (2, 113, 121), (3, 80, 88), (1, 128, 75)):
        x = tf.constant(rng.normal(size=(batch, side or height, side or width, 3)), tf.float32)
        expected = model(x, training=False).numpy()
        np.testing.assert_allclose(own(x).numpy(), expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())
    assert len(own.programs()) == 1
