"""`torch.compile(…, backend="hlo_disc")`: modules next to eager mode, at shapes that change."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_an_encoder_layer_at_every_shape():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    compiled = torch.compile(layer, backend="hlo_disc", dynamic=True)
    for shape in [(3, 7), (5, 11), (2, 9), (64, 2)]:
        x = torch.randn(*shape, 32)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


def test_gradients_of_inputs_and_weights():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    compiled = torch.compile(model, backend="hlo_disc", dynamic=True)
    for batch in (3, 5, 9):
        x = torch.randn(batch, 8, requires_grad=True)
        wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        found = torch.autograd.grad(compiled(x).square().sum(), [x, *model.parameters()])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [0.0, 3.0, float("-inf"), float("nan")])
def test_softmax_of_a_single_number(number):
    def both(x):
        return torch.softmax(x, 0), torch.log_softmax(x, 0)

    x = torch.tensor(number)
    got = torch.compile(both, backend="hlo_disc", options={"fallback": False})(x)
    torch.testing.assert_close(got, both(x), equal_nan=True)
