"""The runners of PyTorch: eager mode, and torch.compile by hlo_disc and Inductor. Weights are frozen for inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.utils import fresh_cache

from benchmarks import tree
from benchmarks.frameworks import torch as ops
from benchmarks.peers.runner import Call, Runner
from benchmarks.program import Program

torch._dynamo.config.recompile_limit = 64
torch._dynamo.config.accumulated_recompile_limit = 1024
# Sizes that happen to be equal at the first call, as of square images, are no reason to compile again at the next one.
torch.fx.experimental._config.use_duck_shape = False


class Module(torch.nn.Module):
    """A program as a layer. Its weights are parameters; if it trains, they are the first inputs."""

    def __init__(self, program: Program, dtype: str):
        super().__init__()
        weights = ops.load(program.drawn(), dtype)
        self.fn, self.trains, self.like = program.fn, program.trains, weights
        if not program.trains:
            for number, leaf in enumerate(tree.leaves(weights)):
                self.register_parameter(f"w{number}", torch.nn.Parameter(leaf, False))
            self.like = tree.mapped(lambda _: None, weights)

    def forward(self, *inputs: torch.Tensor) -> Any:
        count = len(tree.leaves(self.like))
        values = inputs[:count] if self.trains else [getattr(self, f"w{number}") for number in range(count)]
        inputs = inputs[count:] if self.trains else inputs
        left = iter(values)
        return tree.leaves(self.fn(ops, tree.mapped(lambda _: next(left), self.like), *inputs))


class _Torch(Runner):
    packages, ops = ("torch",), ops

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        self._module = Module(program, dtype).eval()
        self._state = tree.leaves(self._module.like) if program.trains else []
        for weight in self._state:  # as parameters of a layer are: their sizes are no dims
            torch._dynamo.mark_static(weight)
        self._cache: Any = None

    def prepare(self, cold: bool) -> Call:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if cold:
            if self._cache is not None:
                self._cache.__exit__(None, None, None)
            self._cache = fresh_cache()
            self._cache.__enter__()
        compiled = self._compile(self._module)

        def call(inputs: list[Any]) -> Any:
            with torch.no_grad():
                return compiled(*self._state, *inputs)

        return call

    def _compile(self, module: Module) -> Any:
        return module

    def numpy(self, result: Any) -> list[np.ndarray]:
        if not self.program.trains:
            return super().numpy(result)
        keys = tree.leaves(tree.with_keys(lambda key, _: key, self._module.like))
        return [ops.numpy(result[0]), *(ops.stored(key, x) for key, x in zip(keys, result[1:], strict=True))]

    def compilations(self) -> int:
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]


class HloDisc(_Torch):
    name, about, ours = "hlo_disc (PyTorch)", 'torch.compile(backend="hlo_disc", dynamic=True), frozen', True
    packages = ("hlo_disc", "torch")
    store = "HLO_DISC_CACHE"

    def _compile(self, module: Module) -> Any:
        freeze = {} if self.program.trains else {"freeze": True}
        return torch.compile(module, backend="hlo_disc", dynamic=True, options=freeze)


class Eager(_Torch):
    name, about = "PyTorch eager", "no compiler"


class Inductor(_Torch):
    name, about, dynamic = "Inductor dynamic", "torch.compile(dynamic=True), frozen", True
    store = "TORCHINDUCTOR_CACHE_DIR"

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        pick_vec_isa()  # builds programs that ask for the machine's features, once a machine: no compilation of ours

    def _compile(self, module: Module) -> Any:
        freeze = {} if self.program.trains else {"freezing": True}
        return torch.compile(module, dynamic=self.dynamic, options=freeze)


class InductorStatic(Inductor):
    name, about, dynamic = "Inductor static", "torch.compile(dynamic=False), frozen", False
    static_form_of = Inductor.name


RUNNERS = [HloDisc, Eager, Inductor, InductorStatic]
