"""Every case compiled once and called at all its sizes, next to TensorFlow: values, shapes and dtypes."""

import numpy as np
import pytest
import tensorflow as tf
from tf_cases import CASES

import hlo_disc.tensorflow


def leaves(results):
    return [np.asarray(x) for x in tf.nest.flatten(results)]


def check(case, got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
        else:
            wide = np.complex128 if w.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case):
    function = tf.function(case.function, input_signature=case.signature)
    compiled = hlo_disc.tensorflow.compile(function)
    shapes = 0
    for sizes in case.sizes:
        given = [tf.constant(x) for x in case.inputs(sizes)]
        try:
            want = leaves(function(*given))
        except (tf.errors.InvalidArgumentError, ValueError):
            continue  # not defined in TensorFlow itself
        check(case, leaves(compiled(*given)), want)
        shapes += 1
    assert shapes >= 3
