"""Programs as files: `python -m benchmarks.peers.export onnx|stablehlo PROGRAM DTYPE PATH [--sizes JSON]`.

ONNX is made in PyTorch's environment, with the weights in a file beside it. StableHLO is made in JAX's, with the
weights as the first arguments: in the text they would be constants, which compilers copy and fold.
All dims are dynamic, unless sizes are given. The last line of what is printed is the seconds that it took, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import tree
from benchmarks.peers.program import Program, programs


def places(dims: str) -> list[tuple[int, str] | None]:
    """Of "(b, _, 16*s)": how many times which dim each place is, or None where it is fixed."""
    texts = [text.strip() for text in dims.strip("() ").split(",")]
    parts = [text.rpartition("*") for text in texts if text]
    return [None if name == "_" else (int(times or 1), name) for times, _, name in parts]


def some_sizes(program: Program) -> dict[str, int]:
    """Small ones to trace with, neither 0 nor 1 nor, if possible, the same."""
    picked = {}
    for number, (name, (low, high, step)) in enumerate(program.stream.items(), 1):
        picked[name] = min(low + number * step, high)
    return picked


def bounds(program: Program) -> dict[str, tuple[int, int]]:
    """Of each dim, so that a table of positions is known to have the rows that are taken."""
    found = {}
    for name, (low, high, _) in program.stream.items():
        timed = [sizes[name] for sizes in program.shapes]
        found[name] = min(low, *timed), max(high, *timed)
    return found


def onnx(program: Program, dtype: str, path: Path, sizes: Mapping[str, int] | None) -> float:
    import torch

    from benchmarks.peers.frameworks import torch as ops
    from benchmarks.peers.runners.torch import Module

    arrays = program.inputs(**(sizes or some_sizes(program)))
    inputs = tuple(ops.array(x, dtype, program.images) for x in arrays)
    module = Module(program, dtype).eval()
    dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in bounds(program).items()}
    shapes = tuple(_torch_shape(program, text, dims) for text in program.dims)
    input_names = [f"in{number}" for number in range(len(inputs))]
    start = time.perf_counter()
    try:
        # torch.onnx's own call of torch.export defers guards, and then finds the caches of GPT-2 inconsistent.
        exported = torch.export.export(module, inputs, dynamic_shapes=None if sizes else (shapes,))
        torch.onnx.export(exported, (), path, input_names=input_names, external_data=True, verbose=False)
    except torch._dynamo.exc.UserError:
        # It unrolls recurrent layers. The exporter before it has an operation for each of them.
        axes = {name: list(shape) for name, shape in zip(input_names, shapes, strict=True)}
        torch.onnx.export(module, inputs, path, input_names=input_names, dynamic_axes=axes, dynamo=False)
    return time.perf_counter() - start


def _torch_shape(program: Program, text: str, dims: Mapping[str, Any]) -> dict[int, Any]:
    of = places(text)
    if program.images and len(of) == 4:
        of = [of[0], of[3], of[1], of[2]]
    made = {axis: (place[0], dims[place[1]]) for axis, place in enumerate(of) if place}
    return {axis: times * dim if times > 1 else dim for axis, (times, dim) in made.items()}


def stablehlo(program: Program, dtype: str, path: Path, sizes: Mapping[str, int] | None) -> float:
    import jax

    from benchmarks.peers.frameworks import jax as ops

    weights = jax.eval_shape(lambda: ops.load(program.drawn(), dtype))
    arrays = [ops.array(x, dtype) for x in program.inputs(**(sizes or some_sizes(program)))]
    shapes: Sequence[Any] = [x.shape for x in arrays]
    if not sizes:
        known = [(f"{name} >= {low}", f"{name} <= {high}") for name, (low, high) in bounds(program).items()]
        scope = jax.export.SymbolicScope([text for pair in known for text in pair])
        shapes = [
            jax.export.symbolic_shape(dims, scope=scope, like=x.shape)
            for dims, x in zip(program.dims, arrays, strict=True)
        ]
    inputs = [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in zip(shapes, arrays, strict=True)]

    def function(weights: Any, inputs: Any) -> list[Any]:
        return tree.leaves(program.fn(ops, weights, *inputs))

    start = time.perf_counter()
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(weights, inputs)
    path.write_text(_unchecked(exported.mlir_module()))
    return time.perf_counter() - start


def _unchecked(module: str) -> str:
    """Without what checks sizes at run time: custom calls that only XLA has."""
    return "\n".join(line for line in module.splitlines() if "stablehlo.custom_call @shape_assertion" not in line)


KINDS: Mapping[str, Callable[[Program, str, Path, Mapping[str, int] | None], float]] = {
    "onnx": onnx,
    "stablehlo": stablehlo,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("program", choices=[program.name for program in programs()], metavar="PROGRAM")
    parser.add_argument("dtype")
    parser.add_argument("path", type=Path)
    parser.add_argument("--sizes", type=json.loads)
    given = parser.parse_args()
    (program,) = (each for each in programs() if each.name == given.program)
    print(json.dumps(KINDS[given.kind](program, given.dtype, given.path, given.sizes)))


if __name__ == "__main__":
    main()
