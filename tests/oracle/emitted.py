"""StableHLO text that hlo_disc writes of a program: what it computes when hlo_disc reads it again, and by XLA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import hlo_disc
from hlo_disc.conformance import oracle
from hlo_disc.import_.stablehlo.source import load_module

Call = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]


def check(text: str, calls: Sequence[Call], atol: float = 1e-5) -> hlo_disc.Executable:
    """Assert that a module gives the results of all calls, (arguments, results) each; what hlo_disc makes of it."""
    executable = hlo_disc.compile(text)
    for arguments, results in calls:
        types = [(x.dtype, x.shape) for x in arguments]
        by_xla = oracle.XlaProgram(oracle.refine(load_module(text), types))(arguments)
        for got in (executable.native(*arguments), by_xla):
            assert [x.shape for x in got] == [x.shape for x in results]
            for x, y in zip(got, results, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol)
    return executable
