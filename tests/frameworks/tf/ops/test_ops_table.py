"""docs/tensorflow_ops.md is what the handlers say, and every op that XLA registers is handled or has a reason."""

import sys
from pathlib import Path

import pytest
import tensorflow as tf

import hlo_disc.tensorflow
from hlo_disc import UnsupportedOpError

sys.path.insert(0, str(Path(__file__).parents[4] / "tools"))
import tensorflow_ops


def test_the_table_is_current():
    assert tensorflow_ops.TARGET.read_text() == tensorflow_ops.document(), "run python tools/tensorflow_ops.py"


def test_every_op_is_handled_or_has_a_reason():
    assert not tensorflow_ops.unexplained()
    assert not tensorflow_ops.stale()


def test_an_error_says_the_reason():
    with pytest.raises(UnsupportedOpError, match=r"tf.RandomUniform .*test_ops_table.py:\d+.*stateless"):
        hlo_disc.tensorflow.compile(lambda x: x + tf.random.uniform([]), [tf.TensorSpec([None])])


def test_types_that_lapack_has_not_are_refused():
    with pytest.raises(UnsupportedOpError, match=r"tf.Qr .*test_ops_table.py:\d+.*float16"):
        hlo_disc.tensorflow.compile(lambda x: tf.linalg.qr(x), [tf.TensorSpec([None, None], tf.float16)])
