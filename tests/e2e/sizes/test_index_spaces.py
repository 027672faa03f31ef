"""Index spaces that are not in memory: those that 64 bits do not count are refused, and empty ones take no time.

The sizes beside a 0 are so large that a loop over them would never end.
"""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import OutOfMemoryError

WIDE = np.empty((0, 1 << 32), np.float32)
TOO_MANY = "has more elements or bytes than 64 bits can count"

BEYOND = {
    "iota": (lambda x: jnp.arange(x.shape[1] * x.shape[1] + 5, dtype=np.float32).sum(), WIDE),
    "broadcast": (lambda x: jnp.ones((x.shape[1], x.shape[1])).max(), WIDE),
    "by a number": (lambda x: jnp.ones((x.shape[1], 16)).sum(), np.empty((0, 1 << 60), np.float32)),
    "columns": (lambda x: jnp.ones((x.shape[1], x.shape[1], 7)).sum((0, 2))[:3], WIDE),
    "a third axis": (lambda x: (x[0, :, None, None] * x[0, :, None] * x[0]).sum(), np.ones((1, 1 << 21), np.float32)),
    "in a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + jnp.ones((x.shape[1],) * 2).sum(), 0.0), WIDE),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_64_bits_do_not_count_is_refused(name: str) -> None:
    f, x = BEYOND[name]
    exe = hlo_disc.compile(f, "f32[a, b]")
    with pytest.raises(OutOfMemoryError, match=TOO_MANY) as raised:
        exe(x)
    assert f"for x {x.shape}" in str(raised.value)
    small = np.ones((1, 5), np.float32)
    np.testing.assert_allclose(exe(small), f(small))


def test_a_guard_that_overflows_is_not_taken_for_one_that_holds() -> None:
    exe = hlo_disc.compile(lambda x, y: x.sum() + y.sum(), "f32[a, b]", "f32[n, c]", constraints=["b*b <= 9"])
    with pytest.raises(OutOfMemoryError, match=TOO_MANY):
        exe(WIDE, WIDE)
    assert exe(np.ones((2, 3), np.float32), WIDE) == 6


def test_sizes_that_depend_on_data(tmp_path) -> None:
    text = """
        func.func @main(%n: tensor<i32>) -> tensor<f32> {
          %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
          %t = stablehlo.concatenate %s, %s, %s, dim = 0
            : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %all = stablehlo.dynamic_broadcast_in_dim %one, %t, dims = []
            : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x?xf32>
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %sum = stablehlo.reduce(%all init: %zero) applies stablehlo.add across dimensions = [0, 1, 2]
            : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<f32>
          return %sum : tensor<f32>
        }"""
    (tmp_path / "cube.mlir").write_text(text)
    exe = hlo_disc.compile(tmp_path / "cube.mlir")
    assert exe(np.int32(3)) == 27
    with pytest.raises(OutOfMemoryError, match="4611686018427387904|of a size that depends on data " + TOO_MANY):
        exe(np.int32(1 << 21))


N = 40_000_000


def spread(x):
    """(n, n, 0) of (0, n)."""
    return jnp.broadcast_to(x.T[:, None, :], (x.shape[1], x.shape[1], x.shape[0]))


def scattered(x):
    return jnp.zeros(5).at[jnp.zeros((x.shape[1], x.shape[1], x.shape[0]), jnp.int32)].set(spread(x))


def at_once(exe, *args):
    """A call that ends. A loop over 10^15 elements of nothing would not, in days."""
    results = []
    call = threading.Thread(target=lambda: results.append(exe(*args)), daemon=True)
    call.start()
    call.join(30)
    assert not call.is_alive(), "the call walks over what has no elements"
    return results[0]


EMPTY = {
    "sum": lambda x: (x.T[:, None, :] * x.T[None]).sum(axis=(0, 1, 2)),
    "sum of the first axis": lambda x: (x[:, None, :] * x[:, :, None]).sum(axis=(0, 1, 2)),
    "sum across": lambda x: (x.T[:, :, None] * x[None]).sum(axis=(0, 1, 2)),
    "two sums": lambda x: (jnp.exp(spread(x)).sum((0, 1)), jnp.max(spread(x) + 1, initial=0.0)),
    "region": lambda x: jax.lax.reduce(spread(x), 0.0, lambda a, b: a * b + a + b, (0, 1, 2)),
    "map": lambda x: jnp.transpose(spread(jnp.exp(x)), (1, 0, 2)) * spread(x),
    "softmax": lambda x: jax.nn.softmax(spread(x), -1),
    "cumsum": lambda x: jnp.cumsum(spread(x), 1),
    "sort": lambda x: jnp.sort(spread(x), 1),
    "concatenate": lambda x: jnp.concatenate([spread(x), spread(x + 1)], 1),
    "pad": lambda x: jnp.pad(x[:, :, None] * x[:, None, :], ((0, 0), (1, 1), (0, 0))),
    "window": lambda x: jax.lax.reduce_window(
        x[:, :, None] * x[:, None], 0.0, jax.lax.add, (1, 3, 3), (1, 2, 2), "SAME"
    ),
    "scatter": scattered,
    "scatter of sums": lambda x: jnp.zeros(5).at[jnp.zeros((x.shape[1],) * 2 + (x.shape[0],), int)].add(spread(x)),
    "loop": lambda x: jax.lax.fori_loop(0, 2, lambda i, y: y * 2 + 1, x[:, :, None] * x[:, None, :]),
    "dot": lambda x: jnp.einsum("ijk,ijk->", spread(x), spread(x * 2)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_takes_no_time(name: str) -> None:
    f = EMPTY[name]
    exe = hlo_disc.compile(f, "f32[a, b]")
    got = at_once(exe, np.empty((0, N), np.float32))
    want = jax.eval_shape(f, np.empty((0, N), np.float32))
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, np.zeros(x.shape))
    x = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), exe(x), f(x))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("rule", ["mijk,ijk->m", "mijk,ijkn->mn", "ijkm,nijk->mn", "ijkm,ijkn->mn", "bmijk,bijkn->bmn"])
def test_dots_over_nothing(rule: str, dtype: str) -> None:
    left, right = rule.split("->")[0].split(",")
    exe = hlo_disc.compile(lambda x, y: jnp.einsum(rule, x, y), *(f"{dtype}[{', '.join(s)}]" for s in (left, right)))
    element = {"f32": np.float32, "bf16": jnp.bfloat16}[dtype]
    for i, j, k in ((N, N, 0), (0, N, N), (N, 0, N), (2, 3, 0)):
        sizes = dict(m=70, n=50, b=2, i=i, j=j, k=k)
        shapes = [[sizes[s] for s in axes] for axes in (left, right)]
        got = at_once(exe, *(np.empty(shape, element) for shape in shapes))
        assert not got.astype(np.float32).any()


@pytest.mark.parametrize("end", [2**62 + 3, 2**63 - 1])
def test_a_slice_to_beyond_any_end(end):
    """A number in a minimum with a size says nothing of how many elements there are."""
    executable = hlo_disc.compile(lambda x: jnp.sort(x[:end]) * 2, "f32[n]")
    for n in (5, 1, 0):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(executable(x), x * 2)
