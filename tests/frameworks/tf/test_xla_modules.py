"""StableHLO modules inside of TensorFlow's graphs, as jax2tf makes them, and ops that XLA itself does not run."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import hlo_disc.tensorflow
from hlo_disc import ShapeError, UnsupportedOpError

jax = pytest.importorskip("jax")
jax2tf = pytest.importorskip("jax.experimental.jax2tf")
jnp = jax.numpy
SPEC = tf.TensorSpec([None, None])
SIZES = ((3, 5), (7, 2), (1, 1))


def converted(function, *shapes, **how):
    """A function that AutoGraph leaves alone: it would rewrite JAX's code as well."""
    return tf.autograph.experimental.do_not_convert(jax2tf.convert(function, polymorphic_shapes=list(shapes), **how))


def scanned(x):
    return jax.lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros(x.shape[1]), x)


def doubled(x):
    inner = converted(lambda y: jnp.concatenate([y, y[::2]]).sum(0) * y.shape[0], "(2*b, c)")
    return inner(tf.concat([x, x], 0)) + 1


def both(x):
    return converted(lambda y, z: jax.nn.softmax(y @ z), "(b, c)", "(c, 4)")(tf.sin(x), tf.ones([tf.shape(x)[1], 4]))


def slope(x):
    inner = converted(lambda y: jnp.sum(jnp.sin(y) ** 2, 1), "(b, c)", with_gradient=True)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(inner(x) ** 2)
    return tape.gradient(total, x)


FUNCTIONS = {
    "a product": converted(lambda x: jnp.tanh(x) @ x.T, "(b, c)"),
    "a loop": converted(scanned, "(b, c)"),
    "sizes of sizes": doubled,
    "several arguments": both,
    "several platforms": converted(jnp.cos, "(b, c)", native_serialization_platforms=("tpu", "cpu")),
    "a gradient": slope,
}


def given(*sizes):
    return tf.random.stateless_normal(sizes, [1, 2])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_modules_are_part_of_the_program(name):
    function = tf.function(FUNCTIONS[name], input_signature=[SPEC], autograph=False)
    compiled = hlo_disc.tensorflow.compile(function)
    for sizes in SIZES:
        x = given(*sizes)
        for got, want in zip(tf.nest.flatten(compiled(x)), tf.nest.flatten(function(x)), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_assertions_of_a_module_hold_for_calls():
    compiled = hlo_disc.tensorflow.compile(converted(lambda x, y: x + y, "(b, c)", "(b, c)"), [SPEC, SPEC])
    np.testing.assert_allclose(compiled(given(2, 3), given(2, 3)), given(2, 3) * 2)
    with pytest.raises(ShapeError, match="XlaCallModule.*polymorphic shapes"):
        compiled(given(2, 3), given(3, 3))


def test_a_module_in_a_loop():
    inner = converted(lambda x: jnp.sin(x) * x.shape[0], "(b, c)")
    shapes = [tf.TensorShape([]), tf.TensorShape([None, None])]

    def function(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, inner(y)), [0, x], shapes)[1]

    compiled = hlo_disc.tensorflow.compile(function, [SPEC])
    for sizes in SIZES:
        x = given(*sizes)
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "platforms, says", [(("tpu",), "for TPU, and not for CPU"), (("tpu", "cuda"), "for TPU, CUDA, and not for CPU")]
)
def test_modules_for_others_are_refused(platforms, says):
    function = converted(jnp.cos, "(b, c)", native_serialization_platforms=platforms)
    with pytest.raises(UnsupportedOpError, match=f"XlaCallModule.*{says}"):
        hlo_disc.tensorflow.compile(function, [SPEC])


def test_if_of_xla():
    """TensorFlow's own XLA does not run this one."""
    branches = [tf.function(f).get_concrete_function(SPEC) for f in (lambda x: x * 2, lambda x: x - 1)]

    def function(x, flag):
        return gen_xla_ops.xla_if(flag, [x], branches[0], branches[1], [tf.float32])

    compiled = hlo_disc.tensorflow.compile(function, [SPEC, tf.TensorSpec([], tf.bool)])
    for sizes in SIZES:
        x = given(*sizes)
        np.testing.assert_allclose(compiled(x, tf.constant(True))[0], x * 2)
        np.testing.assert_allclose(compiled(x, tf.constant(False))[0], x - 1)


def test_collectives_are_of_one_device():
    def scattered(groups):
        return lambda x: gen_xla_ops.xla_reduce_scatter(x, groups, 0, "Add")

    x = given(3, 5)
    np.testing.assert_array_equal(hlo_disc.tensorflow.compile(scattered([[0]]), [SPEC])(x), x)
    assert hlo_disc.tensorflow.compile(lambda y: (y, gen_xla_ops.xla_replica_id()), [SPEC])(x)[1] == 0
    with pytest.raises(UnsupportedOpError, match=r"XlaReduceScatter.*devices \[1\]"):
        hlo_disc.tensorflow.compile(scattered([[0, 1]]), [SPEC])
