"""Ops whose places are data, and orders, at sizes that change: NaN, ties, indices from behind."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import hlo_disc.torch

SHAPES = [(5, 7), (3, 11), (17, 2), (64, 33)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def numbers(rows, columns):
    """Half of them are ties; infinities, NaN and both zeros are among them."""
    x = torch.randn(rows, columns)
    line = x.view(-1)
    line[::2] = line[::2].round()
    line[:6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, float("nan")])
    return x


def indices(rows, columns, limit):
    return torch.randint(-limit, limit, (rows, columns))


def check(fn, make, shapes=SHAPES):
    """One program for all shapes, equal to eager mode, NaN included."""
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return hlo_disc.torch.backend(module, inputs, options={"fallback": False})

    compiled = torch.compile(fn, backend=backend, dynamic=True, fullgraph=True)
    for shape in shapes:
        args = make(*shape)
        torch.testing.assert_close(compiled(*args), fn(*args), equal_nan=True, check_stride=False)
    assert len(graphs) == 1


@pytest.mark.parametrize("axis", [0, -1])
def test_sorts_and_extrema(axis):
    check(lambda x: (x.sort(dim=axis, stable=True), x.sort(dim=axis, stable=True, descending=True)), numbers_only)
    check(lambda x: (x.max(axis), x.min(axis, keepdim=True), x.argmax(axis), x.argmin()), numbers_only)
    check(lambda x: (x.cummax(axis), x.cummin(axis), x.cumsum(axis), x.logcumsumexp(axis)), numbers_only)
    check(lambda x: (x.topk(2, axis).values, x.median(axis).values, x.nanmedian(axis).values), numbers_only)


def numbers_only(rows, columns):
    return (numbers(rows, columns),)


def test_running_sums_of_infinities():
    """The log of a sum of exponentials of two equal infinities is that infinity."""
    edges = torch.tensor([[float(x) for x in row.split()] for row in ("inf inf 1", "-inf -inf 2", "-inf inf -inf")])
    check(lambda x: x.logcumsumexp(1), lambda: (edges,), [()])


def test_gathers_and_scatters():
    def make(rows, columns):
        return numbers(rows, columns), indices(rows, columns, rows), indices(4, 1, columns)

    check(lambda x, i, j: (x.gather(0, i % x.shape[0]), x[i], x[:, j], x[i[:1], j], x[[0, 1], :, None]), make)
    check(lambda x, i, j: x.nan_to_num().scatter_add(0, i % x.shape[0], torch.ones_like(x)), make)
    check(lambda x, i, j: (x.scatter(0, (i % x.shape[0])[:1], 2.0), x.index_fill(1, j[:, 0], 3.0)), make)


@pytest.mark.parametrize("reduction", ["sum", "prod", "mean", "amax", "amin"])
def test_what_meets_is_reduced(reduction):
    def make(rows, columns):
        return torch.randn(rows, columns), torch.randint(0, rows, (rows, columns)), torch.randn(rows, columns)

    def both(x, i, y):
        return [x.scatter_reduce(0, i, y, reduction, include_self=own) for own in (False, True)]

    check(both, make)


def test_masks_have_places_for_known_numbers_of_updates():
    def make(rows, columns):
        x = torch.randn(rows, columns)
        return x, x > 0, torch.arange(float(rows * columns))

    check(lambda x, mask, y: (x.masked_scatter(mask, y), x.masked_fill(mask, 1.0)), make)
    check(lambda x, mask, y: torch.where(mask.any(0), x.index_put((mask,), torch.tensor(2.0)), x), make)


def test_windows_diagonals_and_strides():
    shapes = [(5, 7), (3, 11), (64, 33)]  # others are PyTorch's other programs: of one window
    check(lambda x: (x.unfold(1, 2, 1), x.diagonal(), x.roll(2, 0), x.repeat(2, 3), x.triu(1)), numbers_only, shapes)
    check(lambda x: x.as_strided((x.shape[1], x.shape[0]), (1, x.shape[1])), numbers_only)
    check(lambda x: x.slice_scatter(x[::2] * 2, 0, 0, None, 2), numbers_only)


def test_searches():
    def make(rows, columns):
        return torch.randn(columns).sort().values, torch.randn(rows, columns)

    check(lambda line, x: (torch.searchsorted(line, x), torch.bucketize(x, line, right=True)), make)


def test_gradients_of_bags():
    def fn(table, index, offsets):
        return functional.embedding_bag(index, table, offsets, mode="mean")

    compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for count in (7, 12):
        table = torch.randn(10, 5, requires_grad=True)
        index, offsets = torch.randint(0, 10, (count,)), torch.tensor([0, 3, 3, 5])
        made = [torch.autograd.grad(f(table, index, offsets).square().sum(), table)[0] for f in (compiled, fn)]
        torch.testing.assert_close(*made)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "prod"])
def test_runs(reduction):
    def fn(x, lengths):
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        return (
            torch.segment_reduce(x, reduction, lengths=lengths),
            torch.segment_reduce(x, reduction, offsets=offsets, initial=1.5),
            torch.segment_reduce(x.T, reduction, lengths=lengths.expand(x.shape[1], -1), axis=1),
        )

    def runs(rows, columns):
        return torch.randn(rows, columns), torch.tensor([rows - 2, 0, 2, 0])

    check(fn, runs)
    with pytest.raises(hlo_disc.ShapeError, match="runs must be as long as their axis"):
        torch.compile(fn, backend="hlo_disc", dynamic=True)(torch.randn(5, 3), torch.tensor([1, 2, 0, 0]))


def test_histograms():
    """PyTorch has no symbolic sizes of them."""

    def fn(x):
        return (*torch.histogram(x, 7), *torch.histogram(x, 5, range=(-1.0, 2.0), weight=x.abs(), density=True))

    x = torch.randn(30, 3)
    compiled = torch.compile(fn, backend="hlo_disc", dynamic=False, fullgraph=True, options={"fallback": False})
    torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize(
    "shortened",
    [
        lambda index, table: functional.embedding(index, table, max_norm=1.0),
        lambda index, table: functional.embedding(index, table, max_norm=1.5, norm_type=3.0),
        lambda index, table: functional.embedding(index, table, max_norm=0.5, norm_type=float("inf")),
    ],
)
def test_rows_that_are_shortened(shortened):
    def fn(index, table):
        table = table * 1
        return shortened(index, table), table

    check(fn, lambda rows, columns: (torch.randint(0, rows, (columns,)), torch.randn(rows, 4)))
