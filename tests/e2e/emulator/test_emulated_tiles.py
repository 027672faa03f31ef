"""Transposes of a GPU, by square tiles in fast memory: the CPU's results in three orders of threads."""

from __future__ import annotations

import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_emulated_gpu import ORDERS, arrays

import hlo_disc

# Around the least size for tiles, and around whole tiles; more tiles than a block has; empty ones.
SIZES = ((7, 40), (8, 8), (9, 40), (31, 33), (32, 32), (40, 7), (33, 65), (130, 150), (600, 33), (0, 9), (9, 0), (1, 1))
PROGRAMS = {
    "transpose": (lambda x: x.T * 2, ("f32[m, n]",)),
    "of halves": (lambda x, y: jax.nn.relu(x.T) + y, ("bf16[m, n]", "bf16[n, m]")),
    "two": (lambda x, y: (x.T + y.T, x.T - y.T[::-1]), ("i32[m, n]", "i32[m, n]")),
    "in two places": (lambda x, i: x.T + jnp.take(x.T, i, axis=0, mode="clip"), ("f32[m, n]", "i32[n]")),
    "in a batch": (lambda x, y: jnp.swapaxes(x.reshape(3, -1, y.shape[0]), 1, 2) + 1, ("f32[3*n, m]", "f32[m]")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles(name, emulated_targets):
    function, specs = PROGRAMS[name]
    executable, cpu = (hlo_disc.compile(function, *specs, target=target) for target in ("emulated-cuda", "cpu"))
    assert b"map_256_tiles" in executable.program.object
    for m, n in SIZES:
        given = arrays(specs, m, n) if "batch" not in name else arrays(("f32[m, n]", "f32[m]"), m, 3 * n)
        given[0] = given[0].T if "batch" in name else given[0]
        given = [np.ascontiguousarray(x) for x in given]
        expected = jax.tree.leaves(cpu(*given))
        for order in ORDERS:
            emulated.emulator().simt_order(order)
            result = jax.tree.leaves(executable(*given))
            emulated.check()
            for x, y in zip(result, expected, strict=True):
                np.testing.assert_array_equal(x, y)
    emulated.emulator().simt_order(0)
