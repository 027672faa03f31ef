"""Helpers of the tests: small DHLO graphs from shape strings, and arrays for them. They need neither JAX nor MLIR."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Shape, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts


def shape(text: str) -> Shape:
    """ "b, s+1, 4" as Dims."""
    return tuple(map(Dim.parse, re.split(r",(?![^(]*\))", text))) if text.strip() else ()


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
