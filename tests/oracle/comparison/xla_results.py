"""Programs of XLA in tests: they are kept on disk between runs, and XLA compiles them quickly."""

from __future__ import annotations

import os
from pathlib import Path


def keep_xla_results(directory: Path) -> None:
    """Let JAX keep what XLA compiles, expected results above all.

    Call it before JAX is imported. Worker processes read the same settings.
    """
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(directory))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


# XLA's emitters of fusions build each kernel through MLIR's passes, which are most of the time of a small program; its
# older ones emit LLVM's IR at once. Those lose NaN in minima and maxima unless they are told not to. Threads for the
# parts of a program cost more than they save.
QUICK_FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_enable_fast_min_max=false",
)
# For what the older emitters get wrong: NaN in formats without mantissa, and floats of 8 bits without infinity.
NEWER_EMITTERS = {"xla_cpu_use_fusion_emitters": True}


def compile_quickly() -> None:
    """Let XLA compile in a quarter of the time, to slower code. Call it before JAX is imported."""
    os.environ["XLA_FLAGS"] = " ".join([*QUICK_FLAGS, os.environ.get("XLA_FLAGS", "")])
