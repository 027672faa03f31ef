"""Hugging Face's models in PyTorch: compiled by hlo_disc, by Inductor with dynamic shapes, in eager mode; and exported.

What ONNX Runtime and OpenVINO run is the model as `torch.onnx` exports it, with both sizes dynamic and in f32.

    make bench-torch                                          # all of it
    .venv-torch/bin/python -m benchmarks.pytorch --layers 2 --no-peers

Ways take turns in one process; times are medians, ratios those of one run. What a first call takes is said without what
Dynamo and AOTAutograd take, which is measured by their backend that compiles nothing.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch._inductor.utils import fresh_cache
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

SHAPES = ((1, 17), (1, 128), (2, 77), (4, 128), (1, 384))
# Compiled for at first: neither of one row nor of equal sizes.
FIRST = (3, 19)
OVERHEAD_CALLS = 2000

Call = Callable[[torch.Tensor], Any]  # a tensor or an array


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


class Function(torch.nn.Module):
    """The same as a module, for what exports no functions."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return function(self.model)(ids)


def exported(model: torch.nn.Module) -> dict[str, Call]:
    """By runtimes that read ONNX, on as many threads as PyTorch has."""
    import onnxruntime
    import openvino

    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ids = torch.randint(0, 30000, FIRST)
        torch.onnx.export(
            Function(model).eval(), (ids,), path, input_names=["ids"], dynamic_shapes=(sizes,), verbose=False
        )
        session = onnxruntime.InferenceSession(path, options)
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        core = openvino.Core()
        request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()

    def by_openvino(x: torch.Tensor) -> np.ndarray:
        return request.infer([x.numpy()], share_inputs=True, share_outputs=True)[0]

    return {"ONNX Runtime": lambda x: session.run(None, {"ids": x.numpy()})[0], "OpenVINO": by_openvino}


def ways(model: torch.nn.Module, peers: bool) -> dict[str, Call]:
    """The same, by who compiles it. Raises AssertionError for one that computes something else."""
    call = function(model)
    made: dict[str, Call] = {"eager": call}
    made["hlo_disc"] = torch.compile(call, backend="hlo_disc", dynamic=True, options={"freeze": True})
    made["hlo_disc, weights as arguments"] = torch.compile(call, backend="hlo_disc", dynamic=True)
    if peers:
        made["Inductor"] = torch.compile(call, dynamic=True)
        made |= exported(model)
    for other in made.values():
        ids = torch.randint(0, 30000, FIRST)
        torch.testing.assert_close(torch.as_tensor(other(ids)), call(ids), rtol=1e-3, atol=1e-3)
    return made


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def first_calls(model: torch.nn.Module, inductor: bool) -> dict[str, float]:
    """What a first call takes, more than one of a backend that compiles nothing. Nothing is found in caches on disk.

    The fastest of three, but of Inductor the only one.
    """
    ids = torch.randint(0, 30000, FIRST)

    def first(backend: str) -> float:
        torch._dynamo.reset()
        compiled = torch.compile(function(model), backend=backend, dynamic=True)
        gc.collect()
        with fresh_cache():
            return seconds(lambda: compiled(ids))

    rounds = [[first(backend) for backend in ("aot_eager", "hlo_disc")] for _ in range(3)]
    nothing, ours = (min(values) for values in zip(*rounds, strict=True))
    return {"hlo_disc": ours - nothing} | ({"Inductor": first("inductor") - nothing} if inductor else {})


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


def compared(name: str, model: torch.nn.Module, rounds: int, with_peers: bool) -> Table:
    """A row a shape: milliseconds of hlo_disc, and how many times that each other way takes."""
    torch._dynamo.reset()
    calls = ways(model, with_peers)
    peers = [peer for peer in calls if peer != "hlo_disc"]
    table = Table("shape", "hlo_disc, ms", *(f"{peer} / hlo_disc" for peer in peers), title=name)
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    for shape in SHAPES:
        ids = torch.randint(0, 30000, shape)
        for call in calls.values():
            call(ids)
        times = turns({peer: lambda f=f, ids=ids: f(ids) for peer, f in calls.items()}, rounds)
        for peer in peers:
            ratios[peer].append(times[peer] / times["hlo_disc"])
        table.add_row(str(shape), f"{1e3 * times['hlo_disc']:.1f}", *(f"{x[-1]:.2f}" for x in ratios.values()))
    table.add_row("geometric mean", "", *(f"{statistics.geometric_mean(x):.2f}" for x in ratios.values()))
    return table


@click.command()
@click.option("--layers", default=12, show_default=True)
@click.option("--rounds", default=9, show_default=True, help="Calls of each way at each shape; 0 is none.")
@click.option("--peers/--no-peers", default=True, help="Inductor, ONNX Runtime and OpenVINO too.")
def main(layers: int, rounds: int, peers: bool) -> None:
    """BERT-base and GPT-2 at five shapes, what a first call takes, and what a short one does."""
    console = Console(width=120)
    with torch.no_grad():
        for name, model in models(layers).items():
            if rounds:
                console.print(compared(name, model, rounds, peers))
            taken = first_calls(model, peers)
            told = ", ".join(f"{who} {value:.2f} s" for who, value in taken.items())
            console.print(f"{name}, first call, of it compiling: {told}")
        short = ", ".join(f"{who} {value:.2f} µs" for who, value in overhead().items())
        console.print(f"x * 2 on f32[8]: {short}")


if __name__ == "__main__":
    main()
