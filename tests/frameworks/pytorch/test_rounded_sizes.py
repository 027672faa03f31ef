"""Sizes that are floats' multiples, rounded: as Python computes them, or an error."""

from __future__ import annotations

import math
import random

import depth
import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy import functions

import hlo_disc.torch
from hlo_disc.errors import FallbackWarning, UnsupportedOpError
from hlo_disc.import_.aten import sizes

SCALES = [0.1, 0.25, 1 / 3, 0.5, 0.57, 0.7, 0.9, 1.1, 1.25, 4 / 3, 1.7, 1.9, 2.0, 2.3, 3.7, 5.6, 7 / 9, 0.123, 12.8]
ROUNDED = {functions.TruncToInt: math.trunc, functions.FloorToInt: math.floor, functions.CeilToInt: math.ceil}


def size(rounded, scale):
    symbol = sympy.Symbol("s", integer=True, nonnegative=True)
    return sizes.of_expression(rounded(sympy.Float(scale) * functions.ToFloat(symbol)))


@pytest.mark.parametrize("rounded", ROUNDED)
def test_as_python_computes_them(rounded):
    draw = random.Random(0)
    taken = 0
    for scale in SCALES + [round(draw.uniform(0.01, 9), 2) for _ in range(200)]:
        try:
            d = size(rounded, scale)
        except UnsupportedOpError:
            continue
        taken += 1
        multiples = [100 * 2**k for k in range(1, 30)]  # where products are integers
        for n in [*range(2100), *multiples, *(draw.randrange(1 << draw.randrange(12, 40)) for _ in range(200))]:
            assert d.evaluate({"s": n}) == ROUNDED[rounded](scale * float(n)), (scale, n)
    assert taken > len(SCALES)


@pytest.mark.parametrize(
    ("rounded", "scale"),
    [
        (functions.FloorToInt, 0.57),  # 0.57 * 100 is below 57
        (functions.TruncToInt, 0.57),
        (functions.CeilToInt, 1.1),  # 1.1 * 10 is above 11
        (functions.FloorToInt, 0.123456789),
        (functions.FloorToInt, -0.5),
    ],
)
def test_what_rounding_decides_is_an_error(rounded, scale):
    with pytest.raises(UnsupportedOpError, match="depends on how floats are rounded"):
        size(rounded, scale)


def test_negative_numbers_are_not_truncated_as_if_they_were_rounded_down():
    s = sympy.Symbol("s", integer=True)
    with pytest.raises(UnsupportedOpError):
        sizes.of_expression(functions.TruncToInt(0.5 * functions.ToFloat(s - 3)))


@depth.sampled(2)
@pytest.mark.parametrize("scale", [0.5, 4 / 3, 1.7])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_images_of_any_size(scale, mode):
    torch._dynamo.reset()
    counts = []

    def fn(x):
        return functional.interpolate(x, scale_factor=scale, mode=mode)

    compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    for height, width in [(5, 8), (33, 17), (6, 50)]:
        x = torch.randn(2, 3, height, width)
        torch.testing.assert_close(compiled(x), fn(x))
        counts.append(len(hlo_disc.torch.compilations()))
    assert counts[0] == counts[-1]


def compiled(fn):
    torch._dynamo.reset()
    return torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})


NUMBERS = {
    "a part": lambda n: int(n * 0.57),
    "a part, up": lambda n: math.ceil(n * 1.1),
    "a part, to the nearest": lambda n: round(n * 0.3),
    "a tie": lambda n: round(n / 2),
    "a quotient": lambda n: math.floor(n / 0.7),
    "a sum": lambda n: int(n * 0.29 + 0.5),
    "towards zero": lambda n: int((n - 300) * 0.37) + 200,
    "a root": lambda n: int(math.sqrt(n)),
    "a power": lambda n: math.ceil(n**0.5),
    "a logarithm": lambda n: math.floor(math.log2(n)),
    "a logarithm, up": lambda n: math.ceil(math.log2(n)),
    "of a rounded one": lambda n: int(int(n * 0.35) * 0.35),
    "a least one": lambda n: int(min(20 / n, 0.7) * n),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_sizes_that_floats_make(name):
    """Sizes by floats are right at every size, among them powers of two, squares and their neighbours."""
    number = NUMBERS[name]
    ours = compiled(lambda x: (x.new_ones(number(x.shape[0])), x + number(x.shape[0])))
    for n in [
        *range(2, 600),
        *(2**k + d for k in range(10, 17) for d in (-1, 0, 1)),
        *(k * k + d for k in (99, 255, 300) for d in (-1, 0, 1)),
    ]:
        ones, added = ours(torch.zeros(n))
        assert ones.shape == (number(n),), n
        assert torch.equal(ones, torch.ones(number(n))) and added[0].item() == number(n)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[: int(x.shape[0] * 0.35)].sin(),
        lambda x: x[int(x.shape[0] * 0.35) :].cumsum(0) * 2,
        lambda x: torch.arange(0, x.shape[0] * 0.5, 0.25) * x[0, 0],
        lambda x: torch.cat([x, x[: round(x.shape[0] * 0.3)]]).softmax(0),
        lambda x: functional.interpolate(x.T[None], scale_factor=0.7, mode="linear"),
        lambda x: functional.interpolate(x[None, None], scale_factor=(0.57, 2.1), mode="bicubic"),
    ],
    ids=["start", "end", "steps", "joined", "linear", "bicubic"],
)
def test_gradients_through_sizes_that_floats_make(fn):
    ours, counts = compiled(fn), []
    for n in (17, 40, 9, 100):
        x = torch.randn(n, 3, requires_grad=True)
        got, wanted = ours(x), fn(x)
        torch.testing.assert_close(got, wanted)
        found, right = (torch.autograd.grad(y.square().sum(), x)[0] for y in (got, wanted))
        largest = right.abs().max().item()  # sums of numbers of this size may cancel
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6 * max(largest, 10))
        counts.append(len(hlo_disc.torch.compilations()))
    assert counts[0] == counts[-1]


def test_a_picture_as_detectors_scale_it():
    def fn(x):
        height, width = x.shape[-2:]
        scale = min(20 / min(height, width), 32 / max(height, width))
        return functional.interpolate(x, size=(int(height * scale), int(width * scale)), mode="bilinear")

    ours = compiled(fn)
    for shape in [(1, 2, 9, 13), (2, 3, 20, 31), (1, 3, 33, 8)]:
        x = torch.randn(shape)
        torch.testing.assert_close(ours(x), fn(x))


@pytest.mark.parametrize("number", [lambda n: int(n**0.3), lambda n: int(n * 0.3 * (n - 1) * 0.7 * n / 9)])
def test_floats_that_python_may_round_otherwise_stay_pytorchs(number):
    def fn(x):
        return x.new_ones(number(x.shape[0])).cumsum(0) + x[0]

    torch._dynamo.reset()
    ours = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True)
    with pytest.warns(FallbackWarning, match="and is not computed as Python does"):
        torch.testing.assert_close(ours(torch.ones(8)), fn(torch.ones(8)))
    torch.testing.assert_close(ours(torch.ones(9)), fn(torch.ones(9)))


def test_a_root_of_a_difference_divides_sizes():
    """A square of patches behind one more word, as PyTorch writes its sizes: `(n - 1) // int((n - 1) ** 0.5)`."""

    def square(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        batch, words, width = x.shape
        side = int((words - 1) ** 0.5)
        y = x[:, 1:].reshape(batch, side, side, width).permute(0, 3, 1, 2)
        return functional.avg_pool2d(y, 3, 2, 1)[:, :, : side // 2], words % side

    torch._dynamo.reset()
    compiled = torch.compile(square, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for side in (4, 5, 2, 7):
        x = torch.randn(2, side * side + 1, 3)
        (y, rest), (wanted, left) = compiled(x), square(x)
        torch.testing.assert_close(y, wanted)
        assert rest == left
