"""Functions inside and outside jax.jit, where JAX is the GPU's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc

pytestmark = pytest.mark.filterwarnings("error::hlo_disc.FallbackWarning")


def grown(x):
    """Multiply x by 1.5 as often as it has rows."""
    return jax.lax.while_loop(lambda s: s[0] < len(x), lambda s: (s[0] + 1, s[1] * 1.5), (0, x))[1]


def loss(x):
    return (jnp.tanh(x @ x.T) ** 2).sum()


FUNCTIONS = {
    "map": (lambda x: jnp.tanh(x) * x, (5, 300)),
    "softmax": (lambda x: jax.nn.softmax(x), (5, 300)),
    "product": (lambda x: x @ x.T, (70, 300)),
    "large product": (lambda x: x @ x.T, (2048, 1024)),
    "sort": (lambda x: jnp.sort(x, -1), (5, 300)),
    "loop": (
        lambda x: jax.lax.while_loop(lambda s: s[0] < s[1].shape[0], lambda s: (s[0] + 1, s[1] * 1.5), (0, x))[1],
        (5, 30),
    ),
    "condition": (lambda x: jax.lax.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1), (5, 30)),
    "one": (lambda x: jnp.unique(x, size=4), (5, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("inside", [True, False])
def test_right(name, inside):
    function, shape = FUNCTIONS[name]
    with jax.default_matmul_precision("highest"):
        f = hlo_disc.jit(function)
        called = jax.jit(lambda x: f(x) + 0) if inside else f
        for grown in (0, 1, 8):
            x = jnp.asarray(np.random.default_rng(0).standard_normal((shape[0] + grown, *shape[1:])), jnp.float32)
            for _ in range(4):
                np.testing.assert_allclose(called(x), jax.jit(function)(x), rtol=1e-4, atol=1e-3)
    assert f.stats().compilations <= 2  # for the first sizes, and for all
    platforms = {d.platform for d in called(x).devices()}
    assert platforms == {"gpu"}


def test_a_chain_in_one_program_is_run_many_times():
    f = hlo_disc.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)

    @jax.jit
    def chain(x):
        for _ in range(6):
            x = f(x) / x.shape[0]
        return x

    with jax.default_matmul_precision("highest"):
        x = jnp.ones((256, 256)) * 0.1
        first = np.asarray(chain(x))
        for _ in range(50):
            y = chain(x)
        np.testing.assert_array_equal(y, first)


def test_gradients():
    f = hlo_disc.jit(loss)
    with jax.default_matmul_precision("highest"):
        x = jnp.asarray(np.random.default_rng(0).standard_normal((40, 30)), jnp.float32)
        np.testing.assert_allclose(jax.grad(f)(x), jax.grad(loss)(x), rtol=1e-3, atol=1e-4)


def test_several_products_with_workspace():
    f = hlo_disc.jit(lambda x, w: jax.nn.gelu(x @ w) @ w.T)
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        x = jnp.asarray(np.random.default_rng(0).standard_normal((1000, 1024)), dtype)
        w = jnp.asarray(np.random.default_rng(1).standard_normal((1024, 4096)) / 32, dtype)
        right = jax.jit(lambda x, w: jax.nn.gelu(x @ w) @ w.T)(x, w)
        for called in (f, jax.jit(f)):
            np.testing.assert_allclose(np.float32(called(x, w)), np.float32(right), rtol=5e-2, atol=5e-1)


def test_results_are_committed_as_with_jax():
    f, g = hlo_disc.jit(lambda x: x + 1), jax.jit(lambda x: x + 1)
    x = jnp.ones(3)
    for given in (x, jax.device_put(x, jax.devices()[0]), f(x)):
        assert (f(given).committed, f(given).sharding) == (g(given).committed, g(given).sharding)


def test_arguments_on_two_machines():
    f, on_cpu = hlo_disc.jit(lambda x, y: x + y), jax.device_put(jnp.ones(3), jax.devices("cpu")[0])
    with pytest.warns(hlo_disc.FallbackWarning, match="on machines of several kinds"):
        result = f(jnp.ones(3), on_cpu)
    assert {device.platform for device in result.devices()} == {"cpu"}  # the one that is not committed moved
    np.testing.assert_array_equal(result, 2)
    np.testing.assert_array_equal(f(jnp.ones(3), jnp.ones(3)), 2)
    assert f.stats().fallbacks[0].calls == 1


def test_top_k_of_half():
    f = hlo_disc.jit(lambda x: jax.lax.top_k(x, x.shape[0] // 2), dims={"x": "(n)"})
    for n in (7, 64, 257, 5000):
        x = jnp.asarray(np.random.default_rng(n).standard_normal(n), jnp.float32)
        for ours, theirs in zip(f(x), jax.lax.top_k(x, n // 2), strict=True):
            np.testing.assert_array_equal(ours, theirs)
