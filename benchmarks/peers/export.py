"""An exporter of programs to ONNX: `python -m benchmarks.peers.export PROGRAM DTYPE PATH`, in PyTorch's environment.

All dims are dynamic; large weights are in a file beside the ONNX file. The last line of the output is the seconds that
the export took, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.frameworks import torch as ops
from benchmarks.peers.runners.torch import Module
from benchmarks.program import Program, named, programs


def embedding_bag(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Sum rows of a table by ops that ONNX has: the exporter turns PyTorch's embedding_bag into a loop over bags."""
    return torch.nn.functional.embedding(ids, table).sum(1)


ops.embedding_bag = embedding_bag


class Indexed(torch.nn.Module):
    """A module with int64 integers, as PyTorch's indices are: with others the exporter writes invalid files."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.module(*(x if x.is_floating_point() else x.long() for x in inputs))


def places(dims: str) -> list[tuple[int, str] | None]:
    """Parse "(b, _, 16*s)": return (factor, dim) for each axis, or None where the axis is fixed."""
    texts = [text.strip() for text in dims.strip("() ").split(",")]
    parts = [text.rpartition("*") for text in texts if text]
    return [None if name == "_" else (int(times or 1), name) for times, _, name in parts]


def some_sizes(program: Program) -> dict[str, int]:
    """Return small sizes to trace with, neither 0 nor 1 and, if possible, distinct."""
    picked = {}
    for number, (name, (low, high, step)) in enumerate(program.stream.items(), 1):
        picked[name] = min(low + number * step, high)
    return picked


def bounds(program: Program) -> dict[str, tuple[int, int]]:
    """Return the range of each dim, so that the exporter knows that a table of positions has enough rows."""
    found = {}
    for name, (low, high, _) in program.stream.items():
        timed = [sizes[name] for sizes in program.shapes]
        found[name] = min(low, *timed), max(high, *timed)
    return found


def onnx(program: Program, dtype: str, path: Path) -> float:
    inputs = tuple(ops.array(x, dtype, program.images) for x in program.inputs(**some_sizes(program)))
    module = Indexed(Module(program, dtype)).eval()
    shapes = tuple(dynamic_shapes(program))
    names = [f"in{number}" for number in range(len(inputs))]
    start = time.perf_counter()
    try:
        # torch.onnx's own call of torch.export defers guards, and then finds the caches of GPT-2 inconsistent.
        exported = torch.export.export(module, inputs, dynamic_shapes=(shapes,))
        torch.onnx.export(exported, (), path, input_names=names, external_data=True, verbose=False)
    except torch._dynamo.exc.UserError:
        # It unrolls recurrent layers. The exporter before it has an operation for each of them.
        axes = {name: list(shape) for name, shape in zip(names, shapes, strict=True)}
        torch.onnx.export(module, inputs, path, input_names=names, dynamic_axes=axes, dynamo=False)
    return time.perf_counter() - start


def dynamic_shapes(program: Program) -> list[dict[int, Any]]:
    """Return the dims of each input's axes, without the axes that are fixed."""
    dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in bounds(program).items()}
    found = []
    for text in program.dims:
        of = places(text)
        if program.images and len(of) == 4:
            of = [of[0], of[3], of[1], of[2]]
        made = {axis: (place[0], dims[place[1]]) for axis, place in enumerate(of) if place}
        found.append({axis: times * dim if times > 1 else dim for axis, (times, dim) in made.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=[program.name for program in programs()], metavar="PROGRAM")
    parser.add_argument("dtype")
    parser.add_argument("path", type=Path)
    given = parser.parse_args()
    print(json.dumps(onnx(named(given.program), given.dtype, given.path)))


if __name__ == "__main__":
    main()
