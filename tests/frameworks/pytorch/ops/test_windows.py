"""Convolutions, pools, resampling and attention: one program each for all shapes, with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

LINES = [(2, 4, 17), (3, 4, 11), (5, 4, 8)]
PLANES = [(2, 4, 9, 11), (3, 4, 13, 8), (5, 4, 7, 7)]
BOXES = [(2, 4, 5, 6, 7), (3, 4, 7, 5, 6)]


def weight(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).sin().reshape(shape)


CASES: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
    "conv1d": (lambda x: F.conv1d(x, weight(6, 4, 3), weight(6), stride=2, padding=1), LINES),
    "conv1d same": (lambda x: F.conv1d(x, weight(6, 4, 4), padding="same", dilation=2), LINES),
    "conv2d groups": (lambda x: F.conv2d(x, weight(6, 2, 3, 2), None, (2, 1), (1, 0), (1, 2), 2), PLANES),
    "conv2d depthwise": (lambda x: F.conv2d(x, weight(4, 1, 3, 3), padding=1, groups=4), PLANES),
    "conv3d": (lambda x: F.conv3d(x, weight(2, 4, 2, 3, 2), padding=1), BOXES),
    "conv_transpose1d": (lambda x: F.conv_transpose1d(x, weight(4, 3, 3), weight(3), 2, 1, 1), LINES),
    "conv_transpose2d with holes": (
        lambda x: F.conv_transpose2d(x, weight(4, 3, 3, 3), None, 1, 2, 1, 2, 2), PLANES),
    "conv_transpose2d groups": (
        lambda x: F.conv_transpose2d(x, weight(4, 3, 3, 2), None, (2, 3), 1, (1, 0), 2, (1, 2)), PLANES),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True), LINES),
    "max_pool2d dilated": (lambda x: F.max_pool2d(x, 3, 2, 1, 2, return_indices=True), PLANES),
    "max_pool2d": (lambda x: F.max_pool2d(x, (2, 3), ceil_mode=True), PLANES),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, return_indices=True), BOXES),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), LINES),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), PLANES),
    "avg_pool2d divisor": (lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3), PLANES),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 2, 1, False, False), BOXES),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), PLANES),
    "adaptive_avg_pool of a size": (lambda x: F.adaptive_avg_pool2d(x, (x.shape[0] + 1, 1)), PLANES),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (5, 3), return_indices=True), PLANES),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 3, 2), PLANES),
    "unfold": (lambda x: F.unfold(x, (3, 2), 2, 1, (1, 2)), PLANES),
    "fold": (lambda x: F.fold(F.unfold(x, 3, 1, 1, 2), x.shape[2:], 3, 1, 1, 2), PLANES),
    "bilinear": (lambda x: F.interpolate(x, (10, 5), mode="bilinear", align_corners=True), PLANES),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), PLANES),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def whole(fn: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})


def results(fn: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return the results of a function, and the gradients of the inputs."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    made = torch.utils._pytree.tree_leaves(fn(*leaves))
    differentiable = [x for x in made if x.requires_grad]
    weights = [weight(*x.shape).to(x.dtype) for x in differentiable]
    wanted = [x for x in leaves if x.requires_grad]
    gradients = torch.autograd.grad(differentiable, wanted, weights, allow_unused=True)
    return [*made, *(x for x in gradients if x is not None)]


@pytest.mark.parametrize("name", CASES)
def test_windows_are_as_in_eager_mode(name: str):
    fn, shapes = CASES[name]
    compiled = whole(fn)
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(results(compiled, x), results(fn, x), rtol=1e-4, atol=1e-4)


def test_gradients_of_groups_whose_number_of_channels_changes():
    """Channels are a multiple of the number of groups, which a kernel over sizes of its own would not know."""

    def fn(x, w):
        return F.conv2d(x, w, None, (2, 1), (1, 1), (2, 1), 2)

    compiled = whole(fn)
    for inputs, outputs in ((4, 6), (6, 4), (2, 2)):
        given = torch.randn(2, inputs, 9, 8), torch.randn(outputs, inputs // 2, 3, 2)
        torch.testing.assert_close(results(compiled, *given), results(fn, *given), rtol=1e-4, atol=1e-4)


def test_padding_is_a_number():
    """Padding is a number, of which PyTorch asks whether twice the padding fits 64 bits."""

    def fn(x, padding):
        return F.conv1d(x, weight(6, 4, 3), padding=padding), F.conv_transpose1d(x, weight(4, 3, 3), padding=padding)

    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    for padding, shape in zip((2, 1, 3), LINES, strict=True):
        x = torch.randn(shape)
        torch.testing.assert_close(
            results(lambda x, n=padding: compiled(x, n), x),
            results(lambda x, n=padding: fn(x, n), x),
            rtol=1e-4,
            atol=1e-4,
        )


def test_maxima_of_equal_numbers_infinities_and_nan_are_where_eager_mode_finds_them():
    def pool(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True), F.adaptive_max_pool2d(x, (3, 2), return_indices=True)

    x = torch.randint(0, 3, (2, 3, 9, 8)).float()
    x[0, 0, :4] = float("-inf")
    x[0, 1, 2:6, 3:] = float("nan")
    torch.testing.assert_close(whole(pool)(x), pool(x), equal_nan=True)


@pytest.mark.parametrize("masked", ["none", "causal", "hidden rows", "added"])
def test_attention_and_its_gradients(masked: str):
    def attend(q, k, v, mask):
        given = None if masked in ("none", "causal") else mask
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=masked == "causal")

    compiled = whole(attend)
    for batch, queries, keys in [(2, 5, 9), (3, 9, 6), (4, 7, 7)]:
        q, k, v = (torch.randn(batch, 4, n, 8) for n in (queries, keys, keys))
        mask = torch.randn(queries, keys)
        if masked == "hidden rows":
            mask = mask > 0
            mask[1] = False
        torch.testing.assert_close(
            results(compiled, q, k, v, mask), results(attend, q, k, v, mask), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_images_of_another_size_whose_pixels_are_means(mode, align):
    torch._dynamo.reset()

    def fn(x, height, width):
        return F.interpolate(x, (height, width), mode=mode, align_corners=align, antialias=True)

    compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    for before, after in [((9, 31), (4, 7)), ((6, 5), (11, 3)), ((20, 17), (33, 40))]:
        one = torch.randn(2, 3, *before, requires_grad=mode == "bilinear")  # PyTorch cannot trace the other gradient
        other = one.detach().clone().requires_grad_(one.requires_grad)
        expected, got = fn(one, *after), compiled(other, *after)
        torch.testing.assert_close(got, expected)
        if one.requires_grad:
            expected.square().sum().backward()
            got.square().sum().backward()
            torch.testing.assert_close(other.grad, one.grad)
