"""Large tensors, and what happens where memory is short. Nothing else should run beside."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import hlo_disc
from hlo_disc import ral

torch = pytest.importorskip("torch")


def test_too_large_and_again():
    f = hlo_disc.compile(lambda x: jnp.cumsum(jnp.broadcast_to(x, (1 << 16, x.shape[0])), 1), "f32[n]", target="cuda")
    with pytest.raises(hlo_disc.HloDiscError):
        f(torch.ones(1 << 22, device="cuda"))
    f(torch.ones(4, device="cuda"))
    assert bool((torch.ones(4, device="cuda") == 1).all())


def test_two_to_the_30_elements():
    f = hlo_disc.compile(lambda x: (x + 1, x.sum(), x.max(0)), "f32[m, n]", target="cuda")
    for m, n in ((4, (1 << 28) + 3), ((1 << 28) + 3, 4), (3, (1 << 30) // 3 + 5)):
        x = torch.randint(0, 2, (m, n), device="cuda", dtype=torch.int8).float()
        y, total, most = map(torch.from_dlpack, f(x))
        assert bool((y == x + 1).all())
        assert abs(float(total) - float(x.double().sum())) < 1e-4 * m * n
        assert bool((most == x.max(0).values).all())
        del x, y


def test_memory_of_ours_does_not_starve_others():
    f = hlo_disc.compile(lambda x: x * 2, "f32[n]", target="cuda")
    total = torch.cuda.mem_get_info()[1]
    f(torch.ones(total // 4 // 4, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    held = [torch.empty(total // 100 * 85, dtype=torch.int8, device="cuda")]
    del held


def test_what_is_kept_is_given_back():
    f = hlo_disc.compile(lambda x: x * 2, "f32[n]", target="cuda")
    f(torch.ones(1 << 28, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    ral.trim()
    before = torch.cuda.mem_get_info()[0]
    f(torch.ones(1 << 28, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    ral.trim()
    assert abs(torch.cuda.mem_get_info()[0] - before) < 1 << 26
