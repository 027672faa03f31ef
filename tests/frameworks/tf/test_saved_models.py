"""SavedModels and functions of TensorFlow for `hlo_disc.compile` and its command: their weights are constants."""

import child
import emitted
import keras
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from models import MODELS, floats

import hlo_disc.tensorflow
from hlo_disc.cli import main


def test_a_saved_model_becomes_a_file_that_runs_without_tensorflow(tmp_path):
    make, _, argument = MODELS["bert"]
    model = make()
    model.export(str(tmp_path / "model"), verbose=False)
    child.python("-m", "hlo_disc", "compile", tmp_path / "model", "-o", tmp_path / "bert.disc")
    np.savez(tmp_path / "calls.npz", x=argument(3).numpy(), y=model(argument(3)).numpy())
    code = f"""
import sys, numpy as np, hlo_disc
executable = hlo_disc.load({str(tmp_path / "bert.disc")!r})
with np.load({str(tmp_path / "calls.npz")!r}) as file:
    np.testing.assert_allclose(executable(file["x"])["output_0"], file["y"], atol=1e-5)
assert "tensorflow" not in sys.modules
"""
    child.python("-c", code)


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
    with pytest.raises(hlo_disc.ArgumentError, match="no signature 'serving_default'; it has none"):
        hlo_disc.compile(str(tmp_path / "model"))


def test_one_of_several_signatures(tmp_path):
    module, signature = tf.Module(), [tf.TensorSpec([None], name="x")]
    module.double = tf.function(lambda x: {"y": x * 2.0}, input_signature=signature)
    module.triple = tf.function(lambda x: {"y": x * 3.0}, input_signature=signature)
    model, x = str(tmp_path / "model"), np.ones(3, np.float32)
    tf.saved_model.save(module, model, signatures={"double": module.double, "triple": module.triple})
    executable = hlo_disc.compile(model, signature="triple")
    np.testing.assert_array_equal(executable(x)["y"], x * 3)
    assert executable.explain().startswith(f"source  a SavedModel, {model}, triple")
    text = hlo_disc.stablehlo(model, signature="double")
    emitted.check(text, [([x], [x * 2])])
    with pytest.raises(hlo_disc.ArgumentError, match="it has double, triple: name one with signature="):
        hlo_disc.compile(model)

    def call(*command):
        return CliRunner().invoke(main, list(map(str, command)))

    for name, factor in (("double", 2), ("triple", 3)):
        result = call("compile", model, "--signature", name, "-o", tmp_path / f"{name}.disc")
        assert result.exit_code == 0, result.stderr
        np.testing.assert_array_equal(hlo_disc.load(tmp_path / f"{name}.disc")(x)["y"], x * factor)
    assert "triple" in call("explain", model, "--signature", "triple").stdout
    assert "triple" not in call("compile", model, "--signature", "double", "--emit", "stablehlo").stdout
    missing = call("compile", model, "--signature", "other", "-o", tmp_path / "other.disc")
    assert missing.exit_code == 1 and "no signature 'other'; it has double, triple" in missing.stderr
    compiled = call("explain", tmp_path / "triple.disc", "--signature", "triple")
    assert compiled.exit_code == 1 and "--signature has no effect on it" in compiled.stderr


def test_what_is_no_saved_model_has_no_signatures():
    with pytest.raises(hlo_disc.ArgumentError, match="only SavedModels have signatures"):
        hlo_disc.compile(lambda x: x, tf.TensorSpec([None]), signature="serving_default")


@pytest.mark.parametrize("name", ["bert", "cnn"])
def test_stablehlo_of_a_saved_model(tmp_path, name):
    make, _, argument = MODELS[name]
    model = make()
    model.export(str(tmp_path / "model"), verbose=False)
    command = ["hlo_disc", "compile", tmp_path / "model", "--emit", "stablehlo", "-o", tmp_path / "model.mlir"]
    child.python("-m", *command)
    text = (tmp_path / "model.mlir").read_text()
    calls = [([argument(n).numpy()], [model(argument(n)).numpy()]) for n in (3, 1, 8)]
    emitted.check(text, calls)


@pytest.mark.parametrize("emit", ["disc", "stablehlo"])
def test_a_saved_model_that_changes_something(tmp_path, emit):
    module = tf.Module()
    module.count = tf.Variable(0.0)
    signature = [tf.TensorSpec([None], name="x")]
    module.call = tf.function(lambda x: {"y": x + module.count.assign_add(1.0)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    command = ["compile", str(tmp_path / "model"), "--emit", emit, "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: tf.AssignAddVariableOp at ")
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------- functions, which are compiled as SavedModels are


def layer():
    w = tf.Variable(tf.ones([4, 2]), name="w")
    return w, lambda x: {"y": x @ w, "all": [x, None]}


def test_functions_of_tensorflow():
    w, function = layer()
    spec = tf.TensorSpec([None, 4], name="x")
    traced = tf.function(function, input_signature=[spec])
    model = keras.Sequential([keras.Input([4]), keras.layers.Lambda(function)])
    sources = [(function, spec), (tf.function(function), spec), (traced,), (traced.get_concrete_function(),)]
    for source in [*sources, (model, spec)]:
        executable = hlo_disc.compile(*source, dims=["(n, _)"], constraints="n <= 8")
        assert executable.explain().startswith("source  a function of TensorFlow, ")
        assert executable.dims == ("n",)
        for n in (3, 1, 0):
            x = floats(n, 4).numpy()
            results = executable(x)
            np.testing.assert_allclose(results["y"], x @ w, atol=1e-6)
            np.testing.assert_array_equal(results["all"][0], x)
            assert results["all"][1] is None
        with pytest.raises(hlo_disc.ShapeError):
            executable(np.ones((9, 4), np.float32))
    assert hlo_disc.tensorflow.compile(function, [spec])(tf.ones([3, 4]))["all"][1] is None


def test_stablehlo_of_a_function():
    w, function = layer()
    text = hlo_disc.stablehlo(function, tf.TensorSpec([None, 4], name="x"))
    assert "%arg0" in text and "%arg1" not in text  # the weight is a constant
    x = [floats(n, 4).numpy() for n in (3, 1)]
    emitted.check(text, [([a], [a, a @ w.numpy()]) for a in x])


def test_a_program_keeps_the_values_that_variables_had():
    w, function = layer()
    executable = hlo_disc.compile(function, tf.TensorSpec([None, 4]))
    w.assign(w * 2)
    np.testing.assert_array_equal(executable(np.ones((1, 4), np.float32))["y"], [[4, 4]])


def test_inputs_have_the_names_of_parameters():
    executable = hlo_disc.compile(lambda x, y: x + y, tf.TensorSpec([None]), tf.TensorSpec([None]))
    assert [str(x) for x in executable.program.inputs] == ["x: float32[d0]", "y: float32[d1]"]


def test_specs_that_are_none_of_tensorflow():
    with pytest.raises(hlo_disc.ArgumentError, match="are tf.TensorSpecs"):
        hlo_disc.compile(tf.function(lambda x: x), "f32[n]")
    with pytest.raises(hlo_disc.ArgumentError, match="give a signature, a tf.TensorSpec for each parameter"):
        hlo_disc.compile(tf.function(lambda x: x))
