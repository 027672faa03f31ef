"""Sizes as numbers: Python's integers and floats, whatever the size."""

from __future__ import annotations

import math

import torch

import hlo_disc.torch  # noqa: F401

SIZES = (5, 128, 46341, 46342, 65537, 2**22, 2**31 - 1, 2**31, 2**31 + 1)


def numbers(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    n = x.shape[0]
    return [
        y / (n * (n - 1) / 2),
        y * (1.0 / n**2),
        y / (n**3 / 3),
        y * (n * (n - 1) * (2 * n + 5) / 18),
        y * n**2,
        y * math.sqrt(n),
        y * n**-0.5,
        y.to(torch.bfloat16) * n,
        y.to(torch.int32) * n,
        y.to(torch.int8) + n,
        y.to(torch.int8) < n,
        torch.tensor(n**2) // 2,
        torch.clamp(y * 1e12, max=n**2),
    ]


def test_as_python_computes_them() -> None:
    compiled = torch.compile(numbers, backend="hlo_disc", dynamic=True, fullgraph=True)
    y = torch.tensor(3.7)
    for n in SIZES:
        x = torch.zeros((n, 0))
        for k, (ours, theirs) in enumerate(zip(compiled(x, y), numbers(x, y), strict=True)):
            assert ours.dtype == theirs.dtype, (k, n)
            assert torch.equal(ours, theirs), (k, n, ours, theirs)
