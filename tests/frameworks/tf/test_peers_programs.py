"""The programs of `benchmarks/peers` say the same in JAX and in TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers.program import programs
from benchmarks.peers.runners.jax import Jit
from benchmarks.peers.runners.tensorflow import Eager


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
def test_agree(program):
    jit, eager = Jit(), Eager()
    jit.load(program, "f32", None)
    eager.load(program, "f32", None)
    compiled, function = jit.prepare(False), eager.prepare(False)
    for sizes in program.stream_sizes()[:2]:
        inputs = program.inputs(**sizes)
        expected, got = jit.numpy(compiled(jit.native(inputs))), eager.numpy(function(eager.native(inputs)))
        assert [x.shape for x in got] == [x.shape for x in expected]
        for a, b in zip(got, expected, strict=True):
            # Of some hundred thousand ReLUs one is so near to 0 that rounding decides, and with it a sample's gradient.
            room = 0.05 if program.trains else 1e-3
            assert np.abs(a - b).max() <= room * np.abs(b).max(), sizes
