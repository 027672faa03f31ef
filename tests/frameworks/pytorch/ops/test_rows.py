"""Reductions, views, paddings and products where their rows could be a little wrong: one program each for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import depth
import pytest
import torch
from test_places import check
from torch.nn import functional

SHAPES = [(5, 7), (7, 5), (3, 11), (1, 6)]
CASES: dict[str, Callable[..., Any]] = {
    "variances": lambda x: (x.var(1), x.var(0, correction=0), x.var(), torch.var_mean(x, 1, correction=2)),
    "softmax of large numbers": lambda x: ((x * 1000).softmax(1), (x * 1000).log_softmax(0)),
    "normalised": lambda x: torch.native_layer_norm(x, (x.shape[1],), x[0], x[-1], 1e-3),
    "slices": lambda x: (x[:, -3:], x[:, 2:-1], x[:, 4:2], x[:, -20:3], x[:, 1:99], x[:, -1], x[:, 3]),
    "repeated": lambda x: (x.repeat(2, 3), x.repeat(2, 1, 2)),
    "rolled": lambda x: (x.roll(2, 1), x.roll(-1, 0), x.roll(3), x.roll((1, -2), (0, 1))),
    "padded": lambda x: functional.pad(x, (1, 2, 3, 0), value=0.5),
    "cut by a padding": lambda x: functional.pad(x, (-1, 2)),
    "triangles": lambda x: (x.tril(1), x.triu(-1), x.tril(), x.triu(2)),
    "scaled products": lambda x: torch.addmm(x[:, :1], x, x.T, beta=0.5, alpha=2),
    "what does not count": lambda x: torch.addmm(x[:, :1] / 0, x, x.T, beta=0),
    "fewer places than elements": lambda x: x.gather(1, (x[:1] > 0).long()),
}


def given(rows: int, columns: int) -> tuple[torch.Tensor]:
    return (torch.randn(rows, columns),)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CASES)
def test_rows_are_as_in_eager_mode(name: str):
    check(CASES[name], given, SHAPES[:3])


def test_gradients_of_paddings_that_repeat():
    def gradient(x):
        y = functional.pad(x[None], (2, 3), mode="replicate")[0]
        return torch.autograd.grad((y * y * torch.arange(y.shape[1])).sum(), x)

    compiled = torch.compile(
        lambda x: functional.pad(x[None], (2, 3), mode="replicate")[0],
        backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False},
    )  # fmt: skip
    for shape in SHAPES[:3]:
        x = torch.randn(shape, requires_grad=True)
        y = compiled(x)
        (made,) = torch.autograd.grad((y * y * torch.arange(y.shape[1])).sum(), x)
        torch.testing.assert_close(made, gradient(x)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32])
def test_floor_divisions(dtype):
    """Floor divisions are right for all pairs of special numbers: infinities and zeros of both signs, NaN."""

    def divided(a, b):
        return a // b, torch.div(a, b, rounding_mode="floor"), a % b, 3 // b if dtype.is_floating_point else a // 3

    special = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 7.0, 100.0, float("inf"), -float("inf"), float("nan")]
    line = torch.tensor(special if dtype.is_floating_point else [-7, -3, -1, 1, 2, 5, 2**31 - 1, -(2**31) + 1]).to(
        dtype
    )
    compiled = torch.compile(divided, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for count in (len(line), 3, 5):
        a, b = (x.ravel() for x in torch.meshgrid(line[:count], line[:count], indexing="ij"))
        for got, want in zip(compiled(a, b), divided(a, b), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(torch.signbit(got)[want == 0], torch.signbit(want)[want == 0])


NUMBER = 1.2345678  # which 16 bits do not hold
QUOTIENTS: dict[str, Callable[..., Any]] = {
    "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "down": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "by a single number": lambda x, y: torch.div(x, y[:1], rounding_mode="trunc"),
    "by a number": lambda x, y: (torch.div(x, NUMBER, rounding_mode="trunc"), x // NUMBER),
    "of a number": lambda x, y: (NUMBER * 100) // y,
    "by a tensor without axes": lambda x, y: torch.div(x, torch.tensor(NUMBER), rounding_mode="floor"),
}
WITH_NUMBERS: dict[str, Callable[..., Any]] = {
    "sums": lambda x, y: (x + NUMBER, x - NUMBER, NUMBER - x, x + 257, x + torch.tensor(NUMBER)),
    "products": lambda x, y: (x * NUMBER, x / NUMBER, x * torch.tensor(NUMBER), torch.tensor(NUMBER) / x),
    "remainders": lambda x, y: (
        x % NUMBER,
        torch.fmod(x, NUMBER),
        NUMBER % y,
        torch.remainder(x, torch.tensor(NUMBER)),
    ),
    "comparisons": lambda x, y: (x == NUMBER, x >= NUMBER, x > NUMBER, x < NUMBER, x != NUMBER),
    "next numbers": lambda x, y: torch.nextafter(x, y),
}


@depth.sampled(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*QUOTIENTS, *WITH_NUMBERS])
def test_16_bits_are_rounded_where_kernels_round(name, dtype):
    """Results are equal to the bit. ATen takes numbers in the operands' type, and rounds before it floors."""
    function = (QUOTIENTS | WITH_NUMBERS)[name]
    compiled = torch.compile(function, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for size in (300, 77):
        x, y = (torch.randn(size) * 100).to(dtype), torch.randn(size).to(dtype)
        x[:5] = torch.tensor([NUMBER, torch.inf, torch.nan, 0.0, -0.0])
        torch.testing.assert_close(compiled(x, y), function(x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", [torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_sizes_of_bags(op, mode, last):
    """PyTorch does not count the sizes of bags for sums. Its op for inference declares other shapes than it gives."""

    def sizes(table, index, offsets):
        made = op(table, index, offsets, False, mode, False, None, last)
        return made[0], made[2], made[3]

    compiled = torch.compile(sizes, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for count in (7, 12):
        given = torch.randn(10, 5), torch.randint(0, 10, (count,)), torch.tensor([0, 3, 3, 5, *[count] * last])
        made, wanted = compiled(*given), sizes(*given)
        if last and op is not torch.ops.aten._embedding_bag:
            made, wanted = (made[0], made[1][:4]), (wanted[0], wanted[1][:4])
        torch.testing.assert_close(made, wanted)


@pytest.mark.parametrize("add", [False, True])
def test_what_a_mask_beside_indices_puts(add):
    def fn(x, mask, index, values):
        first = torch.index_put(x, (mask, index), values, add)
        second = torch.index_put(x, (index, mask[: x.shape[1]]), values, add)
        return first, second, torch.index_put(x, (mask, mask[: x.shape[1]]), values[0], add)

    compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for rows in (6, 9):
        x, mask = torch.randn(rows, 5), torch.zeros(rows, dtype=torch.bool)
        mask[[0, 2, 3]] = True
        index, values = torch.tensor([4, 0, 2]), torch.randn(3)
        torch.testing.assert_close(compiled(x, mask, index, values), fn(x, mask, index, values))


def test_products_of_small_integers():
    compiled = torch.compile(torch._int_mm, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for m, k, n in ((32, 16, 8), (17, 24, 40)):
        a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((m, k), (k, n)))
        assert torch.equal(compiled(a, b), torch._int_mm(a, b))


def test_a_product_and_a_sum_in_one_rounding():
    import torch._inductor.inductor_prims  # which makes the op

    a = torch.tensor([1 + 2**-12, 3.0, -(2**-140), 2.0**80])
    ours = torch.compile(lambda a, b, c: torch.ops.prims.fma(a, b, c), backend="hlo_disc", options={"fallback": False})
    want = (a.double() * a.double() - 1).float()
    assert torch.equal(ours(a, a, torch.full((4,), -1.0)), want)
    assert want[0] != a[0] * a[0] - 1


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_of_weights_with_a_norm(dim):
    model = torch.nn.Linear(5, 4)
    torch.nn.utils.parametrizations.weight_norm(model, dim=dim)
    compiled = torch.compile(model, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for batch in (3, 7):
        x = torch.randn(batch, 5)
        wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_that_is_one_op(norm_first, activation):
    """PyTorch's own module calls one op for a whole encoder layer in evaluation."""
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    compiled = torch.compile(layer, backend="hlo_disc", dynamic=True, options={"fallback": False})
    for batch, length in ((2, 3), (5, 7), (3, 12)):
        x, padded = torch.randn(batch, length, 8), torch.arange(length) >= torch.randint(1, length, (batch, 1))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        for masks in ({}, {"src_mask": later}, {"src_key_padding_mask": padded}):
            with torch.no_grad():
                torch.testing.assert_close(compiled(x, **masks), layer(x, **masks), rtol=1e-4, atol=1e-5)
