"""Exported programs that change their buffers, parameters and arguments, next to their modules."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import hlo_disc
import hlo_disc.torch

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch's own
ROWS = torch.export.Dim("rows")
SIZES = [3, 1, 17, 2]


class Several(nn.Module):
    """Buffers that are read, written, both and neither; one that no state dict has; a result that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("last", torch.full((4,), 7.0), persistent=False)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        self.total.add_(x.sum(0))
        self.last.copy_(self.total * self.scale)
        return {"y": self.linear(x) + self.total, "calls": self.calls, "none": None, "rows": x.shape[0]}


class Cache(nn.Module):
    """Rows are written at a place that the module keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(64, 4))
        self.register_buffer("end", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        places = self.end + torch.arange(x.shape[0])
        self.rows.index_copy_(0, places, x)
        self.end += x.shape[0]
        return self.rows.sum(0)


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        self.weight.mul_(x.mean())
        return x * self.weight


MODULES: dict[str, Callable[[], nn.Module]] = {
    "several": Several,
    "cache": Cache,
    "weights": Weights,
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.5)),
}  # fmt: skip


def exported(module: nn.Module, **options: Any) -> torch.export.ExportedProgram:
    return torch.export.export(module, (torch.ones(5, 4),), dynamic_shapes=({0: ROWS},), strict=False, **options)


@pytest.mark.parametrize("name", MODULES)
def test_it_changes_what_its_module_changes(name):
    torch.manual_seed(0)
    module = MODULES[name]()
    other = exported(copy.deepcopy(module)).module()
    program = exported(module)
    run = hlo_disc.torch.compile(program)
    for rows in SIZES[:1] + SIZES[2:] if name == "batch norm" else SIZES:
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), other(x))
        wanted = dict(other.named_buffers()) | dict(other.named_parameters())
        for key, tensor in {**dict(module.named_buffers()), **dict(module.named_parameters())}.items():
            torch.testing.assert_close(tensor, wanted[key])
        torch.testing.assert_close(program.module()(x), other(x))  # it has the same state


def test_a_program_of_a_file(tmp_path):
    torch.export.save(exported(Several()), tmp_path / "several.pt2")
    program = torch.export.load(tmp_path / "several.pt2")
    run = hlo_disc.torch.compile(program)
    assert [run(torch.ones(n, 4))["calls"].item() for n in SIZES] == [1, 2, 3, 4]
    assert program.state_dict["total"].tolist() == [sum(SIZES)] * 4


class Changes(nn.Module):
    def forward(self, x, *, nested):
        nested["into"].add_(x.sum(0))
        x.mul_(2)
        return x + 1


def test_arguments_that_it_changes():
    sizes = {"x": {0: ROWS}, "nested": {"into": None}}
    program = torch.export.export(
        Changes(), (torch.ones(5, 4),), {"nested": {"into": torch.zeros(4)}}, dynamic_shapes=sizes
    )
    run, module = hlo_disc.torch.compile(program), Changes()
    for rows in SIZES:
        x, into = torch.randn(rows, 4), torch.randn(4)
        wanted = x.clone(), into.clone()
        torch.testing.assert_close(
            run(x, nested={"into": into}), module(wanted[0], nested={"into": wanted[1]}), check_stride=False
        )
        torch.testing.assert_close((x, into), wanted)
    strided = torch.zeros(6, 8)[::2, ::2]
    run(strided + 0, nested={"into": torch.zeros(4)})
    run(strided.add_(1), nested={"into": torch.zeros(4)})
    assert strided.eq(2).all()
    with pytest.raises(hlo_disc.ArgumentError, match="x is ndarray, but a tensor, which the program changes"):
        run(torch.ones(3, 4).numpy(), nested={"into": torch.zeros(4)})


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class OfPairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, pair):
        self.total.add_(pair.x.sum(0))
        return pair.y * self.total


def test_arguments_that_nest_as_executables_cannot_are_given_one_by_one():
    pair = Pair(torch.ones(5, 4), torch.ones(5, 4))
    module = OfPairs()
    run = hlo_disc.torch.compile(torch.export.export(module, (pair,), dynamic_shapes=(Pair({0: ROWS}, {0: ROWS}),)))
    for rows in SIZES:
        x, y = torch.randn(2, rows, 4)
        wanted = y * (module.total + x.sum(0))
        torch.testing.assert_close(run(x, y), wanted)


def test_a_call_that_fails_changes_nothing():
    module = Several()
    run = hlo_disc.torch.compile(exported(module))
    for wrong in (torch.ones(3, 5), torch.ones(3, 4, dtype=torch.float64), torch.ones(4)):
        with pytest.raises(hlo_disc.HloDiscError):
            run(wrong)
    with pytest.raises(hlo_disc.ArgumentError, match="keyword arguments: 'y' given"):
        run(torch.ones(3, 4), y=1)
    assert module.calls == 0 and module.total.eq(0).all()


def test_calls_of_many_threads_count():
    module = Several()
    run = hlo_disc.torch.compile(exported(module))
    threads = [threading.Thread(target=lambda: [run(torch.ones(2, 4)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert module.calls == 200 and module.total.eq(400).all()


def test_without_changes_it_takes_and_gives_the_same():
    module = nn.Linear(4, 2)
    run = hlo_disc.torch.compile(exported(module))
    x = torch.randn(7, 4)
    torch.testing.assert_close(run(x), module(x).detach())
    with pytest.raises(hlo_disc.ArgumentError, match="a Linear is no torch.export.ExportedProgram"):
        hlo_disc.torch.compile(module)
