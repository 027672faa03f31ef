"""Whole JAX programs at six sizes and more: equal to `jax.jit` within the stated accuracy."""

import warnings

import pytest
from cases.jax_programs import PROGRAMS
from cases.programs import Program
from comparison.accuracy import complaints

import hlo_disc

# Chains that JAX multiplies in another order, and library calls that it gives no batch of one.
PROGRAMS_OF = {"einsum_chain": 3, "transformer_step": 2, "cholesky": 2, "solve": 3, "eigh": 2}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_right_at_every_size(program: Program) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = hlo_disc.jit(program.fn, dims=program.dims, constraints=program.constraints)
        found = complaints(program, compiled)
    assert not found, "\n".join(found)
    # One for all sizes; JAX goes other ways at some that are 0 or 1.
    assert compiled.stats().compilations <= PROGRAMS_OF.get(program.name, 1), compiled.stats()
