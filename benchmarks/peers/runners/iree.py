"""IREE on the CPU. Programs come as ONNX, as its StableHLO importer takes static shapes only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import iree.compiler.tools as compiler
import iree.runtime as runtime
import numpy as np

from benchmarks.peers.reader import OnnxReader
from benchmarks.peers.runner import Call
from benchmarks.program import Program

# The flags that its documentation recommends for speed. Tiles of some programs need more of the stack than it allows
# itself, and a few programs compile only with fewer optimizations.
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-data-tiling",
    "--iree-llvmcpu-enable-ukernels=all",
    "--iree-llvmcpu-stack-allocation-limit=1048576",
)
LEVELS = ("O3", "O1")

cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
runtime.flags.parse_flags(f"--task_topology_cpu_ids={cores}", "--task_worker_stack_size=4194304")


class Iree(OnnxReader):
    name, about = "IREE", "from ONNX; llvm-cpu for the host with O3, data tiling and microkernels; local-task"
    packages = ("iree-base-compiler", "iree-base-runtime")

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        """Import the ONNX file. The importer puts the weights into a separate file."""
        super().load(program, dtype, file)
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        self._module, self._weights = folder / "module.mlir", folder / "weights.irpa"
        importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(self._file), "-o", str(self._module)]
        weights = ["--externalize-params", "--params-scope", "model", "--save-params-to", str(self._weights)]
        done = subprocess.run([*importer, *weights], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"importing: {done.stderr.strip().splitlines()[-1]}")

    def prepare(self, cold: bool) -> Call:
        instance, device = runtime.VmInstance(), runtime.get_device("local-task")
        weights = runtime.ParameterIndex()
        if self._weights.exists():
            weights.load(str(self._weights))
        modules = [
            runtime.create_hal_module(instance, device),
            runtime.create_io_parameters_module(instance, weights.create_provider(scope="model")),
            runtime.VmModule.copy_buffer(instance, self._compile()),
        ]
        context = runtime.VmContext(instance, modules)
        (name,) = (name for name in modules[-1].function_names if not name.startswith("__") and "$" not in name)
        invoke = runtime.FunctionInvoker(context, device, modules[-1].lookup_function(name))
        return lambda inputs: invoke(*inputs)

    def _compile(self) -> bytes:
        reasons = []
        for level in LEVELS:
            try:
                return compiler.compile_file(str(self._module), extra_args=[*FLAGS, f"--iree-opt-level={level}"])
            except compiler.CompilerToolError as error:
                reasons += [line.partition("error:")[2] for line in str(error).splitlines() if "error:" in line]
        raise RuntimeError(reasons[0].strip() if reasons else "iree-compile failed")

    def native(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        return [runtime.asdevicearray(runtime.get_device("local-task"), x) for x in self._as_read(arrays)]

    def numpy(self, result: Any) -> list[np.ndarray]:
        results = result if isinstance(result, list | tuple) else [result]
        return self._as_written([x.to_host() for x in results])


RUNNERS = [Iree]
