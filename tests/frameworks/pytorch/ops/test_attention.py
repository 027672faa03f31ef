"""Attention, however it is written, is one kernel without scores in memory: by hand, and with functions of scores."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import hlo_disc.torch

SHAPES = [(3, 2, 40, 16), (2, 4, 9, 16), (5, 3, 130, 16)]
SLOPES = torch.linspace(0.1, 1, 8)


def by_hand(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v


def masked(q, k, v):
    scores = q @ k.transpose(-2, -1) * 0.3
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -1e4).softmax(-1) @ v


def with_positions(q, k, v):
    """T5's: a bias of heads and distances."""
    place = torch.arange(q.shape[2])
    bias = SLOPES[: q.shape[1], None, None] * (place[None, :] - place[:, None]).abs()
    return (torch.matmul(q, k.transpose(3, 2)) - bias).softmax(-1).matmul(v)


def einsum(q, k, v):
    return torch.einsum("bhqk,bhkd->bqhd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)


def scored(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + SLOPES[h] * (j - i))


def windowed(q, k, v):
    length = q.shape[2]
    mask = create_block_mask(lambda b, h, i, j: (i - j).abs() < 3 + h, None, q.shape[1], length, length, device="cpu")
    return flex_attention(q, k, v, block_mask=mask, score_mod=lambda score, b, h, i, j: torch.tanh(score))


FORMS = {f.__name__: f for f in (by_hand, masked, with_positions, einsum, scored, windowed)}


@pytest.mark.parametrize("name", FORMS)
def test_one_kernel(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    run = torch.compile(FORMS[name], backend="hlo_disc", dynamic=True, options={"fallback": False})
    with torch.no_grad():
        for shape in SHAPES:
            q, k, v = torch.randn(3, *shape)
            torch.testing.assert_close(run(q, k, v), FORMS[name](q, k, v), rtol=1e-5, atol=1e-5)
    (program,) = hlo_disc.torch.compilations()[-1].programs
    kernels = [line for line in program.splitlines() if "_attention" in line]
    assert len(kernels) == 1 and "2 dot_general" in kernels[0], program


@pytest.mark.parametrize("name", ["by_hand", "with_positions"])
def test_gradients(name):
    torch._dynamo.reset()
    run = torch.compile(FORMS[name], backend="hlo_disc", dynamic=True, options={"fallback": False})
    for shape in SHAPES:
        given = torch.randn(3, *shape, requires_grad=True)
        got, want = (torch.autograd.grad(f(*given).square().sum(), given)[0] for f in (run, FORMS[name]))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_hidden_rows_and_what_is_known_of_rows():
    def fn(q, k, v):
        hidden = create_block_mask(
            lambda b, h, i, j: (i > 2) & (j < i), None, None, q.shape[2], k.shape[2], device="cpu"
        )
        return flex_attention(q, k, v, block_mask=hidden, return_aux=AuxRequest(lse=True))

    torch._dynamo.reset()
    run = torch.compile(fn, backend="hlo_disc", dynamic=True, options={"fallback": False})
    with torch.no_grad():
        for shape in SHAPES:
            q, k, v = torch.randn(3, *shape)
            (got, more), (want, wanted) = run(q, k, v), fn(q, k, v)
            assert got[:, :, :3].eq(0).all() and more.lse[:, :, :3].eq(-torch.inf).all()
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(more.lse, wanted.lse, rtol=1e-5, atol=1e-5)
