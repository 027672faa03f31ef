"""Norms of batches, groups and layers next to eager mode: values, gradients and running moments, at several sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import depth
import pytest
import torch
from torch import nn

IMAGES = [(4, 6, 5, 7), (2, 6, 1, 1), (3, 6, 8, 2)]
LAYERS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "batches of images": (lambda: nn.BatchNorm2d(6), IMAGES),
    "batches of vectors": (lambda: nn.BatchNorm1d(6, momentum=0.3, eps=0.1), [(4, 6), (2, 6), (7, 6)]),
    "batches without weights": (lambda: nn.BatchNorm3d(6, affine=False), [(n, 6, 2, 3, n) for n in (4, 2, 5)]),
    "batches without moments": (lambda: nn.BatchNorm2d(6, track_running_stats=False), IMAGES),
    "groups": (lambda: nn.GroupNorm(3, 6), IMAGES),
    "groups of one channel": (lambda: nn.GroupNorm(6, 6), [(4, 6, 5, 7), (2, 6, 1, 3), (3, 6, 8, 2)]),
    "groups without weights": (lambda: nn.GroupNorm(2, 6, affine=False, eps=0.1), [(4, 6, 3), (1, 6, 3), (5, 6, 1)]),
    "groups of vectors": (lambda: nn.GroupNorm(1, 6), [(4, 6), (1, 6), (5, 6)]),
    "layers": (lambda: nn.LayerNorm(6), [(4, 5, 6), (1, 1, 6), (7, 2, 6)]),
}
TOLERANCES: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {},
    torch.float64: {},
    torch.bfloat16: {"rtol": 2e-2, "atol": 4e-2},
    torch.float16: {"rtol": 4e-3, "atol": 8e-3},
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def check(layer: nn.Module, shapes: list[tuple[int, ...]], training: bool, dtype: torch.dtype) -> None:
    layer = layer.to(dtype).train(training)
    for x in (*layer.parameters(), *layer.buffers()):
        if x.is_floating_point():
            x.data.uniform_(0.5, 1.5)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    for shape in shapes:
        mine = (3 * torch.randn(shape) + 1).to(dtype).requires_grad_()
        theirs = mine.detach().clone().requires_grad_()
        y, want = compiled(mine), eager(theirs)
        grad = torch.randn_like(want)
        found = [y, *torch.autograd.grad(y, [mine, *layer.parameters()], grad), *layer.buffers()]
        wanted = [want, *torch.autograd.grad(want, [theirs, *eager.parameters()], grad), *eager.buffers()]
        torch.testing.assert_close(found, wanted, **TOLERANCES[dtype])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_norms_are_as_in_eager_mode(name: str, training: bool):
    make, shapes = LAYERS[name]
    check(make(), shapes, training, torch.float32)


@pytest.mark.parametrize(
    ("name", "dtype"),
    depth.crossed(["batches of images", "groups"], [torch.bfloat16, torch.float64, torch.float16]),
    ids=str,
)
def test_norms_of_other_types(name: str, dtype: torch.dtype):
    make, shapes = LAYERS[name]
    for training in (False, True):
        check(make(), shapes, training, dtype)


def test_moments_of_inference_are_empty_on_cpus():
    """The ops behind the layers, as PyTorch's own: the running moments that inference does not keep are empty."""

    def function(x, weight, mean, variance):
        moments = mean, variance, 0.1, 1e-5
        inference = torch.ops.aten._native_batch_norm_legit_no_training(x, weight, None, *moments)
        functional = torch.ops.aten._native_batch_norm_legit_functional(
            x, None, weight, *moments[:2], False, *moments[2:]
        )
        return *inference, *functional

    compiled = torch.compile(function, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    for shape in IMAGES:
        args = torch.randn(shape), torch.randn(6), torch.randn(6), torch.rand(6)
        torch.testing.assert_close(compiled(*args), function(*args))
