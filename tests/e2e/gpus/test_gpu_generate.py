"""The example of greedy decoding makes the words that `jax.jit` makes, with few programs."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import child
import emulated
import jax
import numpy as np
import pytest

import hlo_disc

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpu_generate.py"


@pytest.fixture(scope="module")
def example():
    spec = spec_from_file_location("gpu_generate", EXAMPLE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_it_prints():
    lines = child.python(EXAMPLE, "--tokens", "4").splitlines()
    if jax.devices()[0].platform == "cpu":
        assert lines[0] == "there is no GPU, or JAX does not see it: on the CPU"
    assert len(lines) == 6 and all(re.search(r" s:( \d+){4}$", line) for line in lines[1:5])
    compilations, calls = map(int, re.fullmatch(r"compiled (\d+) times, for (\d+) calls", lines[5]).groups())
    assert compilations <= 3 and calls == 16


@pytest.mark.parametrize("target", ["cpu", "emulated-cuda"])
def test_the_words_are_those_of_jax(example, target, emulated_targets):
    dims = {"ids": "(b, s)", "caches": "(b, _, l, _)"}
    run = hlo_disc.jit(example.step, dims=dims, target=target, fallback=False)
    params, rng = example.weights(), np.random.default_rng(3)
    for count, length in ((2, 7), (1, 3)):
        prompts = rng.integers(0, example.WORDS, (count, length)).astype(np.int32)
        right = example.generate(jax.jit(example.step), params, prompts, 3)
        np.testing.assert_array_equal(example.generate(run, params, prompts, 3), right)
    emulated.check()
