"""Sizes and other numbers in the static data of pytrees: one program for many, and the reason where there are more."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import hlo_disc

SIZES = ((4, 3), (5, 7), (1, 1), (3, 0))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["count", "kind"])
@dataclasses.dataclass
class Layer:
    x: Any
    count: int = 2
    kind: str = "sum"


class Shape:
    def __init__(self, n: Any):
        self.n = n


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["of"])
@dataclasses.dataclass
class Hidden:
    x: Any
    of: Any


def matrix(n: int, m: int) -> sparse.BCOO:
    dense = np.random.default_rng(n).normal(size=(n, m)).astype(np.float32)
    return sparse.BCOO.fromdense(jnp.asarray(dense * (dense > 0)), nse=n * m)


def compared(fn: Any, arguments: Any) -> hlo_disc.Stats:
    """Check that all of these calls give what `jax.jit` gives, and return what was compiled for them."""
    ours, theirs = hlo_disc.jit(fn), jax.jit(fn)
    for args in arguments:
        got, want = ours(*args), theirs(*args)
        assert jax.tree.structure(got) == jax.tree.structure(want)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), got, want)
    assert not ours.stats().fallbacks
    return ours.stats()


def test_a_sparse_matrix_of_any_shape_is_one_program():
    stats = compared(lambda m, x: m @ x, [(matrix(n, k), jnp.arange(k * 2.0).reshape(k, 2)) for n, k in SIZES])
    assert stats.compilations == 2
    assert stats.records[1].reason.startswith(
        "static data of the arguments: m.shape[0] was 4 and is now 5; m.shape[1] "
    )


def test_one_number_after_the_other():
    stats = compared(lambda m: m.todense().sum(0), [(matrix(*s),) for s in ((4, 3), (5, 3), (5, 7), (6, 2))])
    assert stats.compilations == 3


def test_results_have_the_sizes_of_their_call():
    stats = compared(lambda x: sparse.BCOO.fromdense(x, nse=4), [(jnp.ones((n, 2)),) for n in (3, 4, 5, 9)])
    assert stats.compilations == 2
    stats = compared(lambda m: (m.T, {"twice": 2 * m}), [(matrix(*s),) for s in SIZES])
    assert stats.compilations == 2


def test_sizes_that_a_result_hides_are_numbers():
    def fn(x):
        return Hidden(x * 2, Shape(x.shape[0]))

    f = hlo_disc.jit(fn)
    for n in (3, 4, 5):
        assert type(f(jnp.ones(n)).of.n) is int and f(jnp.ones(n)).of.n == n
    assert f.stats().compilations == 3


def test_numbers_that_the_function_asks_for():
    stats = compared(
        lambda layer: sum([layer.x * k for k in range(layer.count)]), [(Layer(jnp.ones(3), k),) for k in (2, 3, 4, 2)]
    )
    assert stats.compilations == 3
    stats = compared(lambda layer: layer.x * layer.count, [(Layer(jnp.ones(3), k),) for k in (2, 3, 4, 0)])
    assert stats.compilations == 2
    calls = [(Layer(jnp.ones(3), k),) for k in (2, -1, 2**40, 3, 4)]
    assert compared(lambda layer: layer.x * (layer.count % 7), calls).compilations == 4


def test_other_static_data_is_another_program_and_says_so():
    def fn(layers):
        return [getattr(jnp, layer.kind)(layer.x) for layer in layers]

    stats = compared(fn, [([Layer(jnp.ones(3)), Layer(jnp.ones(4), kind=kind)],) for kind in ("sum", "prod")])
    assert [r.reason for r in stats.records] == [
        "first call",
        "static data of the arguments: layers[1].kind was 'sum' and is now 'prod'",
    ]


def test_numpy_stays_numpy_and_numbers_stay_jax():
    f = hlo_disc.jit(lambda layer: layer.x + layer.count)
    for count in (2, 3, 4):
        assert type(f(Layer(np.ones(3, np.float32), count))) is np.ndarray
        assert isinstance(f(Layer(1.5, count)), jax.Array) and f(Layer(1.5, count)).weak_type


def test_given_dims_leave_static_data_fixed():
    f = hlo_disc.jit(lambda layer, x: x * layer.count, dims={"x": "(n)"})
    for count in (2, 3, 4):
        np.testing.assert_array_equal(f(Layer(jnp.ones(3), count), jnp.ones(count)), np.full(count, count))
    assert f.stats().compilations == 3


def mapped(f):
    return lambda x, m: jax.vmap(f, in_axes=(0, None))(jnp.stack([x, 2 * x]), m)


@pytest.mark.parametrize("around", [jax.jit, jax.grad, mapped])
def test_transformations(around):
    def fn(x, m):
        return jnp.sum(m @ jnp.sin(x))

    f = hlo_disc.jit(fn)
    for n, k in SIZES[:3]:
        got, want = (around(g)(jnp.arange(float(k)), matrix(n, k)) for g in (f, fn))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert sum(not r.backward for r in f.stats().records) <= 3 and not f.stats().fallbacks


def test_no_path_is_kept_for_each_number():
    f = hlo_disc.jit(lambda layer: layer.x * layer.count)
    for count in range(50):
        f(Layer(jnp.ones(3), count))
    (programs,) = f._by_settings.values()
    assert len(programs.paths) <= 12 and len(programs.functions) <= 2 and f.stats().calls == 50
