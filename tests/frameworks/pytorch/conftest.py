"""Tests of PyTorch's programs, which `make test-frameworks` runs: elsewhere there is no PyTorch."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*"]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Give a test the same random numbers whichever tests ran before it."""
    import torch

    torch.manual_seed(0)
