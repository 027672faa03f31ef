"""Sizes that are floats' multiples, rounded: as Python computes them, or an error."""

from __future__ import annotations

import math
import random

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy import functions

import hlo_disc.torch
from hlo_disc.errors import UnsupportedOpError
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
