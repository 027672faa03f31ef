"""OpenVINO on the CPU, which computes an f32 model in bf16 by itself where the processor has that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from benchmarks.peers.reader import THREADS, OnnxReader
from benchmarks.peers.runner import Call


class _OpenVino(OnnxReader):
    packages = ("openvino",)
    hints: dict[str, str] = {}

    def prepare(self, cold: bool) -> Call:
        core = openvino.Core()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS, **self.hints}
        self._compiled = core.compile_model(core.read_model(self._file), "CPU", settings)
        request = self._compiled.create_infer_request()
        return lambda inputs: request.infer(inputs, share_inputs=True, share_outputs=True)

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        return [openvino.Tensor(x, shared_memory=True) for x in self._as_read(arrays)]

    def numpy(self, result: Any) -> list[np.ndarray]:
        return self._as_written([result[x] for x in self._compiled.outputs])


class OpenVinoF32(_OpenVino):
    name, about, dtypes = "OpenVINO f32", "for latency, INFERENCE_PRECISION_HINT f32", ("f32",)
    hints = {"INFERENCE_PRECISION_HINT": "f32"}


class OpenVinoBf16(_OpenVino):
    name, about, dtypes = "OpenVINO bf16", "for latency, the f32 model in the precision that it chooses", ("bf16",)
    reads_f32 = True


RUNNERS = [OpenVinoF32, OpenVinoBf16]
