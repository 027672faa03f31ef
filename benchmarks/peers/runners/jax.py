"""The runners of hlo_disc from JAX and of `jax.jit`, with weights as arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from benchmarks import in_jax
from benchmarks.frameworks import jax as ops
from benchmarks.peers.runner import Call, Runner
from benchmarks.program import Program


class _Jax(Runner):
    packages, ops = ("jax", "jaxlib"), ops

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        self._weights = in_jax.weights(program, dtype)

    def prepare(self, cold: bool) -> Call:
        if cold:
            jax.clear_caches()
        self._compiled = self._jit()
        return lambda inputs: self._compiled(self._weights, inputs)

    def _jit(self) -> Any:
        raise NotImplementedError

    def wait(self, result: Any) -> None:
        jax.block_until_ready(result)


class HloDisc(_Jax):
    name, about, ours = "hlo_disc (JAX)", "hlo_disc.jit with dims", True
    packages = ("hlo_disc", "jax", "jaxlib", "llvmlite")
    store = "HLO_DISC_CACHE"

    def _jit(self) -> Any:
        return in_jax.compiled(self.program, fallback=False)

    def compilations(self) -> int:
        return self._compiled.stats().compilations

    def stages(self) -> dict[str, float]:
        first = self._compiled.stats().records[0]
        stages = {name: ms / 1e3 for name, ms in first.stages_ms.items()}
        return {**stages, "load": first.seconds - sum(stages.values())}


class Jit(_Jax):
    name, about, dynamic = "jax.jit", "XLA, which knows every shape", False
    store = "JAX_COMPILATION_CACHE_DIR"

    def keep(self, folder: Path) -> None:
        """Set JAX's options: it reads its variable at import, and by default keeps only what compiles for a second."""
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    def _jit(self) -> Any:
        return jax.jit(in_jax.function(self.program))

    def compilations(self) -> int:
        return self._compiled._cache_size()


class Reference(Jit):
    """The reference of errors. It is not a peer."""

    name, about, dtypes = "reference", "the same in float64", ("f64",)

    def __init__(self) -> None:
        jax.config.update("jax_enable_x64", True)


RUNNERS = [HloDisc, Jit]
