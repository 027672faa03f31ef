"""Faults planted in kernels of a GPU, one at a time: each that a kernel comes to is found, and nothing else."""

from __future__ import annotations

import emulated
import faults
import numpy as np
import pytest
from test_emulated_gpu import PROGRAMS, arrays

import hlo_disc
from hlo_disc.errors import DeviceError

FUNCTIONS = PROGRAMS | {
    "dot": (lambda x, y: x @ y, ("f32[m, n]", "f32[n, m]")),
    "scatter": (lambda x, y: x.at[(y[:, 0] * 9).astype(np.int32)].mul(y), ("f32[m, n]", "f32[m, n]")),
}
# Rows for teams of each size, those of whole registers too; so that blocks have several rows, and rows several steps.
SHAPES = ((40, 31), (40, 32), (20, 500), (20, 501), (10, 1100), (10, 1101), (3, 2100), (3, 2101))
# Of each kind, in the order of `faults.KINDS`, at least so many are there to be found.
LEAST = {
    "map": (0, 0, 0, 4, 16),
    "softmax": (6, 8, 60, 20, 120),
    "layer norm": (8, 8, 60, 16, 160),
    "all in one": (2, 4, 16, 4, 20),
    "argmax": (12, 12, 120, 12, 60),
    "cumulative sum": (14, 16, 90, 20, 120),
    "complex": (8, 8, 60, 10, 80),
    "dot": (6, 8, 0, 20, 60),
    "scatter": (0, 0, 4, 6, 30),
}
# Barriers that order nothing, one of a form: nothing comes before them, or nobody reads what they let through. Of a
# softmax a block of the largest team has one row.
NEEDLESS = {"softmax": 2, "all in one": 2, "cumulative sum": 2, "dot": 3}


def test_there_are_enough():
    assert all(sum(counts) >= 20 for counts in zip(*LEAST.values(), strict=True))


def fails(program, xs) -> bool:
    """Whether a call is an error, or its memory is found to be damaged when it is freed."""
    try:
        program(*xs)
        emulated.check()
    except (DeviceError, emulated.SimtError):
        emulated.emulator().simt_failure()  # of memory that was freed after an error
        return True
    return False


@pytest.mark.parametrize("name", LEAST)
def test_planted_faults_are_found(name, monkeypatch, emulated_targets):
    planted, whole = faults.Faults(), emulated.for_cpu
    monkeypatch.setattr(emulated, "for_cpu", lambda text, most: whole(planted.switched(text), most))
    function, specs = FUNCTIONS[name]
    program = hlo_disc.compile(function, *specs, target="emulated-cuda")
    plant, is_met = emulated.emulator().simt_plant, emulated.emulator().simt_met
    met, found = set[int](), set[int]()
    for m, n in SHAPES:
        xs = arrays(specs, m, n)
        plant(0)
        program(*xs)
        emulated.check()
        here = {number for number in planted.numbers if is_met(number)}
        met |= here
        for number in here - found:
            plant(number)
            if fails(program, xs):
                found.add(number)
        plant(0)
    unseen = [planted.places[number - 1] for number in sorted(met - found)]
    assert len(unseen) == NEEDLESS.get(name, 0) and all("barrier" in place for place in unseen), unseen
    for kind, least in zip(faults.KINDS, LEAST[name], strict=True):
        assert sum(planted.kinds[number - 1] == kind for number in found) >= least, kind
