"""A product has one rounding, wherever and however often it is computed: two loops of a kernel, groups, a gradient.

If it were rounded in one place and fused into a sum in another one (an FMA), `p - max(p)` would not be 0 there. Each
function counts what must be exactly so; numpy and eager JAX count the same.
"""

from __future__ import annotations

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--target")
        metafunc.parametrize("target", [chosen] if chosen else ["cpu", "cpu:avx2"])


SHAPES = ((3, 4), (5, 6), (1, 1), (10, 10), (5, 33), (2, 700), (1, 0), (17, 127))


def nan_below_the_minimum(x, y):
    return jnp.isnan(jnp.sqrt(x * y - (x * y).min(-1, keepdims=True))).sum()


def nan_in_a_sum_with_a_product(x, y):
    p = x * y + x
    return jnp.isnan(jnp.sqrt(p.max(-1, keepdims=True, initial=-jnp.inf) - p)).sum()


def rows_without_a_largest(x, y):
    p = y - x * y
    return (~(p - p.max(-1, keepdims=True) >= 0).any(-1)).sum()


def columns_without_a_largest(x, y):
    p = x * y - y
    return (~(p >= p.max(0)).any(0)).sum()


def products_apart_from_themselves(x, y):
    """Count the elements that differ from the same elements, found in another way."""
    p = x * y
    return (p[jnp.arange(x.shape[0]), :1].ravel() - p[:, :1].ravel() != 0).sum()


def products_of_equals(x, y):
    return (x * y - y * x != 0).sum() + jnp.isnan(jnp.sqrt(x * x - jnp.flip(jnp.flip(x) * jnp.flip(x)))).sum()


def nan_in_a_loop(x, y):
    root = jax.lax.fori_loop(0, 3, lambda i, c: jnp.sqrt((c * y).max(initial=0) - c * y), jnp.abs(x))
    return jnp.isnan(root).sum()


def nan_in_softmax_of_large_scores(x, y):
    return jnp.isnan(jax.nn.softmax(x * 1e14)).sum() + jnp.isinf(jax.nn.log_softmax(x * 1e30 + y)).sum()


def nan_in_attention_of_large_scores(x, y):
    return jnp.isnan(jax.nn.softmax((x @ y.T) * 1e14 + 1e12) @ y).sum()


COUNTS = (
    nan_below_the_minimum,
    nan_in_a_sum_with_a_product,
    rows_without_a_largest,
    columns_without_a_largest,
    products_apart_from_themselves,
    products_of_equals,
    nan_in_a_loop,
    nan_in_softmax_of_large_scores,
    nan_in_attention_of_large_scores,
)
_NEEDS_AN_ELEMENT = (nan_below_the_minimum, rows_without_a_largest, columns_without_a_largest)


def arrays(shape):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(2)]


@depth.sampled(2)
@pytest.mark.parametrize("count", COUNTS, ids=lambda f: f.__name__)
def test_counts(count, target):
    compiled = hlo_disc.jit(count, target=target)
    for shape in SHAPES:
        if shape[-1] or count not in _NEEDS_AN_ELEMENT:
            assert int(compiled(*arrays(shape))) == 0, shape


@pytest.mark.parametrize("count", COUNTS[:4], ids=lambda f: f.__name__)
def test_counts_of_a_file(count):
    text = hlo_disc.stablehlo(count, "f32[b, s]", "f32[b, s]", constraints=["s >= 1"])
    executable = hlo_disc.compile(text)
    for shape in SHAPES:
        if shape[-1]:
            assert int(executable(*arrays(shape))) == 0, shape


LOSSES = {
    "product, and the maximum of a sum with it": lambda x, y: (x * y + x).max() + (x * y).sum(),
    "of rows": lambda x, y: (x * y + x).max(-1).sum() + (x * y).sum(),
    "of columns": lambda x, y: jax.nn.relu(x * y + x).max(0).sum() + (x * y).sum(),
    "beside a function": lambda x, y: (jnp.tanh(x * y) + (x * y + y).max(-1, keepdims=True)).sum(),
    "alone": lambda x, y: (y - x * y).min(-1).sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients_of_maxima(loss):
    """Gradients of maxima go to the elements that equal the maximum. A program after that of the maximum finds them."""
    compiled = hlo_disc.jit(loss)
    for shape in ((4, 10), (3, 5), (10, 2), (2, 33), (64, 64)):
        x, y = map(jnp.asarray, arrays(shape))
        for got, want in zip(jax.grad(compiled, (0, 1))(x, y), jax.grad(loss, (0, 1))(x, y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_arithmetic_is_numpys_bit_for_bit(target):
    """Operations that IEEE 754 rounds, chained in all kernels there are for them."""

    def chain(x, y, z):
        p = x * y + z
        return p, p * x - y, (p - z) / (y + x), jnp.sqrt(jnp.abs(x * x - y * z)), (x * y - p.max(0)) * z

    compiled = hlo_disc.jit(chain, target=target)
    for shape in SHAPES:
        if all(shape):
            x, y, z = (np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(3))
            p = x * y + z
            want = p, p * x - y, (p - z) / (y + x), np.sqrt(np.abs(x * x - y * z)), (x * y - p.max(0)) * z
            for got, expected in zip(compiled(x, y, z), want, strict=True):
                np.testing.assert_array_equal(got, expected)
