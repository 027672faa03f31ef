"""Numbers and sizes that data decides, of a function that is compiled once: as in eager mode, or an error as there."""

from __future__ import annotations

import pytest
import torch

import hlo_disc.torch
from hlo_disc.errors import FallbackWarning

SEED = torch.Generator().manual_seed(0)
TABLES = [torch.randn(5, 7, generator=SEED), torch.zeros(5, 7), torch.ones(6, 4), torch.randn(30, 2, generator=SEED)]
NUMBERS = [torch.tensor(n) for n in (3, 0, 1, 5)]


@pytest.fixture(autouse=True)
def captured():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def compiled(fn, graphs):
    def backend(module, inputs):
        graphs.append(module)
        return hlo_disc.torch.backend(module, inputs, options={"fallback": False})

    return torch.compile(fn, backend=backend, dynamic=True, fullgraph=True)


def check(fn, *calls):
    graphs = []
    ours = compiled(fn, graphs)
    for args in calls:
        torch.testing.assert_close(ours(*args), fn(*args), equal_nan=True)
    assert len(graphs) == 1
    return ours


def item(x):
    """Return a number that PyTorch does not look at when it traces."""
    return (x + 0).item()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero(),
        lambda x: torch.argwhere(x > 0) + 1,
        lambda x: torch.nonzero_static(x > 0, size=9, fill_value=-2),
        lambda x: x[x > 0] * 2,
        lambda x: (x[x[:, 0] > 0], x[:, x[0] > 0], x.T[:, x[:, 1] > 0]),
        lambda x: torch.masked_select(x, x[0] > 0),
        lambda x: torch.index_put(x, (x > 0,), x[x > 0] * 2),
        lambda x: (x[x > 0], x[x > 0].reshape(1, -1), x[x > 0].shape[0]),
        lambda x: x[x > 0].sum() / x[x > 0].shape[0],
    ],
)
def test_what_a_mask_takes(fn):
    check(fn, *((x,) for x in TABLES))


def test_gradients_of_what_a_mask_takes():
    graphs = []

    def fn(x):
        return (x[x > 0] ** 2).sum() + (x[x[:, 0] > 0] @ x.T).mean()

    ours = compiled(fn, graphs)
    for x in TABLES:
        one, other = (x.clone().requires_grad_() for _ in range(2))
        fn(one).backward()
        ours(other).backward()
        torch.testing.assert_close(other.grad, one.grad, equal_nan=True)
    assert len(graphs) == 1


@pytest.mark.parametrize("of", [torch.unique, torch.unique_consecutive])
def test_what_is_different(of):
    nan = float("nan")
    lines = [
        torch.randint(0, 5, (6, 8)).float(),
        torch.zeros(3, 4),
        torch.randn(2, 60),
        torch.tensor([[nan, 0, nan], [-0.0, nan, 1]]),
    ]
    check(lambda x: (of(x) * 2, of(x, return_inverse=True, return_counts=True)), *((x,) for x in lines))


def test_counts():
    x = torch.randn(5, 3)
    repeats = [torch.tensor(n) for n in ([1, 2, 3, 0, 1], [0, 0, 0, 0, 0], [9, 1, 1, 1, 1], [0, 0, 0, 0, 1])]
    ours = check(lambda x, n: torch.repeat_interleave(x, n, dim=0), *((x, n) for n in repeats))
    with pytest.raises(hlo_disc.ShapeError, match="repeats can not be negative"):
        ours(x, torch.tensor([0, -1, 2, 0, 0]))
    ours = check(torch.bincount, *((n,) for n in repeats))
    with pytest.raises(hlo_disc.ShapeError, match="non-negative integral inputs"):
        ours(torch.tensor([3, 1, -1, 0]))
    check(lambda n, w: torch.bincount(n, w, 5), *((n, torch.rand(5)) for n in repeats))


def test_numbers():
    tables = [(k * torch.ones(3, 4, dtype=torch.int64), x) for k, x in zip((0, -1, 4, 7), TABLES, strict=True)]
    check(lambda n, x: (n.sum().item(), x + n.sum().item()), *tables)
    check(lambda n, x: (n.sum().gt(0).item(), x * n.sum().gt(0).item()), *tables)
    check(lambda n, x: (n.sum().double().item(), x * n.sum().double().item()), *tables)


def test_sizes_from_numbers():
    ours = check(lambda n: (torch.zeros(item(n)), torch.arange(item(n)) + item(n)), *((n,) for n in NUMBERS))
    with pytest.raises(hlo_disc.ShapeError, match="is -1"):
        ours(torch.tensor(-1))


def test_numbers_that_are_checked_by_each_other():
    def fn(x, n):
        k = item(n)
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        y = x[:k]
        m = (y > 0).sum().item()
        torch._check(m >= 0)
        torch._check(m <= k)
        return y[:m] * 2, y.sum()

    check(fn, *((torch.randn(size), n) for size, n in zip((7, 5, 9, 5), NUMBERS, strict=True)))


@pytest.mark.parametrize("after", [lambda x: x, lambda x: x * 2])  # a view of an argument, and a new tensor
def test_places_from_numbers(after):
    x = torch.randn(5, 7)

    def start(x, n):
        k = item(n)
        torch._check(k >= 0)
        torch._check(k <= x.shape[0], lambda: "too many")
        return after(x[:k])

    ours = check(start, *((x, n) for n in NUMBERS))
    for wrong in (-1, 6):
        with pytest.raises(hlo_disc.ShapeError):
            ours(x, torch.tensor(wrong))
    ours = check(lambda x, n: after(x[item(n)]), *((x, torch.tensor(n)) for n in (1, 0, 4, -1, -5)))
    for wrong in (-6, 5):
        with pytest.raises(hlo_disc.ShapeError):
            ours(x, torch.tensor(wrong))
    cuts = [torch.tensor(n) for n in ([1, 3], [0, 0], [5, 5], [3, 2], [-2, -1], [9, 12])]
    check(lambda x, n: [after(y) for y in torch.tensor_split(x, n)], *((x, n) for n in cuts))


def test_views_share_memory():
    x = torch.zeros(5, 3)
    ours = compiled(lambda x, n: x[item(n)], [])
    ours(x, torch.tensor(2)).fill_(1)
    assert x.sum(1).tolist() == [0, 0, 3, 0, 0]


def test_what_data_has_to_be():
    def fn(x):
        torch._assert_async(x.sum() > 0, "nothing is left")
        return x * 2

    ours = check(fn, (torch.ones(3, 4),), (torch.ones(5, 6),))
    with pytest.raises(hlo_disc.ShapeError, match="nothing is left"):
        ours(torch.zeros(3, 4))


def test_parts_around_what_is_not_supported():
    """An op that is not supported stays PyTorch's. The size of its result is an argument of what follows."""
    ours = torch.compile(lambda x: torch.unique(x + 0, dim=0) * 2 + x.sum().item(), backend="hlo_disc", dynamic=True)
    with pytest.warns(FallbackWarning, match="unique_dim"):
        for x in (torch.ones(4, 3), -torch.eye(5), torch.zeros(2, 6)):
            torch.testing.assert_close(ours(x), torch.unique(x, dim=0) * 2 + x.sum().item())


def test_numbers_are_true_by_either_part():
    """A complex number is true if one of its parts is not zero. NaN is not zero."""
    compiled = torch.compile(lambda x: (x.nonzero(), x.bool()), backend="hlo_disc", dynamic=True, fullgraph=True)
    for x in (torch.tensor([0j, 1j, float("nan"), 2 + 0j]), torch.tensor([0.0, 0.3, float("nan"), -0.0, 1e-40])):
        for made, wanted in zip(compiled(x), (x.nonzero(), x.bool()), strict=True):
            assert torch.equal(made, wanted)
