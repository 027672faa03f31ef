"""The base of runners that read ONNX files. PyTorch exports the files: images in them are NCHW."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ml_dtypes import bfloat16

from benchmarks.peers.runner import Runner
from benchmarks.program import Program

THREADS = len(os.sched_getaffinity(0))


class OnnxReader(Runner):
    reads_file, infers = True, True

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        assert file is not None
        self._file = file

    def compilations(self) -> int:
        return 1

    def _as_read(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the inputs in the types and layouts of the file."""
        floats = bfloat16 if self.dtype == "bf16" and not self.reads_f32 else np.float32
        typed = [x.astype(floats) if x.dtype == np.float32 else x for x in arrays]
        return [np.ascontiguousarray(self._axes(x, (0, 3, 1, 2))) for x in typed]

    def _as_written(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results as `numpy` has to return them."""
        wide = [x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in results]
        return [self._axes(x, (0, 2, 3, 1)) for x in wide]

    def _axes(self, x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        return x.transpose(order) if self.program.images and x.ndim == 4 else x
