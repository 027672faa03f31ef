"""The programs of `benchmarks/programs` say the same in JAX and in TensorFlow."""

from __future__ import annotations

import depth
import numpy as np
import pytest

from benchmarks.peers.runners.jax import Jit
from benchmarks.peers.runners.tensorflow import Eager
from benchmarks.program import programs


@depth.sampled(2)
@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
def test_agree(program):
    jit, eager = Jit(), Eager()
    jit.load(program, "f32", None)
    eager.load(program, "f32", None)
    compiled, function = jit.prepare(False), eager.prepare(False)
    for sizes in program.stream_sizes()[: depth.examples(1, 2)]:
        inputs = program.inputs(**sizes)
        expected, got = jit.numpy(compiled(jit.native(inputs))), eager.numpy(function(eager.native(inputs)))
        assert [x.shape for x in got] == [x.shape for x in expected]
        for a, b in zip(got, expected, strict=True):
            # as a whole: where an element is nearly 0 before a ReLU, digits decide which gradient passes
            assert np.linalg.norm((a - b).ravel()) <= 1e-2 * np.linalg.norm(b.ravel()), sizes
