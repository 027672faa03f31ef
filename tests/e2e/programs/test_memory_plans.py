"""The memory of whole programs."""

from __future__ import annotations

import jax
import pytest

import hlo_disc


def test_slots_are_whole_cache_lines() -> None:
    """An intermediate of 16 rows has 192 bytes, one of 17 rows 204, and there are two: each grows by a cache line."""
    exe = hlo_disc.compile(lambda x, w: x @ w @ w @ w, "f32[n, 3]", "f32[3, 3]", threads=1)
    assert exe.memory(n=17).temporary - exe.memory(n=16).temporary == 2 * 64


@pytest.mark.parametrize(
    "function", [jax.nn.softmax, lambda x: jax.nn.softmax(x.T @ x) @ x.T], ids=["rows", "attention"]
)
def test_fast_memory_is_that_of_the_kernel_that_needs_most(function) -> None:
    """The fast memory is that of the kernel that needs most, whichever of the two it is."""
    exe = hlo_disc.compile(lambda x, y: (function(x), function(y)), "f32[16, n]", "f32[16, m]", threads=1)
    needed = [exe.memory(**dict(zip("nm", sizes, strict=True))).temporary for sizes in ((10**5, 9), (9, 10**5), (9, 9))]
    assert needed[0] == needed[1] > needed[2]
