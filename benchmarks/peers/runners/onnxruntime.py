"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.peers.reader import THREADS, OnnxReader
from benchmarks.peers.runner import Call


class OnnxRuntime(OnnxReader):
    name, about = "ONNX Runtime", "its CPU provider, which has no bf16, with all optimizations of graphs"
    packages = ("onnxruntime",)
    dtypes = ("f32",)

    def prepare(self, cold: bool) -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._session = onnxruntime.InferenceSession(self._file, options, providers=["CPUExecutionProvider"])
        names = [x.name for x in self._session.get_inputs()]
        return lambda inputs: self._session.run_with_ort_values(None, dict(zip(names, inputs, strict=True)))

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        return [onnxruntime.OrtValue.ortvalue_from_numpy(x) for x in self._as_read(arrays)]

    def numpy(self, result: Any) -> list[np.ndarray]:
        return self._as_written([x.numpy() for x in result])


RUNNERS = [OnnxRuntime]
