"""Functions of f32 that GPUs compute by their own approximations, which the emulator makes as bad as they may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.ulps import REFERENCES, SPECIAL, exact_of, numbers_of_all_sizes, ulps

import hlo_disc
from hlo_disc.targets.math.vecmath import APPROXIMATE_ULP_BOUNDS

FUNCTIONS: dict[str, Callable] = {
    "exp": jnp.exp, "tanh": jnp.tanh, "erf": jax.scipy.special.erf, "erfc": jax.scipy.special.erfc,
}  # fmt: skip


@pytest.fixture(autouse=True)
def registered(emulated_targets) -> Iterator[None]:
    yield
    emulated.check()


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_their_bounds(name, target):
    x = numbers_of_all_sizes("f32", 4000)
    result = np.asarray(hlo_disc.compile(FUNCTIONS[name], "f32[n]", target=target)(x))
    exact = exact_of(name, [x])
    assert ulps(result, exact, "f32").max() <= APPROXIMATE_ULP_BOUNDS[name]
    np.testing.assert_array_equal(np.signbit(result) | np.isnan(exact), np.signbit(exact) | np.isnan(exact))


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
def test_quotients_are_rounded_once(target):
    """Quotients have one rounding, except those of the smallest numbers and by the largest; zeros have their signs."""
    x, grid = numbers_of_all_sizes("f32", 10_000), np.array(np.meshgrid(SPECIAL, SPECIAL)).astype(np.float32)
    above = np.concatenate([x, x, grid[0].ravel()])
    below = np.concatenate([np.random.default_rng(1).permutation(x), np.full_like(x, 3.0), grid[1].ravel()])
    result = np.asarray(hlo_disc.compile(jnp.divide, "f32[n]", "f32[n]", target=target)(above, below))
    with np.errstate(all="ignore"):
        right = above / below
        exact = above.astype(np.float64) / below.astype(np.float64)
    once = (np.abs(above) >= 2.0**-100) | (above == 0)
    once &= (np.abs(below) <= 2.0**126) | (np.abs(exact) >= 2.0**-126) | ~np.isfinite(below)
    assert ulps(result[once], exact[once], "f32").max() < 0.5001
    np.testing.assert_array_equal(np.signbit(result) | np.isnan(right), np.signbit(right) | np.isnan(right))
    assert ulps(result, exact, "f32").max() <= APPROXIMATE_ULP_BOUNDS["divide"]


def test_every_bound_is_tested():
    assert set(APPROXIMATE_ULP_BOUNDS) == {*FUNCTIONS, "divide"} and set(FUNCTIONS) <= set(REFERENCES)
