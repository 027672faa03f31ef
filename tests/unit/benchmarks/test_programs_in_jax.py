"""The programs that only JAX runs: hlo_disc computes what `jax.jit` does."""

from __future__ import annotations

import jax
import pytest

from benchmarks import in_jax
from benchmarks.program import programs
from benchmarks.programs import bert, training
from hlo_disc.benchmark.run import error

PROGRAMS = [program for program in programs(("loops", "indexing", "products")) if program.name != "greedy decoding"]


@pytest.mark.parametrize("program", [*PROGRAMS, training.MLP], ids=lambda program: program.name)
def test_agree(program):
    dtype = program.dtypes[0]
    ours, theirs = in_jax.compiled(program, fallback=False), jax.jit(in_jax.function(program))
    weights = in_jax.weights(program, dtype)
    for sizes in program.stream_sizes()[:2]:
        inputs = in_jax.inputs(program, sizes, dtype)
        for got, want in zip(ours(weights, inputs), theirs(weights, inputs), strict=True):
            assert error([got], [want]) <= {"f32": 1e-4, "bf16": 1e-2}[dtype], sizes


def test_sizes_are_in_the_order_of_shapes():
    assert bert.SMALL.sizes(2, 77) == {"b": 2, "s": 77}
    with pytest.raises(ValueError, match="shorter"):
        bert.SMALL.sizes(2)
