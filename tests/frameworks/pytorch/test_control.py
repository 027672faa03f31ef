"""Graphs within graphs: branches, loops, scans, attention with functions of scores; compiled, in parts and exported."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.map import map as each_row
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import hlo_disc
import hlo_disc.torch
from hlo_disc.errors import FallbackWarning

SHAPES = [(4, 3), (6, 5), (2, 7)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def cond(test, yes, no):
    return lambda x: torch.cond(test(x), yes, no, (x,))


def check(fn, shapes=SHAPES, gradients=False):
    """Compare a function with eager mode at positive and at negative numbers, in one compilation."""
    ours = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    before = len(hlo_disc.torch.compilations())
    for shape in shapes:
        for sign in (1, -1):
            x = (torch.rand(shape) * sign).requires_grad_(gradients)
            got, wanted = ours(x), fn(x)
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
            if gradients:
                found, right = (torch.autograd.grad(y.square().sum(), x)[0] for y in (got, wanted))
                torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
    assert len(hlo_disc.torch.compilations()) - before == 1 + gradients


BRANCHES = {
    "data": cond(lambda x: x.sum() > 0, lambda x: x.sin(), lambda x: x.cos()),
    "two": cond(
        lambda x: x.sum() > 0,
        cond(lambda x: x.sum() > 5, lambda x: x + 1, lambda x: x - 1),
        lambda x: x.flip(0),
    ),
    "beside other ops": lambda x: (
        torch.cond((x * 2).mean() > 0, lambda x, y: x @ y, lambda x, y: y - x, (x @ x.T, x @ x.T + 1)) + x.sum()
    ),
    "numbers of the outside": cond(lambda x: x.sum() > 0, lambda x: x * x.shape[0] + 0.5, lambda x: x / x.shape[1]),
}
LOOPS = {
    "counted": lambda x: while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x + 0.0)),
    "until data says": lambda x: while_loop(
        lambda i, y: y.sum() < 50, lambda i, y: (i + 1, y + 1.5), (torch.tensor(0), x + 0.0)
    ),
    "not once": lambda x: while_loop(lambda y: y.sum() > 1e9, lambda y: (y + 1,), (x + 0.0,)),
    "with the outside": lambda x: while_loop(lambda y: y.sum() < 9, lambda y: (y + x * x + 1,), (x * 1.0,))[0],
}
SCANS = {
    "forward": lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(x.shape[1]), x),
    "backward": lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(x.shape[1]), x, reverse=True),
    "of two": lambda x: scan(lambda c, y: (c * 0.5 + y[0], y[1] - c), x[0] * 2, (x, x.cos())),
    "rows": lambda x: each_row(lambda y: y.softmax(0) + 1, x),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name):
    check(BRANCHES[name])


def test_a_branch_that_sizes_choose():
    check(cond(lambda x: x.shape[0] > 3, lambda x: x.sin(), lambda x: x.cos()))


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    check(LOOPS[name])


@pytest.mark.parametrize("name", SCANS)
def test_scans(name):
    check(SCANS[name])


@pytest.mark.parametrize("fn", [BRANCHES["data"], lambda x: SCANS["forward"](x)[1]], ids=["branch", "scan"])
def test_gradients(fn):
    check(fn, gradients=True)


BIAS = torch.randn(64, generator=torch.Generator().manual_seed(0))
SCORES = {
    "plain": None,
    "far away": lambda score, b, h, i, j: score + (i - j) * 0.1,
    "causal": lambda score, b, h, i, j: torch.where(i >= j, score, -float("inf")),
    "captured": lambda score, b, h, i, j: score + BIAS[i] * (h + 1),
    "capped": lambda score, b, h, i, j: 20 * torch.tanh(score / 20),
}


@pytest.mark.parametrize("name", SCORES)
def test_attention_with_a_function_of_scores(name):
    check(
        lambda q: flex_attention(q, q * 2, q + 1, score_mod=SCORES[name]),
        [(3, 2, 5, 16), (3, 2, 40, 16), (5, 2, 9, 16)],
    )


@pytest.mark.parametrize("heads", [2, 4])
def test_attention_with_a_block_mask(heads):
    def fn(q):
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], q.shape[2], device="cpu")
        k = q[:, :2]
        return flex_attention(q, k * 2, k + 1, block_mask=mask, enable_gqa=True)

    check(fn, [(3, heads, 5, 16), (3, heads, 40, 16)])


LIBRARY = torch.library.Library("control_tests", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("twice", lambda x: torch.empty_like(x), "Meta")
twice = torch.ops.control_tests.twice


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (cond(lambda x: twice(x).sum() > 0, lambda x: x.sin(), lambda x: x.cos()), "twice"),
        (cond(lambda x: x.sum() > 0, lambda x: twice(x.sin()), lambda x: x.cos()), "twice"),
        (cond(lambda x: x.sum() > 0, lambda x: x[:1].sin(), lambda x: x[:2].cos()), "cond.*differ in shape"),
        (lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 1), (0, x + 0.0))[1], "while_loop"),
        (cond(lambda x: x.sum() > 9, lambda x: torch.rand_like(x), lambda x: x.cos()), "inside a loop or a branch"),
        (
            cond(lambda x: x.sum() > 0, lambda x: x[: int(x.shape[0] * 0.57)].sum(), lambda x: x.sum()),
            "inside a loop or",
        ),
    ],
    ids=["before", "inside", "shapes", "numbers", "random", "floats"],
)
def test_what_stays_pytorchs(fn, why):
    ours = torch.compile(lambda x: fn(x) * 1.5, backend="hlo_disc", dynamic=True, fullgraph=True)
    with pytest.warns(FallbackWarning, match=why):
        ours(-torch.ones(4, 3))
    for shape in SHAPES[:2]:
        x = -torch.rand(shape)
        torch.testing.assert_close(ours(x), fn(x) * 1.5)


class Exported(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("fn", [*BRANCHES.values(), *LOOPS.values(), *SCANS.values()], ids=[*BRANCHES, *LOOPS, *SCANS])
def test_exported(fn):
    n = torch.export.Dim("n", min=2)
    program = torch.export.export(Exported(fn), (torch.rand(4, 3),), dynamic_shapes=({0: n},))
    executable = hlo_disc.compile(program)
    for x in (torch.rand(2, 3), -torch.rand(5, 3)):
        got = executable(x)
        wanted = fn(x)
        torch.testing.assert_close(
            [*got] if isinstance(got, tuple) else got,
            [*wanted] if isinstance(wanted, (tuple, list)) else wanted,
            rtol=1e-5, atol=1e-5, check_stride=False,
        )  # fmt: skip
