"""The runners of TensorFlow: eager mode, its XLA, and hlo_disc.

Weights and the state of training are variables, as in TensorFlow's models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

import hlo_disc.tensorflow
from benchmarks import tree
from benchmarks.frameworks import tensorflow as ops
from benchmarks.peers.runner import Call, Runner
from benchmarks.program import Program


class _TensorFlow(Runner):
    packages, ops = ("tensorflow-cpu",), ops

    def load(self, program: Program, dtype: str, file: Path | None) -> None:
        super().load(program, dtype, file)
        self._weights = tree.mapped(lambda x: tf.Variable(ops.array(x, dtype)), program.drawn())

    def prepare(self, cold: bool) -> Call:
        fn, weights = self.program.fn, self._weights
        compiled = self._compile(lambda *inputs: tree.leaves(fn(ops, weights, *inputs)))
        return lambda inputs: compiled(*inputs)

    def _compile(self, function: Any) -> Any:
        return function


class HloDisc(_TensorFlow):
    name, about, ours = "hlo_disc (TensorFlow)", "hlo_disc.tensorflow.jit, which reads variables at each call", True
    packages = ("hlo_disc", "tensorflow-cpu")
    store = "HLO_DISC_CACHE"

    def _compile(self, function: Any) -> Any:
        self._compiled = hlo_disc.tensorflow.jit(function)
        return self._compiled

    def compilations(self) -> int:
        return len(self._compiled.programs())


class Eager(_TensorFlow):
    name, about = "TensorFlow eager", "no compiler"

    def compilations(self) -> int:
        return 0


class Xla(_TensorFlow):
    name, about, dynamic = "TensorFlow XLA", "tf.function(jit_compile=True), which knows every shape", False

    def _compile(self, function: Any) -> Any:
        self._compiled = tf.function(function, jit_compile=True)
        return self._compiled

    def compilations(self) -> int:
        return self._compiled.experimental_get_tracing_count()


RUNNERS = [HloDisc, Eager, Xla]
