"""The least work of a program at given sizes, counted in the graph that its JAX function becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks import in_jax, tree
from benchmarks.program import Program
from hlo_disc import sources
from hlo_disc.benchmark.cost import Work, work
from hlo_disc.dynamic_hlo.passes.simplify import simplify


def least_work(program: Program, dtype: str) -> Callable[[Mapping[str, int]], Work]:
    def spec(x: np.ndarray, shape: str) -> str:
        """Return the spec of an array. shape: its dims as text; "_" stands for the size that the array has."""
        named = [name.strip() for name in shape.strip("() ").split(",") if name.strip()]
        sizes = [str(size) if name == "_" else name for name, size in zip(named, x.shape, strict=True)]
        return f"{dtype if x.dtype == np.float32 else x.dtype.name.replace('int', 'i')}[{', '.join(sizes)}]"

    drawn = program.drawn()
    weights = tree.mapped(lambda x: spec(x, ", ".join("_" * x.ndim)), drawn)
    inputs = [spec(x, shape) for x, shape in zip(program.inputs(**program.shapes[0]), program.dims, strict=True)]
    graph = simplify(sources.graph(in_jax.function(program), weights, inputs, constraints=program.constraints))
    shapes = [x.shape for x in tree.leaves(drawn)]
    return lambda sizes: work(graph, [*shapes, *(x.shape for x in program.inputs(**sizes))])
