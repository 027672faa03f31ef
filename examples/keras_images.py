"""A small residual network in Keras for images of any size: one compilation for all shapes, and a SavedModel of it.

The weights are random. What hlo_disc computes is compared with TensorFlow's own results, and with what the program
gives when it is loaded again.

    python examples/keras_images.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import hlo_disc.tensorflow

SHAPES = ((1, 32, 32), (8, 48, 64), (3, 97, 31), (16, 28, 28), (1, 224, 224))


def block(x: keras.KerasTensor, channels: int, strides: int) -> keras.KerasTensor:
    """Return the result of two convolutions with a shortcut around them."""
    around = layers.Conv2D(channels, 1, strides)(x)
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(channels, 3, strides, "same", use_bias=False)(x)))
    x = layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same", use_bias=False)(x))
    return layers.ReLU()(x + around)


def network(classes: int = 10) -> keras.Model:
    """Return a model from images f32 (n, height, width, 3) to the probabilities of classes (n, classes)."""
    images = keras.Input([None, None, 3], name="images")
    x = layers.Rescaling(2.0, -1.0)(images)
    for channels, strides in ((16, 1), (32, 2), (64, 2)):
        x = block(x, channels, strides)
    return keras.Model(images, layers.Dense(classes, "softmax")(layers.GlobalAveragePooling2D()(x)))


def main() -> None:
    keras.utils.set_random_seed(0)
    model = network()
    signature = [tf.TensorSpec([None, None, None, 3], name="images")]
    start = time.perf_counter()
    compiled = hlo_disc.tensorflow.compile(model, signature, dims={"images": "(n, h, w, _)"})
    print(f"compiled in {time.perf_counter() - start:.2f} s for {compiled.executable.program.inputs[0]}")
    own = tf.function(model, input_signature=signature)

    module = tf.Module()
    module.model, module.classify = model, tf.function(compiled, input_signature=signature)
    with tempfile.TemporaryDirectory() as directory:
        tf.saved_model.save(module, directory)
        loaded = tf.saved_model.load(directory)

    random = np.random.default_rng(0)
    for shape in SHAPES:
        images = tf.constant(random.random((*shape, 3), np.float32))
        ours, our_time = timed(compiled, images)
        theirs, their_time = timed(own, images)
        apart, loaded_apart = (np.abs(ours - x).max() for x in (theirs, loaded.classify(images)))
        print(
            f"{shape}: {our_time:.1f} ms, TensorFlow {their_time:.1f} ms; apart {apart:.1e}, loaded {loaded_apart:.1e}"
        )


def timed(function: Callable[[tf.Tensor], tf.Tensor], images: tf.Tensor) -> tuple[tf.Tensor, float]:
    """Return the result of a second call, and the milliseconds that it took."""
    function(images)
    start = time.perf_counter()
    return function(images), 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
