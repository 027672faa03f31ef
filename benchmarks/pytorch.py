"""Hugging Face's models in PyTorch: compiled by hlo_disc, by Inductor with dynamic shapes, and in eager mode.

    make bench-torch                                          # all of it
    .venv-torch/bin/python -m benchmarks.pytorch --layers 2 --no-inductor

Ways take turns in one process; times are medians, ratios those of one run. What a first call takes is said without what
Dynamo and AOTAutograd take, which is measured by their backend that compiles nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import hlo_disc.torch  # noqa: F401

SHAPES = ((1, 17), (1, 128), (2, 77), (4, 128), (1, 384))
# Compiled for at first: neither of one row nor of equal sizes.
FIRST = (3, 19)
OVERHEAD_CALLS = 2000

Call = Callable[[torch.Tensor], torch.Tensor]


def models(layers: int) -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {
        "BERT-base": BertModel(BertConfig(num_hidden_layers=layers), add_pooling_layer=False).eval(),
        "GPT-2": GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval(),
    }


def function(model: torch.nn.Module) -> Call:
    """The model as a function of ids."""
    settings = {"use_cache": False} if isinstance(model, GPT2LMHeadModel) else {}
    return lambda ids: model(input_ids=ids, **settings)[0]


def ways(model: torch.nn.Module, inductor: bool) -> dict[str, Call]:
    """The same, by who compiles it."""
    call = function(model)
    made: dict[str, Call] = {"eager": call}
    made["hlo_disc"] = torch.compile(call, backend="hlo_disc", dynamic=True, options={"freeze": True})
    made["hlo_disc, weights as arguments"] = torch.compile(call, backend="hlo_disc", dynamic=True)
    if inductor:
        made["Inductor"] = torch.compile(call, dynamic=True)
    return made


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def first_calls(model: torch.nn.Module, inductor: bool) -> dict[str, float]:
    """What a first call takes, more than one of a backend that compiles nothing."""
    ids = torch.randint(0, 30000, FIRST)
    taken = {}
    for name, backend in {"nothing": "aot_eager", "hlo_disc": "hlo_disc", "Inductor": "inductor"}.items():
        if name != "Inductor" or inductor:
            torch._dynamo.reset()
            compiled = torch.compile(function(model), backend=backend, dynamic=True)
            taken[name] = seconds(lambda f=compiled: f(ids))  # type: ignore[misc]
    return {name: value - taken["nothing"] for name, value in taken.items() if name != "nothing"}


def turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    return {name: statistics.median(values) for name, values in taken.items()}


def overhead() -> dict[str, float]:
    """Microseconds of `x * 2` on eight numbers."""
    x = torch.ones(8)
    calls = {}
    for name, backend in {"aot_eager": "aot_eager", "hlo_disc": "hlo_disc"}.items():
        torch._dynamo.reset()
        calls[name] = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)
        calls[name](torch.ones(9))
    many = {name: lambda f=f: [f(x) for _ in range(OVERHEAD_CALLS)] for name, f in calls.items()}
    return {name: 1e6 * value / OVERHEAD_CALLS for name, value in turns(many, 9).items()}


@click.command()
@click.option("--layers", default=12, show_default=True)
@click.option("--rounds", default=9, show_default=True)
@click.option("--inductor/--no-inductor", default=True)
def main(layers: int, rounds: int, inductor: bool) -> None:
    """BERT-base and GPT-2 at five shapes, what a first call takes, and what a short one does."""
    console = Console(width=120)
    with torch.no_grad():
        for name, model in models(layers).items():
            table = Table("shape", "hlo_disc, ms", *(f"{peer} / hlo_disc" for peer in ways(model, inductor)))
            torch._dynamo.reset()
            compiled = ways(model, inductor)
            for call in compiled.values():
                call(torch.randint(0, 30000, FIRST))
            ratios: dict[str, list[float]] = {peer: [] for peer in compiled}
            for shape in SHAPES:
                ids = torch.randint(0, 30000, shape)
                for call in compiled.values():
                    call(ids)
                times = turns({peer: lambda f=f, ids=ids: f(ids) for peer, f in compiled.items()}, rounds)
                for peer, value in times.items():
                    ratios[peer].append(value / times["hlo_disc"])
                table.add_row(str(shape), f"{1e3 * times['hlo_disc']:.1f}", *(f"{x[-1]:.2f}" for x in ratios.values()))
            table.add_row("geometric mean", "", *(f"{statistics.geometric_mean(x):.2f}" for x in ratios.values()))
            table.title = name
            console.print(table)
            taken = first_calls(model, inductor)
            console.print(f"first call, of it compiling: {', '.join(f'{k} {v:.2f} s' for k, v in taken.items())}")
        short = ", ".join(f"{name} {value:.2f} µs" for name, value in overhead().items())
        console.print(f"x * 2 on f32[8]: {short}")


if __name__ == "__main__":
    main()
