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


def names(dims: str) -> list[str | None]:
    """Of "(b, _, s)": what each dim is, or None where it is fixed."""
    texts = [text.strip() for text in dims.strip("() ").split(",")]
    return [None if text == "_" or text.isdigit() else text for text in texts if text]


def some_sizes(program: Program) -> dict[str, int]:
    """Small ones to trace with, neither 0 nor 1 nor, if possible, the same."""
    picked = {}
    for number, (name, (low, high, step)) in enumerate(program.stream.items(), 1):
        picked[name] = min(low + number * step, high)
    return picked


def onnx(program: Program, dtype: str, path: Path, sizes: Mapping[str, int] | None) -> float:
    import torch

    from benchmarks.peers.frameworks import torch as ops
    from benchmarks.peers.runners.torch import Module

    arrays = program.inputs(**(sizes or some_sizes(program)))
    inputs = tuple(ops.array(x, dtype, program.images) for x in arrays)
    module = Module(program, dtype).eval()
    dims = {name: _torch_dim(program, name) for name in program.stream}
    shapes = tuple(_torch_shape(program, text, dims) for text in program.dims)
    start = time.perf_counter()
    # torch.onnx's own call of torch.export defers guards, and then finds the caches of GPT-2 inconsistent.
    exported = torch.export.export(module, inputs, dynamic_shapes=None if sizes else (shapes,))
    input_names = [f"in{number}" for number in range(len(inputs))]
    torch.onnx.export(exported, (), path, input_names=input_names, external_data=True, verbose=False)
    return time.perf_counter() - start


def _torch_dim(program: Program, name: str) -> Any:
    """Bounded, so that a row of a table of positions is known to be one; a multiple of its step."""
    from torch.export import Dim

    low, high, step = program.stream[name]
    high = max(high, *(sizes.get(name, 0) for sizes in program.shapes))
    return step * Dim(f"{name}_{step}", max=high // step) if step > 1 and low % step == 0 else Dim(name, max=high)


def _torch_shape(program: Program, text: str, dims: Mapping[str, Any]) -> dict[int, Any]:
    of = names(text)
    if program.images and len(of) == 4:
        of = [of[0], of[3], of[1], of[2]]
    return {axis: dims[name] for axis, name in enumerate(of) if name}


def stablehlo(program: Program, dtype: str, path: Path, sizes: Mapping[str, int] | None) -> float:
    import jax

    from benchmarks.peers.frameworks import jax as ops

    weights = jax.eval_shape(lambda: ops.load(program.drawn(), dtype))
    arrays = [ops.array(x, dtype) for x in program.inputs(**(sizes or some_sizes(program)))]
    shapes: Sequence[Any] = [x.shape for x in arrays]
    if not sizes:
        scope = jax.export.SymbolicScope(_constraints(program))
        shapes = [
            jax.export.symbolic_shape(dims, scope=scope, like=x.shape)
            for dims, x in zip(program.dims, arrays, strict=True)
        ]
    inputs = [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in zip(shapes, arrays, strict=True)]

    def function(weights: Any, inputs: Any) -> list[Any]:
        return tree.leaves(program.fn(ops, weights, *inputs))

    start = time.perf_counter()
    # What checks sizes at run time is a custom call that only XLA has.
    unchecked = [jax.export.DisabledSafetyCheck.shape_assertions()]
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"], disabled_checks=unchecked)
    path.write_bytes(exported(weights, inputs).mlir_module_serialized)
    return time.perf_counter() - start


def _constraints(program: Program) -> list[str]:
    found = []
    for name, (low, _, step) in program.stream.items():
        found += [f"{name} >= {low}"] + ([f"mod({name}, {step}) == 0"] if step > 1 and low % step == 0 else [])
    return found


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
