"""The programs of `benchmarks/programs` say the same in JAX and in PyTorch."""

from __future__ import annotations

import depth
import numpy as np
import pytest

from benchmarks import tree
from benchmarks.frameworks import torch as ops
from benchmarks.peers.runners.jax import Jit
from benchmarks.peers.runners.torch import Eager
from benchmarks.program import Program, programs


def by_pytorch(program: Program, eager: Eager, sizes: dict[str, int]) -> list[np.ndarray]:
    result = eager.prepare(False)(eager.native(program.inputs(**sizes)))
    if not program.trains:
        return eager.numpy(result)
    keys = tree.leaves(tree.with_keys(lambda key, _: key, program.drawn()))
    return [ops.numpy(result[0]), *(ops.stored(key, x) for key, x in zip(keys, result[1:], strict=True))]


@depth.sampled(2)
@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
def test_agree(program):
    jit, eager = Jit(), Eager()
    jit.load(program, "f32", None)
    eager.load(program, "f32", None)
    call = jit.prepare(False)
    for sizes in program.stream_sizes()[: depth.examples(1, 2)]:
        expected = jit.numpy(call(jit.native(program.inputs(**sizes))))
        got = by_pytorch(program, eager, sizes)
        assert [x.shape for x in got] == [x.shape for x in expected]
        for a, b in zip(got, expected, strict=True):
            if program.trains:  # as a whole: where an element is nearly 0 before a ReLU, digits decide what passes
                assert np.linalg.norm((a - b).ravel()) <= 1e-2 * np.linalg.norm(b.ravel()), sizes
            else:
                assert np.abs(a - b).max() <= 1e-3 * np.abs(b).max(), sizes
