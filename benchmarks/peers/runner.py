"""The base of runners: a runner runs programs with one peer. Each module of `runners` lists its own as RUNNERS."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.program import Program

Call = Callable[[list[Any]], Any]


class Runner:
    """A peer and, once loaded, a program.

    ours: it is hlo_disc. dynamic: one compilation serves all shapes. static_form_of: the dynamic peer of which this one
    is the form for each shape; this one is left out if the dynamic one compiles for long. reads_file: it reads programs
    as ONNX files (`export.py`); reads_f32: always the file in f32. dtypes: those that it runs. infers: it runs no
    programs that train. store: the environment variable for the folder in which it keeps compiled code. ops: the module
    of `frameworks` that it runs, if it runs one.
    """

    name: str
    about: str
    packages: Sequence[str]
    ours = False
    dynamic = True
    static_form_of = ""
    reads_file = False
    reads_f32 = False
    dtypes: Sequence[str] = ("f32", "bf16")
    infers = False
    store = ""
    ops: Any

    program: Program
    dtype: str

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        """Do what is not timed: load the weights, or the file if it `reads_file`."""
        self.program, self.dtype = program, dtype

    def keep(self, folder: Path) -> None:
        """Keep what is compiled from now on in this folder, and reuse what is already there."""
        os.environ[self.store] = str(folder)

    def prepare(self, cold: bool) -> Call:
        """Return a callable, which may compile now or at its first call. cold: with empty caches."""
        raise NotImplementedError

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Return inputs in the form that the callable takes."""
        return [self.ops.array(x, self.dtype, self.program.images) for x in arrays]

    def wait(self, result: Any) -> None:
        """Wait until a result has been computed."""

    def numpy(self, result: Any) -> list[np.ndarray]:
        """Return results as numpy arrays: floats as float64, images as (batch, height, width, channels)."""
        return [self.ops.numpy(x, self.program.images) for x in result]

    def compilations(self) -> int:
        """Return the number of compilations since `prepare`."""
        raise NotImplementedError

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage of the first compilation since `prepare`, as far as the peer reports it."""
        return {}
