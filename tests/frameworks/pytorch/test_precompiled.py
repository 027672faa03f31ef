"""PyTorch's `aot_compile`: compiled before the first call, saved, and read by another process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import child
import pytest
import torch
from torch import nn

import hlo_disc

SHAPES = [2, 5, 17, 3]  # of 0 and 1 PyTorch makes programs of their own


class Counting(nn.Module):
    """A layer that counts its calls. Its results are one of numbers, a view of the argument, and a size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.linear(x).tanh(), x.view(-1), x.shape[0] * 2


def precompiled(model: nn.Module, x: torch.Tensor, **options: object):
    run = torch.compile(model, backend="hlo_disc", fullgraph=True, dynamic=True, options=options or None)
    return run.forward.aot_compile(((x,), {}))


def check(run, model: nn.Module, trained: bool) -> None:
    """Compare the compiled model with the model itself at all shapes."""
    for rows in SHAPES:
        x = torch.randn(rows, 3, requires_grad=trained)
        before = model.calls.item()
        got, flat, size = run(model, x)
        assert model.calls.item() == before + 1
        wanted = model(x)[0]
        torch.testing.assert_close(got, wanted)
        assert (flat.shape, size, flat.data_ptr()) == ((3 * rows,), 2 * rows, x.data_ptr())
        if trained:
            gradients = torch.autograd.grad(got.square().sum(), [x, *model.parameters()])
            for a, b in zip(
                gradients, torch.autograd.grad(wanted.square().sum(), [x, *model.parameters()]), strict=True
            ):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("trained", [False, True])
def test_it_runs_at_every_shape(trained):
    model = Counting().requires_grad_(trained)
    check(precompiled(model, torch.ones(2, 3, requires_grad=trained)), model, trained)


READER = """
import sys, torch
from test_precompiled import Counting, check
with open(sys.argv[1], "rb") as file:
    run = torch.compiler.load_compiled_function(file)
check(run, Counting(), True)
"""


def test_another_process_reads_it(tmp_path):
    precompiled(Counting(), torch.ones(2, 3, requires_grad=True)).save_compiled_function(str(tmp_path / "saved"))
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    child.python("-c", READER, tmp_path / "saved", env={**os.environ, "PYTHONPATH": paths}, timeout=300)


def test_what_cannot_be_compiled_is_an_error():
    class Halves(nn.Module):
        def forward(self, x):
            return x.to(torch.complex32) + 1

    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"aten.*test_precompiled.py:\d+.*complex32"):
        precompiled(Halves(), torch.ones(2, 3))
