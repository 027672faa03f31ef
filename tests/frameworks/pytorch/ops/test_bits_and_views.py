"""Tensors as elements of another type, and results that are views of one another."""

from __future__ import annotations

import pytest
import torch

TYPES = [
    torch.float32, torch.int32, torch.int16, torch.uint8, torch.int8, torch.float64, torch.int64, torch.bfloat16,
    torch.float16, torch.complex64, torch.complex128, torch.bool,
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiled(fn):
    return torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.dtype) == (b.shape, b.dtype) and torch.equal(*(x.contiguous().view(torch.uint8) for x in (a, b)))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_elements_of_another_type(dtype):
    """Elements are read as another type: of an argument, as a view, and of a computed value, also used further."""
    at = TYPES.index(dtype)
    for other in [*TYPES[at + 1 :], *TYPES[:at]][at % 3 :: 3]:  # a third of them, all widths among them
        if dtype.is_complex and other == torch.bool:
            continue

        def fn(x, other=other):
            y = torch.cat([x, x])
            return x.view(other), y.view(other), y.view(other)[1:].flip(0)

        torch._dynamo.reset()
        ours = compiled(fn)
        for rows in (2, 5):
            bits = torch.randint(0, 2 if torch.bool in (dtype, other) else 256, (rows, 96), dtype=torch.uint8)
            x = bits.view(dtype)
            for got, wanted in zip(ours(x), fn(x), strict=True):
                assert same_bits(got, wanted), other


def first(x):
    y = x + 1
    return y, y[:2]


def last(x):
    y = x + 1
    return y[:2], y


def neither(x):
    y = x + 1
    return y[:2], y[1:]


def turned(x):
    y = x.T + 1
    return y, y.T, y[:, 1:]


def twice(x):
    y = x + 1
    return y, y, y.flatten()


def pieces(x):
    y = x + 1
    a, b = y.split([1, x.shape[1] - 1], 1)
    return a, b, a * 2


def parts(x):
    y = torch.complex(x, x)
    return y, torch.view_as_real(y)


def bits(x):
    y = x + 1
    return y.view(torch.int32), y


def arguments(x):
    return x, x[:2], x + 1


@pytest.mark.parametrize("fn", [first, last, neither, turned, twice, pieces, parts, bits, arguments])
def test_results_that_are_views_of_one_another(fn):
    """A write to one result is seen in the others that share its memory in eager mode, and in no more."""
    ours = compiled(fn)
    for shape in ((4, 3), (6, 5), (2, 7)):
        x = torch.randn(shape)
        got, wanted = ours(x.clone()), fn(x.clone())
        for i in range(len(wanted)):
            assert got[i].stride() == wanted[i].stride()
            for results in (got, wanted):
                results[i][(0,) * results[i].dim()] = 7
            for a, b in zip(got, wanted, strict=True):
                assert torch.equal(a, b), i


def test_results_lie_in_memory_as_in_eager_mode_where_a_size_is_half_of_another():
    """PyTorch writes strides of `n // 2` with `Max(1, n // 2)`. Other strides have the next graph compiled anew."""

    def halved(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.nn.functional.avg_pool2d(x, 2)
        return y.permute(0, 2, 3, 1) * 2, y.permute(0, 1, 3, 2).relu()

    ours = compiled(halved)
    for height, width in ((8, 6), (9, 15), (14, 4)):
        x = torch.randn(2, 3, height, width)
        for made, wanted in zip(ours(x), halved(x), strict=True):
            torch.testing.assert_close(made, wanted)
            assert made.stride() == wanted.stride()
