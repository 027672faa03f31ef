"""These tests need NVIDIA's GPU, PyTorch and JAX that use it; without one they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hardware
import pytest

HERE = Path(__file__).parent
# JAX times many kernels for each product that it is asked for, and would take most of the GPU's memory.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if hardware.is_there():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="there is no GPU of NVIDIA's"))


@pytest.fixture(autouse=True)
def no_error_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    hardware.check(request.node.nodeid)
