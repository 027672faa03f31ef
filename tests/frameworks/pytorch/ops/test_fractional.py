"""Fractional pools, next to eager mode: values, places and gradients, with NaNs, at sizes that change."""

from __future__ import annotations

import depth
import pytest
import torch
from torch.nn import functional as F

POOLS = {
    "planes": (2, lambda x, s: F.fractional_max_pool2d(x, (2, 3), (4, 5), _random_samples=s, return_indices=True)),
    "boxes": (3, lambda x, s: F.fractional_max_pool3d(x, (2, 2, 3), (3, 4, 5), _random_samples=s, return_indices=True)),
    "a part": (2, lambda x, s: F.fractional_max_pool2d(x, 2, None, (0.6, 0.7), _random_samples=s, return_indices=True)),
    "one": (2, lambda x, s: F.fractional_max_pool2d(x, 2, 1, _random_samples=s, return_indices=True)),
}  # fmt: skip


@depth.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", POOLS)
def test_as_eager_mode(name, dtype):
    torch._dynamo.reset()
    axes, pool = POOLS[name]
    run = torch.compile(pool, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for batch, size in ((2, 11), (3, 17), (None, 12)):
        shape = (() if batch is None else (batch,)) + (3, *range(size, size + axes))
        x = torch.randn(shape, dtype=dtype)
        x.view(-1)[3:7] = torch.nan
        x.requires_grad_(axes == 2)  # PyTorch traces no gradients of the other
        samples = torch.rand((batch or 1) + 1, 3, axes, dtype=dtype)
        got, wanted = run(x, samples), pool(x, samples)
        assert torch.equal(got[1], wanted[1])
        torch.testing.assert_close(got[0], wanted[0], equal_nan=True, rtol=0, atol=0)
        if x.requires_grad:
            losses = (y.nan_to_num().square().sum() for y in (got[0], wanted[0]))
            ours, theirs = (torch.autograd.grad(loss, x)[0] for loss in losses)
            torch.testing.assert_close(ours, theirs)
