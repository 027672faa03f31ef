"""Inverse functions of complex numbers where the sign of a part that is 0 says on which side of a cut they are."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

PARTS = (-2.0, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.0)


@pytest.mark.parametrize("dtype", [tf.complex64, tf.complex128])
@pytest.mark.parametrize("name", "acos acosh asin asinh atan atanh log sqrt".split())
def test_both_sides_of_a_cut(name, dtype):
    function = getattr(tf.math, name)
    z = tf.constant([complex(a, b) for a in PARTS for b in PARTS if name != "log" or (a, b) != (0, 0)], dtype)
    got, want = hlo_disc.tensorflow.jit(function)(z), function(z)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
