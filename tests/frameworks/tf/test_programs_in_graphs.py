"""Compiled programs inside of graphs: as parts of other programs, and of graphs that have to know sizes."""

import subprocess
import sys

import child
import keras
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow


def same(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def some(*shape):
    return tf.random.stateless_normal(shape, [1, 2])


# ------------------------------------------------------------------------------------------- programs of other programs

w = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))
layer = hlo_disc.tensorflow.jit(lambda x: tf.nn.relu(x @ w))
squeezed = hlo_disc.tensorflow.jit(tf.squeeze)
positive = hlo_disc.tensorflow.jit(lambda x: tf.boolean_mask(x, x > 0.0))
pair = hlo_disc.tensorflow.compile(lambda x, y: {"sum": x + y, "first": [x]}, [tf.TensorSpec([None, 4])] * 2)
counted = hlo_disc.tensorflow.jit(lambda x, n: tf.reshape(x, [n, -1]))


@tf.custom_gradient
def _twice(x):
    return x * 2.0, lambda dy: dy * 100.0


twice = hlo_disc.tensorflow.jit(_twice)


def looped(x):
    for _ in tf.range(3):
        x = layer(x) @ tf.ones([2, 4]) * 0.1
    return x


INSIDE = {
    "once": lambda x: layer(x) + 1.0,
    "of another": hlo_disc.tensorflow.jit(lambda x: layer(x) * 2.0),
    "twice": lambda x: tf.concat([layer(x), layer(x * 2.0)], 0),
    "in a function": tf.function(lambda x: layer(x) + 1.0),
    "in a loop": looped,
    "in a branch": lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: layer(x), lambda: layer(-x)),
    "in a map": lambda x: tf.map_fn(lambda row: layer(row[None])[0], x, fn_output_signature=tf.float32),
    "a nest": lambda x: pair(x, x * 2.0)["sum"] + pair(x, x)["first"][0],
    "a size": lambda x: counted(x, tf.shape(x)[0] * 2),
    "sizes of data": lambda x: positive(tf.reshape(x, [-1])) * 2.0,
    "not used": lambda x: (layer(x), x)[1] * 2.0,
    "a gradient of its own": lambda x: twice(x) * 3.0,
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_program_is_part_of_another(name):
    function = INSIDE[name]
    compiled = hlo_disc.tensorflow.jit(function)
    for n in (3, 1, 5):
        same(compiled(some(n, 4)), function(some(n, 4)))
    assert "HloDiscCall" not in compiled.programs()[0].explain()


@pytest.mark.parametrize("name", sorted({*INSIDE} - {"sizes of data", "in a map"}))
def test_gradients_of_programs_inside(name):
    function = INSIDE[name]

    def gradients(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(loss, [x, w])

    inner = hlo_disc.tensorflow.jit(lambda x: [g for g in gradients(function, x) if g is not None])
    for n in (3, 1):
        want = [tf.convert_to_tensor(g) for g in gradients(function, some(n, 4)) if g is not None]
        outer = gradients(hlo_disc.tensorflow.jit(function), some(n, 4))
        for got in ([tf.convert_to_tensor(g) for g in outer if g is not None], inner(some(n, 4))):
            tf.nest.map_structure(same, got, want)


def test_variables_of_a_program_inside_are_read_at_each_call():
    v = tf.Variable(2.0)
    inner = hlo_disc.tensorflow.jit(lambda x: x * v)
    outer = hlo_disc.tensorflow.jit(lambda x: inner(x) + v)
    same(outer(tf.ones([3])), tf.ones([3]) * 4)
    v.assign(5.0)
    same(outer(tf.ones([3])), tf.ones([3]) * 10)
    assert [x is v for x in outer.programs()[0].variables] == [True]


def test_sizes_that_decide_inside():
    outer = hlo_disc.tensorflow.jit(lambda x: squeezed(x) * 2.0)
    for shape in ((3, 1), (2, 3), (1, 4), (1, 1), (5, 2)):
        same(outer(some(*shape)), tf.squeeze(some(*shape)) * 2.0)


def test_what_a_program_takes_holds_inside():
    square = hlo_disc.tensorflow.compile(
        lambda x: x * 2.0, [tf.TensorSpec([None, None], name="x")], dims={"x": "(n, n)"}, constraints="n <= 4"
    )
    fixed = hlo_disc.tensorflow.compile(lambda x: x * float(x.shape[1]), [tf.TensorSpec([None, 3], name="x")])
    even = hlo_disc.tensorflow.compile(lambda x: x[::2], [tf.TensorSpec([None], name="x")], dims={"x": "(2*n)"})
    spec = tf.TensorSpec([None, None])
    outer = hlo_disc.tensorflow.compile(lambda x: square(x), [spec])
    same(outer(some(3, 3)), some(3, 3) * 2)
    with pytest.raises(hlo_disc.ShapeError, match=r"HloDiscCall.*argument 'x' dimension 1 is 4, but 'n' is 3"):
        outer(some(3, 4))
    with pytest.raises(hlo_disc.ShapeError, match=r"do not meet the constraint n <= 4: 'n' is 5"):
        outer(some(5, 5))
    outer = hlo_disc.tensorflow.compile(lambda x: fixed(x), [spec])
    same(outer(some(2, 3)), some(2, 3) * 3)
    with pytest.raises(hlo_disc.ShapeError, match="argument 'x' dimension 1 is 4, but must be 3"):
        outer(some(2, 4))
    outer = hlo_disc.tensorflow.compile(lambda x: even(x), [tf.TensorSpec([None])])
    same(outer(some(4)), some(4)[::2])
    with pytest.raises(hlo_disc.ShapeError, match="dimension 0 is 3"):
        outer(some(3))
    with pytest.raises(hlo_disc.UnsupportedOpError, match="argument 'x' is float64 of rank 1"):
        hlo_disc.tensorflow.compile(lambda x: even(x), [tf.TensorSpec([None], tf.float64)])


# ---------------------------------------------------------------------------------------------------------- SavedModels

COMPILES = """
import sys, hlo_disc
try:
    hlo_disc.compile(sys.argv[1])
except hlo_disc.UnsupportedOpError as error:
    print(error)
"""


def test_a_saved_model_with_a_program_inside(tmp_path):
    module = tf.Module()
    module.w = w
    module.call = tf.function(lambda x: {"y": layer(x)}, input_signature=[tf.TensorSpec([None, 4], name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    executable = hlo_disc.compile(tmp_path / "model")
    for n in (3, 1, 0):
        np.testing.assert_allclose(executable(some(n, 4).numpy())["y"], layer(some(n, 4)), atol=1e-5)
    # Another process has the machine code, and not the function.
    told = child.python("-c", COMPILES, tmp_path / "model")
    assert told.startswith("tf.HloDiscCall at ") and "compile in a process that has the function" in told
    command = [sys.executable, "-m", "hlo_disc", "compile", str(tmp_path / "model"), "-o", str(tmp_path / "m.disc")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1 and "error: tf.HloDiscCall at " in ran.stderr and "Traceback" not in ran.stderr


# ------------------------------------------------------------------------------------------------- sizes in the graph


def test_a_graph_knows_the_sizes_of_results():
    f = hlo_disc.tensorflow.jit(lambda x, y: (tf.concat([x, x], 1), x @ y, tf.reshape(x, [-1]), tf.shape(y)))
    given = some(3, 4), some(4, 5)
    shapes = []
    traced = tf.function(lambda x, y: (shapes.append([r.shape.as_list() for r in f(x, y)]), f(x, y))[1])
    tf.nest.map_structure(same, traced(*given), f(*given))
    traced.get_concrete_function(tf.TensorSpec([None, 4]), tf.TensorSpec([4, 5]))
    traced.get_concrete_function(tf.TensorSpec([3, None]), tf.TensorSpec([None, None]))
    assert shapes[0] == [[3, 8], [3, 5], [12], [2]]
    assert shapes[1] == [[None, 8], [None, 5], [None], [2]]
    assert shapes[2] == [[3, None], [3, None], [None], [2]]


def test_sizes_of_data_stay_unknown():
    @tf.function
    def traced(x):
        y = positive(x)
        assert y.shape.as_list() == [None]
        return y

    same(traced(tf.constant([1.0, -1.0])), tf.constant([1.0]))


def test_sizes_that_are_none_are_for_the_run_to_say():
    f = hlo_disc.tensorflow.jit(lambda x: tf.zeros([tf.shape(x)[0] - 2]))
    g = hlo_disc.tensorflow.jit(lambda x, y: tf.reshape(x, [tf.shape(y)[0], -1]))
    same(f(some(3)), tf.zeros([1]))
    with pytest.raises((hlo_disc.ShapeError, tf.errors.InvalidArgumentError), match="would have the size -1"):
        tf.function(f)(some(1))
    same(g(some(6), some(2)), tf.reshape(some(6), [2, 3]))
    with pytest.raises((hlo_disc.ShapeError, tf.errors.InvalidArgumentError)):
        tf.function(g)(some(6), some(0))


def test_a_loop_around_a_program():
    f = hlo_disc.tensorflow.jit(lambda x: tf.sin(x) * 1.5)

    def loop(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(4):
                y = function(y)
        return y, tape.gradient(y, x)

    around = tf.function(lambda x: loop(f, x))
    for n in (5, 1):
        tf.nest.map_structure(same, around(some(n)), tf.function(lambda x: loop(f._function, x))(some(n)))


def test_a_layer_of_keras_behind_a_program():
    f = hlo_disc.tensorflow.jit(lambda x: tf.concat([x, x * 2.0], 1))

    class Twice(keras.layers.Layer):
        def call(self, x):
            return f(x)

    x = keras.Input([8])
    model = keras.Model(x, keras.layers.Dense(3)(Twice()(x)))
    same(model(some(2, 8)), tf.concat([some(2, 8), some(2, 8) * 2.0], 1) @ model.layers[-1].kernel.value)
