"""Sorts, and the first elements of sorts, as kernels of a GPU: they touch no memory but their own."""

from __future__ import annotations

from collections.abc import Iterator

import emulated
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.stitch.codegen.lanes import SimdLanes

# Around the columns and runs that are sorted in fast memory, the parts of a selection, and the tiles of merges.
LENGTHS = (0, 1, 7, 9, 127, 131, 1023, 1025, 4097, 9000)


@pytest.fixture(autouse=True)
def registered(emulated_targets) -> Iterator[None]:
    yield
    emulated.check()


def numbers(rows: int, n: int) -> np.ndarray:
    """Return numbers, some of which are equal."""
    return np.random.default_rng(n).integers(-50, 50, (rows, n)).astype(np.float32)


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
def test_sorts(target):
    executable = hlo_disc.compile(lambda x: (jnp.sort(x), jnp.argsort(x)), "f32[m, n]", target=target)
    for n in LENGTHS:
        x = numbers(2, n)
        values, places = executable(x)
        emulated.check()
        np.testing.assert_array_equal(values, np.sort(x))
        np.testing.assert_array_equal(places, np.argsort(x, stable=True))


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("k", [1, 10, 300, 3000])
def test_the_largest(k, target):
    executable = hlo_disc.compile(lambda x: lax.top_k(x, k), "f32[m, n]", constraints=[f"n >= {k}"], target=target)
    for n in sorted({max(n, k) for n in LENGTHS}):
        x = numbers(3, n)
        values, places = executable(x)
        emulated.check()
        right = np.argsort(-x, stable=True)[:, :k]
        np.testing.assert_array_equal(places, right)
        np.testing.assert_array_equal(values, np.take_along_axis(x, right, 1))


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-ptx", "emulated-rocm"])
def test_the_larger_half(target):
    executable = hlo_disc.compile(lambda x: lax.top_k(x, x.shape[1] // 2), "f32[m, n]", target=target)
    for n in LENGTHS:
        x = numbers(2, n)
        for ours, theirs in zip(executable(x), lax.top_k(jnp.asarray(x), n // 2), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("target", ["cuda", "rocm"])
def test_no_thread_compresses_vectors(target, monkeypatch):
    """Sorts for GPUs compress no vectors: LLVM's code for that uses a stack, and reads it at the wrong multiples."""
    monkeypatch.setattr(SimdLanes, "_compress", lambda *_: pytest.fail("a vector is compressed"))
    hlo_disc.compile(lambda x: lax.top_k(x, x.shape[0] // 2), "f32[n]", target=target)
