"""What reads ONNX files. They come from PyTorch, so that images are (batch, channels, height, width) in them."""

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
        """Inputs as the file has them."""
        floats = bfloat16 if self.dtype == "bf16" and not self.reads_f32 else np.float32
        typed = [x.astype(floats) if x.dtype == np.float32 else x for x in arrays]
        return [np.ascontiguousarray(self._axes(x, (0, 3, 1, 2))) for x in typed]

    def _as_written(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Results as `numpy` has them."""
        wide = [x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in results]
        return [self._axes(x, (0, 2, 3, 1)) for x in wide]

    def _axes(self, x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        return x.transpose(order) if self.program.images and x.ndim == 4 else x
