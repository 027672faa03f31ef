"""Compiled functions as ops: eagerly, in graphs, in graphs of other processes; variables, errors, threads."""

import subprocess
import sys
import threading

import depth
import numpy as np
import pytest
import tensorflow as tf
from float_modes import same_in_all_modes

import hlo_disc.tensorflow
from hlo_disc import ral


def layer():
    w = tf.Variable(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32), name="w")
    return w, hlo_disc.tensorflow.jit(lambda x: (tf.nn.relu(x @ w) + 1.0, tf.reduce_sum(x)))


def rows(n):
    return tf.constant(np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32))


def test_one_program_serves_all_shapes_and_sees_variables_change():
    w, f = layer()
    for n in (3, 5, 0, 1):
        got, want = f(rows(n)), f._function(rows(n))
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)
    assert len(f.programs()) == 1
    w.assign(w * 2.0)
    np.testing.assert_allclose(f(rows(3))[0], f._function(rows(3))[0], atol=1e-5)


def test_types_ranks_and_static_arguments_have_programs_of_their_own():
    f = hlo_disc.tensorflow.jit(lambda x, n: {"y": x * n, "z": [x + 1]})
    assert f(tf.constant([1, 2]), 3)["y"].numpy().tolist() == [3, 6]
    assert f(tf.constant([[1.0]]), n=2)["z"][0].numpy().tolist() == [[2.0]]
    assert f(np.float32([1, 2]), tf.constant(2.0))["y"].numpy().tolist() == [2.0, 4.0]
    assert len(f.programs()) == 3


def test_in_a_graph_with_gradients():
    w, f = layer()

    def gradients(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, s = function(x)
            loss = tf.reduce_sum(y * y) + s
        return tape.gradient(loss, [x, w])

    traced = tf.function(lambda x: gradients(f, x), input_signature=[tf.TensorSpec([None, 8])])
    for n in (4, 1):
        want = gradients(f._function, rows(n))
        for got in (gradients(f, rows(n)), traced(rows(n))):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-4)


def test_second_derivatives():
    f = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(tf.sin(x) * x))
    x = tf.constant([0.5, 1.0, 2.0])

    def second(function):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x)

    np.testing.assert_allclose(second(f), second(f._function), atol=1e-5)


LOADS = """
import sys, numpy as np, tensorflow as tf, hlo_disc.tensorflow
loaded = tf.saved_model.load(sys.argv[1])
with np.load(sys.argv[2]) as file:
    for n in ("3", "7"):
        np.testing.assert_allclose(loaded.call(file["x" + n]), file["y" + n], atol=1e-5)
"""


def test_a_saved_model_is_loaded_by_a_process_that_has_no_source(tmp_path):
    w, f = layer()
    module = tf.Module()
    module.w = w
    module.call = tf.function(lambda x: f(x)[0], input_signature=[tf.TensorSpec([None, 8])])
    tf.saved_model.save(module, str(tmp_path / "model"))
    arrays = {f"x{n}": rows(n).numpy() for n in (3, 7)} | {f"y{n}": module.call(rows(n)).numpy() for n in (3, 7)}
    np.savez(tmp_path / "arrays.npz", **arrays)
    command = [sys.executable, "-c", LOADS, str(tmp_path / "model"), str(tmp_path / "arrays.npz")]
    subprocess.run(command, check=True)


def test_what_is_wrong_with_a_call():
    _, f = layer()
    f(rows(3))
    with pytest.raises(hlo_disc.ShapeError, match="must be equal, but they are 9 and 8"):
        f(tf.zeros([3, 9]))
    compiled = hlo_disc.tensorflow.compile(lambda x: x + 1.0, [tf.TensorSpec([None])])
    with pytest.raises(hlo_disc.ArgumentError):
        compiled(tf.constant([1]))
    with pytest.raises(hlo_disc.ArgumentError, match="rank"):
        compiled.run([tf.zeros([2, 2])])


def test_a_failing_allocation_is_an_exception():
    _, f = layer()
    f(rows(3))
    ral.fail_next_allocation(1)
    try:
        with pytest.raises(hlo_disc.OutOfMemoryError):
            f(rows(3))
    finally:
        ral.fail_next_allocation(0)
    assert f(rows(3))[0].shape == (3, 4)


def test_what_is_not_supported_is_named_with_its_line():
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"tf\.Expint .* at .*test_op\.py:\d+"):
        hlo_disc.tensorflow.compile(lambda x: tf.math.special.expint(x), [tf.TensorSpec([None])])


CALLS = depth.examples(2_000, 10_000)


def test_eight_threads_at_changing_shapes():
    f = hlo_disc.tensorflow.jit(lambda x: x * 2.0 + 1.0)
    inputs = [tf.constant(np.arange(n, dtype=np.float32)) for n in range(16)]
    wrong = []

    def work(seed):
        for i in range(CALLS):
            n = (i * 7 + seed) % 16
            y = f(inputs[n])
            if y.shape != (n,) or (n and float(y[-1]) != 2.0 * (n - 1) + 1.0):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_names_and_constraints_of_sizes():
    compiled = hlo_disc.tensorflow.compile(
        lambda x, y: x + y,
        [tf.TensorSpec([None, None], name="x"), tf.TensorSpec([None], name="y")],
        dims={"x": "(b, s)", "y": "(s)"},
        constraints="s <= 4",
    )
    with pytest.raises(hlo_disc.ArgumentError, match="the function has 3 there"):
        hlo_disc.tensorflow.compile(lambda x: x, [tf.TensorSpec([3], name="x")], dims={"x": "(n)"})
    assert compiled.executable.dims == ("b", "s")
    with pytest.raises(hlo_disc.ShapeError):
        compiled(tf.zeros([2, 5]), tf.zeros([5]))


def test_inside_of_what_xla_compiles():
    w, f = layer()

    def loss(function, x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(function(x * 2.0)[0] ** 2)
        return y, tape.gradient(y, w)

    compiled = tf.function(lambda x: loss(f, x), jit_compile=True)
    general = tf.function(lambda x: loss(f, x), jit_compile=True, input_signature=[tf.TensorSpec([None, 8])])
    for n in (3, 5, 1):
        want = loss(f._function, rows(n))
        for got in (compiled(rows(n)), general(rows(n))):
            tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), got, want)


def test_results_whose_size_xla_cannot_know():
    f = hlo_disc.tensorflow.jit(lambda x: tf.boolean_mask(x, x > 0.0))
    x = tf.constant([1.0, -1.0, 2.0])
    assert f(x).numpy().tolist() == [1.0, 2.0]
    with pytest.raises(Exception, match="UnsupportedOpError: inside jit_compile=True: the size"):  # AutoGraph's
        tf.function(lambda x: f(x), jit_compile=True)(x)


@tf.function
def positive(x):
    total = tf.zeros([])
    for row in x:
        if row > 0.0:
            total += row
    return total


def test_python_of_a_function_is_converted_as_tensorflow_does():
    @hlo_disc.tensorflow.jit
    def f(x):
        total = tf.zeros([])
        for row in x:
            if row > 0.0:
                total += row
        return total

    for n in (3, 0, 5):
        x = tf.constant(np.random.default_rng(n).normal(size=n).astype(np.float32))
        np.testing.assert_allclose(f(x), positive(x), atol=1e-6)
    assert len(f.programs()) == 1


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "complex64"])
def test_an_executable_takes_and_gives_eager_tensors(dtype):
    compiled = hlo_disc.tensorflow.compile(lambda x: tf.concat([x, x], 0), [tf.TensorSpec([None, 2], dtype)])
    for n in (3, 0, 1):
        x = tf.cast(tf.reshape(tf.range(2 * n), [n, 2]), dtype)
        got = compiled.executable(x)
        assert isinstance(got, tf.Tensor) and got.dtype == dtype
        np.testing.assert_array_equal(got.numpy(), np.concatenate([x.numpy()] * 2))


LOOPS = {
    "to a number": lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1],
    "to a size": lambda x: tf.while_loop(lambda i, y: i < tf.shape(x)[0], lambda i, y: (i + 1, tf.sin(y)), (0, x))[1],
    "scan": lambda x: tf.scan(lambda a, row: a * 0.5 + tf.sin(row), x),
    "map": lambda x: tf.map_fn(lambda row: tf.reduce_sum(row) * row, x),
    "branch": lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: x * x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_gradients_of_loops(name):
    def gradient(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(loss, x)

    f = hlo_disc.tensorflow.jit(LOOPS[name])
    for n in (4, 1, 3):
        np.testing.assert_allclose(gradient(f, rows(n)), gradient(LOOPS[name], rows(n)), atol=1e-4)
    assert len(f.programs()) == 1


def test_gradients_of_a_loop_that_data_ends():
    f = hlo_disc.tensorflow.jit(
        lambda x: tf.while_loop(lambda y: tf.reduce_sum(tf.abs(y)) > 1.0, lambda y: (tf.sin(y) * 0.5,), (x,))[0]
    )
    with tf.GradientTape() as tape:
        x = rows(3)
        tape.watch(x)
        y = f(x)
    with pytest.raises(hlo_disc.UnsupportedOpError, match="tf.TensorListPushBack.*maximum_iterations"):
        tape.gradient(y, x)


def test_the_callers_floating_point_mode_changes_nothing():
    f = hlo_disc.tensorflow.jit(lambda x: (x * 0.7, tf.reduce_sum(x) / 3.0))
    traced = tf.function(lambda x: f(x), input_signature=[tf.TensorSpec([None])])
    x = tf.constant(np.where(np.arange(1000) % 3, 5e-40, np.arange(1000)).astype(np.float32))
    for call in (f, traced):
        same_in_all_modes(lambda call=call: call(x))
    np.testing.assert_array_equal(traced(x)[0].numpy().view(np.int32), f(x)[0].numpy().view(np.int32))
