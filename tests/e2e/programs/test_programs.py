"""Every program of oracle/cases/programs.py at many sizes: equal to `jax.jit` within the stated accuracy."""

import warnings

import depth
import jax
import numpy as np
import pytest
from cases.programs import PROGRAMS, Program
from comparison.accuracy import complaint, complaints
from hand_written.fence import fenced

import hlo_disc

# Slices whose size is asked about, and gathers that the function writes otherwise at size 0.
PROGRAMS_OF = {"slice": 2, "slice_dynamic": 3, "take_along": 2}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A program with both levels; without `--full` with one of them, and the next with the other."""
    if "target" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--target")
        targets = [chosen] if chosen else ["cpu", "cpu:avx2"]
        rows = depth.crossed(list(PROGRAMS.values()), targets)
        metafunc.parametrize("program, target", rows, ids=[f"{target}-{program}" for program, target in rows])


def test_right_at_every_size(program: Program, target: str) -> None:
    with jax.enable_x64(program.x64), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = hlo_disc.jit(program.fn, dims=program.dims, constraints=program.constraints, target=target)
        found = complaints(program, lambda *arrays: compiled(*map(fenced, arrays)))
    assert not found, "\n".join(found)
    # One for all sizes; JAX goes other ways at some that are 0 or 1.
    assert compiled.stats().compilations <= PROGRAMS_OF.get(program.name, 1), compiled.stats()


def test_a_wrong_result_is_noticed() -> None:
    exact = np.linspace(-1.0, 1.0, 50)
    xla = exact.astype(np.float32)
    assert not complaint(xla, xla, exact, relative=True)
    assert not complaint(np.nextafter(xla, np.float32(2)), xla, exact, relative=False)
    off = xla.copy()
    off[7] *= np.float32(1.00001)
    assert "error" in complaint(off, xla, exact, relative=True)
    off[7] = np.nan
    assert "NaN" in complaint(off, xla, exact, relative=False)
    assert "instead of" in complaint(xla[:3], xla, exact, relative=False)
    counts = np.arange(5, dtype=np.int32)
    assert "wrong at 5" in complaint(counts + 1, counts, counts, relative=False)
