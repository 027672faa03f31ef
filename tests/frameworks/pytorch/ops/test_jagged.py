"""Jagged nested tensors: sentences of different lengths as one tensor of all words, and where each begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

LENGTHS = [(3, 5, 2), (4, 4, 9, 1), (1, 7, 2, 9, 30), (512, 1)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def jagged(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.randn(n, 16) for n in lengths], layout=torch.jagged)


class Layer(nn.Module):
    """A layer of an encoder.

    PyTorch's attention on jagged tensors wants queries, keys and values of layers of their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = self.norms[0](x)
        parts = [project(y).unflatten(-1, [2, -1]).transpose(1, 2) for project in self.projections[:3]]
        x = x + self.projections[3](functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


MODELS = {
    "elements": lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
    "an encoder": lambda: nn.Sequential(Layer(), Layer()),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_models(name, training):
    model = MODELS[name]()
    ours = torch.compile(model, backend="hlo_disc", dynamic=True, options={"fallback": False})
    with torch.set_grad_enabled(training):
        for lengths in LENGTHS:
            x = jagged(lengths)
            got, wanted = ours(x), model(x)
            assert torch.equal(got.offsets(), wanted.offsets())
            torch.testing.assert_close(got.values(), wanted.values(), rtol=1e-4, atol=1e-5)
            if training:
                weights = list(model.parameters())
                found, right = (torch.autograd.grad(y.values().square().sum(), weights) for y in (got, wanted))
                torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)
