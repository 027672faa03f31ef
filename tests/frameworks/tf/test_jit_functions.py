"""The functions that `hlo_disc.tensorflow.jit` takes: methods, layers without weights, those traced with sizes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow


def same(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------------------------------------------------------- methods


class Scale(tf.Module):
    def __init__(self, factor):
        super().__init__()
        self.w = tf.Variable(factor)

    @hlo_disc.tensorflow.jit
    def call(self, x, *, twice=False):
        return x * self.w * (2.0 if twice else 1.0)

    @hlo_disc.tensorflow.jit(threads=1)
    def shifted(self, x):
        return x + self.w

    @staticmethod
    @hlo_disc.tensorflow.jit
    def plain(x):
        return x * 3.0

    @classmethod
    @hlo_disc.tensorflow.jit
    def named(cls, x):
        return x * float(len(cls.__name__))


def test_a_method_is_bound():
    two, three = Scale(2.0), Scale(3.0)
    for n in (3, 1, 0):
        x = tf.ones([n])
        same(two.call(x), x * 2)
        same(three.call(x, twice=True), x * 6)
        same(Scale.call(two, x), x * 2)
        same(two.shifted(x), x + 2)
        same(two.plain(x), x * 3)
        same(two.named(x), x * 5)
    assert len(two.call.programs()) == 2  # an instance has its own
    two.w.assign(5.0)
    same(two.call(tf.ones([2])), tf.ones([2]) * 5)


def test_a_method_in_a_graph_and_on_a_tape():
    module = Scale(2.0)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.function(lambda x: module.call(x) ** 2)(tf.ones([3])))
    same(tape.gradient(y, module.w), tf.constant(12.0))


class Projection(keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 3))

    @hlo_disc.tensorflow.jit
    def call(self, x):
        return x @ self.w.value


def test_the_call_of_a_layer_of_keras():
    model = keras.Sequential([Projection(), keras.layers.Dense(2)])
    for n in (4, 1, 7):
        x = tf.ones([n, 5])
        same(model(x), (x @ model.layers[0].w.value) @ model.layers[1].kernel.value + model.layers[1].bias.value)


# ------------------------------------------------------------------------------------------ layers that have no weights


class Positions(keras.layers.Layer):
    """A layer whose weights depend on an axis in the middle."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[1], 1), initializer="ones")

    def call(self, x):
        return x + self.w


UNBUILT = {
    "dense": (lambda: keras.Sequential([keras.layers.Dense(3)]), (2, 4), (5, 4)),
    "convolution": (lambda: keras.Sequential([keras.layers.Conv2D(3, 2), keras.layers.Flatten()]), (2, 5, 5, 4),
                    (1, 5, 5, 4)),
    "nested": (lambda: keras.Sequential([keras.Sequential([keras.layers.Dense(3)]), keras.layers.LayerNormalization()]),
               (2, 4, 4), (3, 1, 4)),
    "middle": (lambda: keras.Sequential([Positions()]), (2, 4, 3), (5, 4, 7)),
    "layer": (lambda: keras.layers.Dense(2), (2, 4), (5, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNBUILT)
@pytest.mark.parametrize("how", ["itself", "inside"])
def test_a_layer_makes_its_weights_at_the_first_call(name, how):
    make, *shapes = UNBUILT[name]
    layer = make()
    function = hlo_disc.tensorflow.jit(layer if how == "itself" else lambda x: layer(x))
    for shape in [*shapes, shapes[0]]:
        x = tf.random.stateless_uniform(shape, [1, 2])
        same(function(x), layer(x))
    assert len(function.programs()) == 1
    assert layer.built


def test_each_instance_makes_its_weights():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.layer = keras.Sequential([keras.layers.Dense(3)])

        @hlo_disc.tensorflow.jit
        def __call__(self, x):
            return self.layer(x)

    for net in (Net(), Net()):
        x = tf.ones([2, 4])
        same(net(x), net.layer(x))


def test_a_variable_that_the_first_call_makes():
    class Lazy(tf.Module):
        w = None

        def __call__(self, x):
            if self.w is None:
                self.w = tf.Variable(tf.ones([x.shape[0], 2]) * 3)
            return x @ self.w

    module = Lazy()
    function = hlo_disc.tensorflow.jit(module)
    same(function(tf.ones([2, 2])), tf.ones([2, 2]) * 6)
    assert module.w.shape == (2, 2)
    same(function(tf.ones([5, 2])), tf.ones([5, 2]) * 6)


def test_a_variable_that_every_call_makes():
    with pytest.raises(ValueError, match="only supports singleton tf.Variables"):
        hlo_disc.tensorflow.jit(lambda x: x * tf.Variable(2.0))(tf.ones([3]))


# ---------------------------------------------------------------------------------- what cannot be traced in general


def halves(x):
    assert x.shape[0] is not None and x.shape[0] % 2 == 0, "an odd number of rows"
    return x[: x.shape[0] // 2]


def test_python_that_asserts_on_sizes():
    function = hlo_disc.tensorflow.jit(halves)
    for n in (4, 2):
        same(function(tf.ones([n, 3])), tf.ones([n // 2, 3]))
    with pytest.raises(AssertionError, match="an odd number of rows"):
        function(tf.ones([3, 3]))


def table(x):
    return {4: tf.constant(1.0), 2: tf.constant(2.0)}[x.shape[0]] * x


def test_python_that_looks_sizes_up():
    function = hlo_disc.tensorflow.jit(table)
    for n in (4, 2):
        same(function(tf.ones([n])), tf.ones([n]) * (1.0 if n == 4 else 2.0))
    with pytest.raises(KeyError):
        function(tf.ones([3]))


def test_the_error_is_of_the_sizes_of_the_call():
    """TensorFlow cannot tell the number of parts if no size is known. At the call's sizes an op is missing."""
    x, sizes = tf.ones([9, 4]), tf.constant([2, 3, 4])
    with pytest.raises(ValueError, match="Cannot infer argument `num`"):
        hlo_disc.tensorflow.compile(tf.split, [tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)])
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"tf\.Expint .* at .*test_jit_functions\.py:\d+"):
        hlo_disc.tensorflow.jit(lambda x, s: [tf.math.special.expint(y) for y in tf.split(x, s)])(x, sizes)


# -------------------------------------------------------------------------------------------------- arguments of rank 0

EXTENDED = ["bfloat16", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "float16", "int8", "bool"]


@pytest.mark.parametrize("dtype", EXTENDED)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3)])
def test_tensors_of_every_rank_are_arguments(dtype, shape):
    x = tf.cast(tf.reshape(tf.range(1, 1 + int(np.prod(shape, dtype=int))), shape), tf.float32)
    x = tf.cast(x, dtype)
    function = hlo_disc.tensorflow.jit(lambda x: (tf.reshape(x, [-1]), tf.identity(x)))
    flat, itself = function(x)
    assert (flat.dtype, itself.dtype) == (x.dtype, x.dtype)
    (compiled,) = function.programs()
    want = np.asarray(x.numpy())
    for got in (itself, compiled.executable(x)[1]):
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(flat.numpy(), want.reshape(-1))


# ------------------------------------------------------------------------------------------------- specs, and reports


def test_the_spec_of_the_one_parameter():
    spec = tf.TensorSpec([None, 4], name="x")
    for given in (spec, [spec], (spec,)):
        same(hlo_disc.tensorflow.compile(lambda x: x * 2.0, given)(tf.ones([3, 4])), tf.ones([3, 4]) * 2)
    nest = {"a": spec, "b": tf.TensorSpec([])}
    compiled = hlo_disc.tensorflow.compile(lambda x: x["a"] * x["b"], nest)
    same(compiled({"a": tf.ones([2, 4]), "b": tf.constant(3.0)}), tf.ones([2, 4]) * 3)


def test_stats_count_compilations_and_calls():
    twice = hlo_disc.tensorflow.jit(lambda x: tf.squeeze(x) * 2)
    assert (twice.stats().calls, twice.stats().records) == (0, ())
    for rows in (2, 4, 1):
        twice(tf.ones([rows, 3]))
    first, other = twice.stats().records
    assert (first.reason, first.arguments) == ("first call", ("x0: float32[d0, d1]",))
    assert (other.reason, other.arguments[0].startswith("x0: float32[")) == ("sizes that no program serves", True)
    assert len(first.asked) == 2 and "test_jit_functions.py" in first.asked[0]
    assert first.seconds > sum(first.stages_ms.values()) / 1e3 > 0
    assert twice.stats().summary() == "3 calls, 2 compilations"
    graph = tf.function(lambda x: twice(x) + 1)
    for _ in range(3):
        graph(tf.ones([5, 3]))
    x = tf.ones([5, 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = twice(x)
    same(tape.gradient(y, x), tf.fill([5, 3], 2.0))
    twice(tf.ones([5], tf.float64))
    assert twice.stats().records[2].reason == "first call with arguments of this structure and of these types"
    assert twice.stats().summary() == "8 calls, 3 compilations"
    with pytest.raises(Exception, match="string"):
        twice(tf.constant(["a"]))
    assert twice.stats().calls == 8


def test_reports_of_a_function(tmp_path):
    w = tf.Variable(tf.ones([4, 4]))

    @hlo_disc.tensorflow.jit
    def layer(x):
        return x @ w

    assert layer.explain() == "layer: 0 programs"
    layer(tf.ones([3, 4]))
    found = layer.profile(tf.ones([5, 4]))
    assert len(layer.programs()) == 1  # which served both
    assert [row.operations for row in found.kernels] == [2 * 5 * 4 * 4]
    said = layer.explain(html=tmp_path / "page.html", profile=found)
    assert said.startswith("layer: 1 program\n") and "x0" in said and (tmp_path / "page.html").stat().st_size > 1000
    assert len(layer.explain(full=True)) > len(said)
    (compiled,) = layer.programs()
    assert [row.operations for row in compiled.profile(tf.ones([2, 4]), seconds=0.1).kernels] == [2 * 2 * 4 * 4]
    assert compiled.explain(full=True) in layer.explain(full=True)
