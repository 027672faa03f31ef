"""Helpers of the tests: small DHLO graphs from shape strings, arrays for them, and XLA to run them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import jax
import numpy as np
from jax.extend.backend import get_backend
from jaxlib._jax import DeviceList

from hlo_disc import mlir
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Shape, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.print.text import tensor_type
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.options import Options
from hlo_disc.pipeline import STAGES, InProgress


def shape(text: str) -> Shape:
    """ "b, s+1, 4" as Dims."""
    return tuple(map(Dim.parse, re.split(r",(?![^(]*\))", text))) if text.strip() else ()


def stitched(graph: Graph, device: Device) -> InProgress:
    """What fusion, schedules and the host flow make of a graph for a device, without a target."""
    made = InProgress(graph, Options())
    kept = SimpleNamespace(add=lambda module: made.kernels.append(str(module)))
    generator = SimpleNamespace(device=device, batch=0, begin=lambda dump: nullcontext(kept))
    made.graph, made.inputs, made.generator = graph, graph.inputs, generator
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index("normalise") : names.index("codegen")]:
        stage.run(made)
    return made


def make_graph(
    inputs: Sequence[tuple[str, str]],
    build: Callable[..., Value | Sequence[Value]],
    facts: ShapeFacts | None = None,
    guards: Sequence[Guard] = (),
    bindings: Mapping[str, Dim] | None = None,
) -> Graph:
    """A graph of inputs ("float32", "b, s, 4"); `build(builder, *inputs)` returns what it puts out.

    A symbol is bound to the first dim that is that symbol alone, or by `bindings`; every other dim of an input
    gets a guard, after `guards`.
    """
    values = tuple(Value(np.dtype(dtype), shape(text), None, i) for i, (dtype, text) in enumerate(inputs))
    bound = dict(bindings or {})
    for number, value in enumerate(values):
        for axis, dim in enumerate(value.shape):
            if {str(dim)} == dim.symbols:
                bound.setdefault(str(dim), raw_dim(number, axis))
    checks = list(guards)
    for number, value in enumerate(values):
        for axis, dim in enumerate(value.shape):
            raw = raw_dim(number, axis)
            if dim.substitute(bound) != raw:
                checks.append(Guard(raw, "==", dim, f"x{number}: dim {axis} is {{0}}, expected {{1}}", (raw, dim)))
    builder = GraphBuilder(facts or ShapeFacts())
    outputs = build(builder, *values)
    outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
    names = tuple(f"x{i}" for i in range(len(values)))
    return Graph("test", values, names, outputs, tuple(builder.ops), builder.facts, bound, tuple(checks))


def sample(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    """Random inputs of `graph` at the given symbols; integers are small and of both signs."""
    rng = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        dims = [dim.evaluate(sizes) for dim in value.shape]
        if value.dtype == bool:
            arrays.append(rng.integers(0, 2, dims).astype(bool))
        elif value.dtype.kind in "iu":
            arrays.append(rng.integers(-4 if value.dtype.kind == "i" else 0, 9, dims).astype(value.dtype))
        else:
            arrays.append((rng.standard_normal(dims) * 2).astype(value.dtype))
    return arrays


def run_stablehlo(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A module with `?` sizes, refined to the shapes of `arrays` and run by XLA on the CPU.

    XLA and not StableHLO's interpreter, because that aborts the process on a dot of size 0.
    """
    with mlir.context():
        module = mlir.ir.Module.parse(text)
        types = [tensor_type(array.dtype, tuple(map(Dim.const, array.shape))) for array in arrays]
        if types:
            mlir.run_passes(module, f"stablehlo-refine-arguments{{types={','.join(types)}}}")
        module = mlir.refine_polymorphic_shapes(module)
        mlir.run_passes(module, "func.func(chlo-legalize-to-stablehlo)")
        program = mlir.bytecode(module)
    device = jax.devices("cpu")[0]
    with jax.enable_x64(True):
        executable = get_backend("cpu").compile_and_load(program, DeviceList((device,)))
        results = executable.execute_sharded([jax.device_put(array, device) for array in arrays])
        return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]
