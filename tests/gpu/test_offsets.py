"""Arguments that begin anywhere: views of a tensor are as right as whole ones."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc

torch = pytest.importorskip("torch")

PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "map": (lambda x: jnp.tanh(x) * x + 1, ("f32[m, n]",)),
    "row sum": (lambda x: x.sum(-1), ("f32[m, n]",)),
    "softmax": (lambda x: jax.nn.softmax(x), ("f32[m, n]",)),
    "column sum": (lambda x: x.sum(0), ("f32[m, n]",)),
    "whole sum": (lambda x: x.sum(), ("f32[m, n]",)),
    "transpose": (lambda x: x.T + 0, ("f32[m, n]",)),
    "cumsum": (lambda x: jnp.cumsum(x, 1), ("f32[m, n]",)),
    "sort": (lambda x: jnp.sort(x, 1), ("f32[m, n]",)),
    "dot": (lambda x: x @ x.T, ("f32[m, n]",)),
    "bf16 map": (lambda x: x * 2 + 1, ("bf16[m, n]",)),
    "bf16 dot": (lambda x: x @ x.T, ("bf16[m, n]",)),
    "gather": (lambda x: x[jnp.arange(x.shape[0]) // 2], ("f32[m, n]",)),
    "pad": (lambda x: jnp.pad(x, 1), ("f32[m, n]",)),
}
SHAPES = ((8, 128), (64, 1024), (3, 4), (256, 256))


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_right(name, offset):
    function, specs = PROGRAMS[name]
    small = "bf16" in name
    dtype, most_off = (
        (torch.bfloat16, {"rtol": 2e-2, "atol": 1}) if small else (torch.float32, {"rtol": 1e-4, "atol": 1e-3})
    )
    with jax.default_matmul_precision("highest"):
        executable = hlo_disc.compile(function, *specs, target="cuda")
        on_cpu = jax.jit(function, backend="cpu")
        for m, n in SHAPES:
            base = torch.randn(m * n + 8, device="cuda").to(dtype)
            x = base[offset : offset + m * n].view(m, n)
            result = torch.from_dlpack(executable(x)).float().cpu().numpy()
            given = x.float().cpu().numpy().astype(jnp.bfloat16 if small else np.float32)
            np.testing.assert_allclose(result, np.asarray(on_cpu(given), np.float32), **most_off)


GAPS: dict[str, Callable] = {
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "a part of rows": lambda x: x[:, 1:4],
    "broadcast": lambda x: x[:1].expand(5, -1),
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps(name):
    executable = hlo_disc.compile(lambda x: jnp.tanh(x) + 1, "f32[m, n]", target="cuda")
    for m, n in SHAPES:
        x = GAPS[name](torch.randn(m, n, device="cuda"))
        result = torch.from_dlpack(executable(x))
        torch.testing.assert_close(result, torch.tanh(x) + 1, rtol=1e-5, atol=1e-6)
