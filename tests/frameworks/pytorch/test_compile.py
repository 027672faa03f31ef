"""`torch.compile(…, backend="hlo_disc")`: modules next to eager mode, at shapes that change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import depth
import pytest
import torch
from torch import nn

from hlo_disc.errors import OutOfMemoryError


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


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


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: (x * y).sum() + (x * y + x).amax(-1).sum(),
        lambda x, y: (x * y).sum() + (x * y + x).relu().amax(0).sum(),
        lambda x, y: ((x * y).tanh() + (x * y + y).amax(-1, keepdim=True)).sum(),
    ],
    ids=["rows", "columns", "beside a function"],
)
def test_gradients_of_maxima(loss):
    """The backward graph finds the elements that equal a maximum which the forward graph has computed."""
    compiled = torch.compile(loss, backend="hlo_disc", dynamic=True)
    for shape in [(4, 10), (3, 5), (10, 2), (2, 33), (64, 64)]:
        x, y = (torch.randn(shape, requires_grad=True) for _ in range(2))
        wanted = torch.autograd.grad(loss(x, y), (x, y))
        torch.testing.assert_close(torch.autograd.grad(compiled(x, y), (x, y)), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * -1.7e14).softmax(-1),
        lambda x: (x * 1e30).log_softmax(-1),
        lambda x: ((x @ x.T) / -1e-4 * 1e8).softmax(-1) @ x,
    ],
    ids=["softmax", "log_softmax", "attention"],
)
def test_softmax_of_large_scores(function):
    compiled = torch.compile(function, backend="hlo_disc", dynamic=True)
    for shape in [(10, 10), (3, 4), (5, 33), (2, 700)]:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-3, atol=1e-5)


def test_a_scan_whose_halves_have_one_row():
    def scan(a):  # odd places from pairs, even ones from these
        n = a.shape[0]
        if n < 2:
            return a
        odd = scan(a[:-1:2] * a[1::2])
        even = odd[:-1] * a[2::2] if n % 2 == 0 else odd * a[2::2]
        out = torch.zeros_like(a)
        out[::2], out[1::2] = torch.cat([a[:1], even]), odd
        return out

    compiled = torch.compile(scan, backend="hlo_disc", dynamic=True)
    for n in (12, 13):
        x = torch.rand(n, 4)
        torch.testing.assert_close(compiled(x), x.cumprod(0))


@pytest.mark.parametrize("number", [0.0, 3.0, float("-inf"), float("nan")])
def test_softmax_of_a_single_number(number):
    def both(x):
        return torch.softmax(x, 0), torch.log_softmax(x, 0)

    x = torch.tensor(number)
    got = torch.compile(both, backend="hlo_disc", options={"fallback": False})(x)
    torch.testing.assert_close(got, both(x), equal_nan=True)


CALLS = depth.examples(2_000, 10_000)


def test_eight_threads_at_changing_shapes_while_a_weight_changes():
    """Each call sees the weight as its thread last set it, whatever the others do."""
    compiled = torch.compile(lambda x, w: (x * w + 1, (x * w).sum(0)), backend="hlo_disc", dynamic=True)
    inputs = [torch.arange(3.0 * n).reshape(n, 3) for n in range(16)]

    def calls(seed: int) -> int:
        weight = torch.ones(3)
        for i in range(CALLS):
            n = (i * 7 + seed) % 16
            weight.fill_(i % 5)
            y, total = compiled(inputs[n], weight)
            assert y.shape == (n, 3) and total[2] == (i % 5) * sum(range(2, 3 * n, 3))
            assert not n or y[-1, -1] == (3 * n - 1) * (i % 5) + 1
        return CALLS

    for n in (5, 0, 1):  # PyTorch has graphs of their own for the last two
        compiled(inputs[n], torch.ones(3))
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(calls, range(8))) == 8 * CALLS


def test_no_memory_and_then_some():
    compiled = torch.compile(lambda x, y: x[:, None] * y, backend="hlo_disc", dynamic=True)
    many = torch.zeros(1 << 23)  # 2^48 bytes, more than a process can address
    with pytest.raises(OutOfMemoryError):
        compiled(many, many)
    torch.testing.assert_close(compiled(torch.ones(3), torch.arange(2.0)), torch.arange(2.0).expand(3, 2))


def test_the_callers_floating_point_mode_changes_nothing():
    """PyTorch sets it for a thread, and its own ops follow it."""

    def f(x):
        return x * 0.7, x / 3 + 1

    compiled, x = torch.compile(f, backend="hlo_disc", dynamic=True), torch.full((300_000,), 5e-40)
    want = f(x)
    assert torch.set_flush_denormal(True)
    try:
        found = [compiled(x) for _ in range(5)]
    finally:
        torch.set_flush_denormal(False)
    for results in found:
        assert all(torch.equal(y, z) for y, z in zip(results, want, strict=True))
