"""What runs programs: one peer. A module of `runners` has those of one environment, as RUNNERS."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.program import Program

Call = Callable[[list[Any]], Any]


class Runner:
    """One peer and, once loaded, one program.

    ours: hlo_disc. dynamic: one compilation serves all shapes. static_form_of: the peer whose form for each shape it
    is, which is left out where that one compiles for long. reads_file: programs come to it as ONNX files
    (`export.py`), not as they are written; reads_f32: always that of f32. dtypes: what it is asked for. infers: it has
    no programs that train. store: the variable of the environment that says in which folder it keeps what it compiles.
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

    program: Program
    dtype: str

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        """Everything that is not timed: weights, or the file that it `reads`."""
        self.program, self.dtype = program, dtype

    def keep(self, folder: Path) -> None:
        """Keep in this folder what is compiled from now on, and find there what was."""
        os.environ[self.store] = str(folder)

    def prepare(self, cold: bool) -> Call:
        """A callable that has compiled nothing yet, or all it needs; cold: with none of its caches."""
        raise NotImplementedError

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Inputs as the callable takes them."""
        raise NotImplementedError

    def wait(self, result: Any) -> None:
        """Until it has been computed."""

    def numpy(self, result: Any) -> list[np.ndarray]:
        """Floats as float64, images as (batch, height, width, channels)."""
        raise NotImplementedError

    def compilations(self) -> int:
        """How many since `prepare`."""
        raise NotImplementedError

    def stages(self) -> dict[str, float]:
        """Seconds of the stages of the first compilation since `prepare`, as far as it tells them."""
        return {}
