"""`hlo-disc compile DIR` and `hlo_disc.compile(DIR)`: the serving function of a SavedModel with its weights."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from models import MODELS

import hlo_disc


def test_a_saved_model_becomes_a_file_that_runs_without_tensorflow(tmp_path):
    make, _, argument = MODELS["bert"]
    model = make()
    model.export(str(tmp_path / "model"), verbose=False)
    command = [sys.executable, "-m", "hlo_disc", "compile", str(tmp_path / "model"), "-o", str(tmp_path / "bert.disc")]
    subprocess.run(command, check=True, capture_output=True)
    np.savez(tmp_path / "calls.npz", x=argument(3).numpy(), y=model(argument(3)).numpy())
    code = f"""
import sys, numpy as np, hlo_disc
executable = hlo_disc.load({str(tmp_path / "bert.disc")!r})
with np.load({str(tmp_path / "calls.npz")!r}) as file:
    np.testing.assert_allclose(executable(file["x"])["output_0"], file["y"], atol=1e-5)
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_sizes(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(tf.ones([4, 2]))
    signature = [tf.TensorSpec([None, 4], name="x")]
    module.call = tf.function(lambda x: {"y": x @ module.w}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    executable = hlo_disc.compile(tmp_path / "model", dims={"x": "(n, _)"}, constraints="n <= 8")
    assert executable.dims == ("n",)
    np.testing.assert_array_equal(executable(np.ones((3, 4), np.float32))["y"], np.full((3, 2), 4, np.float32))
    with pytest.raises(hlo_disc.ShapeError):
        executable(np.ones((9, 4), np.float32))


def test_a_model_without_signature(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"))
    with pytest.raises(hlo_disc.ArgumentError, match="no signature 'serving_default'"):
        hlo_disc.compile(str(tmp_path / "model"))


def test_a_function_of_tensorflow_is_sent_to_where_it_is_compiled():
    with pytest.raises(hlo_disc.ArgumentError, match="hlo_disc.tensorflow.compile"):
        hlo_disc.compile(tf.function(lambda x: x))
