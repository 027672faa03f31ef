"""Functions that graphs hold as definitions: of `Defun`, of frozen and imported graphs; loops of TensorFlow 1."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import hlo_disc.tensorflow

v = tf.Variable(2.0)


def some(*shape):
    return tf.random.stateless_normal(shape, [1, 2])


@tf.function
def doubled(x):
    return tf.sin(x) * v


@tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
def function(x):
    for _ in tf.range(3):
        x = doubled(x)
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: doubled(-x))


def frozen(lowered=False):
    return convert_variables_to_constants_v2(function.get_concrete_function(), lower_control_flow=lowered)


graph = frozen().graph


def imported(x):
    (y,) = tf.graph_util.import_graph_def(graph.as_graph_def(), {"x": x}, [graph.outputs[0].name], name="")
    return y


SOURCES = {
    "frozen": lambda: hlo_disc.tensorflow.compile(frozen()),
    "imported": lambda: hlo_disc.tensorflow.jit(imported),
    "wrapped": lambda: hlo_disc.tensorflow.compile(
        tf.compat.v1.wrap_function(imported, [tf.TensorSpec([None, 3])])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_functions_that_are_definitions(name):
    compiled = SOURCES[name]()
    for n in (2, 1, 5):
        (got,) = tf.nest.flatten(compiled(some(n, 3)))
        np.testing.assert_allclose(got, function(some(n, 3)), rtol=1e-5)


def test_a_loop_of_the_first_tensorflow_is_refused():
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"tf\.NextIteration at .*: loops of TensorFlow 1 are not"):
        hlo_disc.tensorflow.compile(frozen(lowered=True))


def loss(logits, labels):
    lengths = tf.fill([tf.shape(labels)[0]], 3), tf.fill([tf.shape(labels)[0]], tf.shape(logits)[1])
    return tf.nn.ctc_loss(labels, logits, *lengths, logits_time_major=False, blank_index=0)


def slope(logits, labels):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(loss(logits, labels))
    return tape.gradient(total, logits)


@pytest.mark.parametrize("derive", [loss, slope])
def test_ops_that_are_calls_of_functions(derive):
    compiled = hlo_disc.tensorflow.jit(derive)
    for batch, steps in ((2, 10), (1, 8)):
        given = some(batch, steps, 5), tf.constant([[1, 2, 3], [2, 1, 4]])[:batch]
        np.testing.assert_allclose(compiled(*given), tf.function(derive)(*given), rtol=1e-4, atol=1e-5)
    assert len(compiled.programs()) == 1
