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


def compile_quickly() -> None:
    """Let XLA leave LLVM's optimisations out, which are half of the time. Call it before JAX is imported."""
    flags = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")])
