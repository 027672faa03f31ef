"""Random numbers: seeds of PyTorch's generator, distributions, and masks that a gradient sees again."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiled(fn):
    return torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})


def test_equal_seeds_give_equal_numbers_and_calls_differ():
    draw = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))
    x = torch.empty(31, 17)
    torch.manual_seed(5)
    first, second = draw(x), draw(x)
    torch.manual_seed(5)
    again = draw(x)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], second[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_numbers_are_spread_evenly_below_one(dtype):
    made = compiled(lambda x: torch.rand(x.shape, dtype=dtype))(torch.empty(400, 250)).double()
    assert made.dtype == torch.float64 and made.min() >= 0 and made.max() < 1
    counts = torch.histc(made, 16, 0, 1)
    assert (counts - made.numel() / 16).abs().max() < 5 * (made.numel() / 16) ** 0.5
    rows = made - 0.5  # of which neighbours have nothing in common
    assert ((rows[:, :-1] * rows[:, 1:]).mean() * 12).abs() < 5 / made.numel() ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_have_the_moments_of_their_distribution(dtype):
    made = compiled(lambda x: torch.randn(x.shape, dtype=dtype) * 2 + 1)(torch.empty(401, 251)).double()
    unit = (made - 1) / 2
    for power, moment, deviation in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert (unit.pow(power).mean() - moment).abs() < 5 * (deviation / unit.numel()) ** 0.5


def test_integers_choices_and_permutations():
    def draw(x, weights):
        n = x.shape[0]
        whole = torch.randint(-3, 4, (n,))
        chosen = torch.multinomial(weights, n, replacement=True)
        return whole, torch.randperm(n), chosen, torch.multinomial(weights, 3), torch.bernoulli(torch.full((n,), 0.3))

    whole, order, chosen, few, flags = compiled(draw)(torch.empty(20_000), torch.tensor([0.1, 0.0, 0.6, 0.3]))
    counts = torch.bincount(whole + 3, minlength=7)
    assert len(counts) == 7 and (counts - 20_000 / 7).abs().max() < 250
    assert torch.equal(order.sort().values, torch.arange(20_000)) and not torch.equal(order, torch.arange(20_000))
    shares = torch.bincount(chosen, minlength=4) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.0, 0.6, 0.3]), atol=0.02, rtol=0)
    assert few.sort().values.tolist() == [0, 2, 3]
    assert abs(flags.mean() - 0.3) < 0.02


def test_a_gradient_sees_the_mask_of_its_forward_pass():
    drop = compiled(lambda x: torch.nn.functional.dropout(x * 2, 0.4))
    for shape in [(50, 40), (31, 7)]:
        x = torch.ones(shape, requires_grad=True)
        made = drop(x)
        made.sum().backward()
        assert torch.equal(x.grad != 0, made != 0)
        assert made.unique().tolist() == pytest.approx([0.0, 2 / 0.6])
    assert abs((drop(torch.ones(200, 200)) != 0).float().mean() - 0.6) < 0.02
