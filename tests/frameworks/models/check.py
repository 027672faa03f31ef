"""The check of every model: results and gradients are those of eager mode at shapes that change, in no more graphs than
`aot_eager` has. Ops that stay PyTorch's are named in the model's row.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hlo_disc.errors import FallbackWarning

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """A row: a model, and its calls.

    Args:
        make: the model, with random weights.
        inputs: what it is called with, by keyword, of one of `shapes`.
        shapes: of which neighbours differ.
        left: the ops that stay PyTorch's.
        trained: whether gradients are compared too.
        tolerance: by how much results may differ from eager mode's, as a part of the largest of them.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[Any], Inputs]
    shapes: Sequence[Any]
    left: frozenset[str] = frozenset()
    trained: bool = False
    tolerance: float = 2e-4


def tensors(result: Any) -> list[torch.Tensor]:
    """Return all tensors among results, however they nest."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        return [x for key in result for x in tensors(result[key])]
    if isinstance(result, (list, tuple)):
        return [x for y in result for x in tensors(y)]
    return []


def close(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], tolerance: float) -> None:
    """Check that tensors are equal but for rounding."""
    assert len(got) == len(wanted)
    for x, y in zip(got, wanted, strict=True):
        finite = y[y.isfinite()] if y.is_floating_point() else y
        largest = finite.abs().max().item() if finite.numel() and y.dtype != torch.bool else 0
        torch.testing.assert_close(x, y, rtol=0, atol=tolerance * max(1, largest), equal_nan=True)


def forward(_: nn.Module, run: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    """Return results without gradients."""
    with torch.no_grad():
        return tensors(run(**inputs))


def gradients(model: nn.Module, run: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    """Return results, and the gradients by all parameters of a loss that stays small for many elements."""
    model.zero_grad()
    made = tensors(run(**inputs))
    sum(x.sin().sum() / x.numel() ** 0.5 for x in made if x.requires_grad).backward()
    return [x.detach() for x in made] + [x.grad for x in model.parameters() if x.grad is not None]


def compiled(
    model: nn.Module, backend: str, calls: Sequence[Inputs], step: Callable[..., list[torch.Tensor]]
) -> tuple[list[list[torch.Tensor]], int]:
    """Return the results of `step` for each call, and the number of graphs that PyTorch made."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run = torch.compile(model, backend=backend, dynamic=True)
    return [step(model, run, call) for call in calls], torch._dynamo.utils.counters["stats"]["unique_graphs"]


def prepared(row: Model, train: bool) -> tuple[nn.Module, list[Inputs]]:
    """Return a model, and its calls, whose sizes are numbers to PyTorch where they never change.

    train: norms of batches take the batch's means; what is random stays off.
    """
    torch.manual_seed(0)
    model = row.make().eval()
    for layer in model.modules():
        if train and isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.train()
    calls = [row.inputs(shape) for shape in row.shapes]
    for same in zip(*map(tensors, calls), strict=True):
        for axis in range(same[0].dim()):
            if len({x.shape[axis] for x in same}) == 1:
                for x in same:
                    torch._dynamo.mark_static(x, axis)
    return model, calls


def check(row: Model) -> None:
    """Check a row as the first lines of this file say."""
    model, calls = prepared(row, row.trained)
    step = gradients if row.trained else forward
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", FallbackWarning)
        again = copy.deepcopy(model)
        wanted = [step(again, again, call) for call in calls]
        got, graphs = compiled(copy.deepcopy(model), "hlo_disc", calls, step)
    for x, y in zip(got, wanted, strict=True):
        close(x, y, row.tolerance)
    left = {str(x.message).split("(")[0] for x in raised if issubclass(x.category, FallbackWarning)}
    assert left == row.left
    if graphs > 1:
        try:
            theirs = compiled(copy.deepcopy(model), "aot_eager", calls, step)[1]
        except RuntimeError:  # as of a group norm's gradient for one picture, in PyTorch 2.13
            return
        assert graphs <= theirs
