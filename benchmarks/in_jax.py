"""Programs as functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import hlo_disc
from benchmarks import tree
from benchmarks.frameworks import jax as ops
from benchmarks.program import Program


def function(program: Program) -> Callable[..., list[Any]]:
    """Return a new function of weights and a list of inputs, for which JAX has compiled nothing."""
    return lambda weights, inputs: tree.leaves(program.fn(ops, weights, *inputs))


def compiled(program: Program, **options: Any) -> hlo_disc.JitFunction:
    """Return the program under `hlo_disc.jit`, its dims named."""
    dims = {"inputs": list(program.dims)}
    return hlo_disc.jit(function(program), dims=dims, constraints=program.constraints, **options)


def weights(program: Program, dtype: str = "f32") -> Any:
    return ops.load(program.drawn(), dtype)


def inputs(program: Program, sizes: Mapping[str, int], dtype: str = "f32") -> list[Any]:
    return [ops.array(x, dtype) for x in program.inputs(**sizes)]
