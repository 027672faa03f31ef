"""What the machine can do at most, measured on all cores: f32 fused multiply-adds and bytes copied a second."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

CHAINS = 12  # independent accumulators: enough to hide the latency, few enough for 16 registers
COPIED = tuple(1 << power for power in (20, 22, 24, 26, 28))


class Limits(NamedTuple):
    """What bounds every program.

    flops: f32 operations a second (a fused multiply-add is two).
    bandwidth: bytes read and written a second by a copy, by the bytes that it goes over again and again.
    """

    flops: float
    bandwidth: dict[int, float]

    def seconds(self, flops: float, size: float) -> float:
        """The least time for so many operations and bytes moved."""
        nearest = min(self.bandwidth, key=lambda total: abs(math.log(total / max(size, 1.0))))
        return max(flops / self.flops, size / self.bandwidth[nearest])


def cores() -> int:
    return len(os.sched_getaffinity(0))


def measure() -> Limits:
    """The best of a few runs on all cores. Takes about a second."""
    with ThreadPoolExecutor(cores()) as pool:
        return Limits(_flops(pool), {size: _bandwidth(pool, size) for size in COPIED})


def _flops(pool: ThreadPoolExecutor) -> float:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    lanes = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
    module = llvm.parse_assembly(_loop(lanes))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("fma_loop"))
    count = 4_000_000
    best = min(_elapsed(pool, lambda _: run(count)) for _ in range(7))
    return 2.0 * CHAINS * lanes * count * cores() / best


def _loop(lanes: int) -> str:
    """LLVM IR of a loop with CHAINS independent fused multiply-adds on vectors of `lanes`."""
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(CHAINS))
    fmas = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{i}, {vector} %x, {vector} %x)"
        for i in range(CHAINS)
    )
    sums = [f"  %s0 = fadd {vector} %b0, %b1"]
    sums += [f"  %s{i} = fadd {vector} %s{i - 1}, %b{i + 1}" for i in range(1, CHAINS - 1)]
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define float @fma_loop(i64 %count) {{
entry:
  %f = sitofp i64 %count to float
  %g = fdiv float 1.0, %f
  %v = insertelement {vector} poison, float %g, i32 0
  %x = shufflevector {vector} %v, {vector} poison, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{fmas}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
{chr(10).join(sums)}
  %r = extractelement {vector} %s{CHAINS - 2}, i32 0
  ret float %r
}}
"""


def _bandwidth(pool: ThreadPoolExecutor, total: int) -> float:
    size = total // (2 * cores())
    repeats = max(1, (64 << 20) // total)
    pairs = [(np.ones(size, np.uint8), np.zeros(size, np.uint8)) for _ in range(cores())]

    def copy(core: int) -> None:
        source, target = pairs[core]
        for _ in range(repeats):
            np.copyto(target, source)

    best = min(_elapsed(pool, copy) for _ in range(7))
    return 2.0 * size * cores() * repeats / best


def _elapsed(pool: ThreadPoolExecutor, work) -> float:
    start = time.perf_counter()
    list(pool.map(work, range(cores())))
    return time.perf_counter() - start


def describe() -> dict[str, str | int]:
    """The machine and the versions, for the JSON file."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "llvmlite", "numpy")}
    return {
        "cpu": model,
        "cores": cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }
