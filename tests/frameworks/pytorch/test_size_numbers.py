"""Sizes as numbers: Python's integers and floats, whatever the size."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import hlo_disc.torch  # noqa: F401
from hlo_disc.errors import SizeOverflowError

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


SMALL = torch.tensor([1, 2, 3], dtype=torch.int8)
# What gives a number to a tensor, where arithmetic would wrap.
GIVEN: dict[str, Callable[[int], torch.Tensor]] = {
    "full": lambda n: torch.full((3,), n, dtype=torch.int8),
    "full like": lambda n: torch.full_like(SMALL, n),
    "filled": lambda n: torch.zeros(3, dtype=torch.int8).fill_(n),
    "tensor": lambda n: torch.tensor(n, dtype=torch.int8),
    "chosen": lambda n: torch.where(SMALL > 1, SMALL, n),
    "masked": lambda n: SMALL.masked_fill(SMALL > 1, n),
    "at indices": lambda n: SMALL.index_fill(0, torch.tensor([1]), n),
    "bound": lambda n: SMALL.clamp(max=n),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_type_has_to_hold_a_number_that_is_given_to_it(name: str) -> None:
    fn = GIVEN[name]
    compiled = torch.compile(lambda x: fn(x.shape[0]), backend="hlo_disc", dynamic=True, fullgraph=True)
    for n in (5, 127):
        assert torch.equal(compiled(torch.zeros(n, 0)), fn(n))
    with pytest.raises(RuntimeError, match="without overflow"):
        fn(128)
    with pytest.raises(SizeOverflowError, match="128 for the size .*: int8 does not hold it"):
        compiled(torch.zeros(128, 0))
