"""TVM on the CPU, without tuning.

It has no library and no schedules for matrix products and convolutions there. They are scalar loops, a hundred times
slower than others', until a search of hours has found schedules for one shape. Programs with them are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir import dlight
from tvm.target.codegen import llvm_get_system_cpu

from benchmarks.peers.reader import THREADS, OnnxReader
from benchmarks.peers.runner import Call
from benchmarks.program import Program

# It takes every second core for a thread of the one before, and would bind two threads to the same.
os.environ |= {"TVM_NUM_THREADS": str(THREADS), "TVM_BIND_THREADS": "0"}

UNSCHEDULED = {"MatMul", "Gemm", "Conv", "LSTM", "GRU", "Attention"}


class Tvm(OnnxReader):
    name, about = "TVM", "Relax's default pipeline with the CPU rules of dlight, for the host, without tuning"
    packages = ("apache-tvm",)
    dtypes = ("f32",)

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        model = onnx.load(self._file)
        found = UNSCHEDULED & {node.op_type for node in model.graph.node}
        if found:
            raise NotImplementedError(f"no schedules for {', '.join(sorted(found))} without tuning for each shape")
        self._imported = from_onnx(model)

    def prepare(self, cold: bool) -> Call:
        target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num-cores": THREADS})
        rules = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction())
        with target:
            lowered = tvm.transform.Sequential([relax.get_pipeline("zero"), rules])(self._imported)
        machine = relax.VirtualMachine(tvm.compile(lowered, target), tvm.cpu())
        return lambda inputs: machine["main"](*inputs)

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        return [tvm.runtime.tensor(x) for x in self._as_read(arrays)]

    def numpy(self, result: Any) -> list[np.ndarray]:
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return self._as_written([x.numpy() for x in results])


RUNNERS = [Tvm]
