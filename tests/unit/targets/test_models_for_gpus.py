"""Whole models, assembled for two of NVIDIA's GPUs: nothing is kept in local memory, and rows go by whole registers."""

from __future__ import annotations

import re
from dataclasses import replace

import depth
import jax
import ptxas
import pytest
from ptxas import assembled, needs_ptxas

from benchmarks import in_jax
from benchmarks.program import Program, named
from benchmarks.programs import bert, gpt2


def small_gpt2(name: str) -> Program:
    """GPT-2 of 2 layers."""
    program = named(name)
    return replace(
        program,
        weights=lambda draw: gpt2.weights(draw, 2),
        inputs=lambda **sizes: program.inputs(**sizes)[:5],  # the caches of 2 layers
        dims=program.dims[:5],
    )


# Programs, and their sizes at some shape.
MODELS = {"LSTM": (named("LSTM"), (128, 1))}
MORE_MODELS = {
    "GPT-2 decode": (small_gpt2("GPT-2 decode"), (1, 8)),
    "training step": (named("MLP training step"), (32,)),
    "BERT": (bert.SMALL, (1, 17)),
    "GPT-2 prefill": (small_gpt2("GPT-2 prefill"), (1, 17)),
    "ResNet-50": (named("ResNet-50"), (1, 64, 64)),
}
MODELS |= MORE_MODELS if depth.full else {}
# Registers of a thread, by what is in a kernel's name: the first that fits.
MOST_REGISTERS = {"dot": 255, "scan": 128, "": 64}


@needs_ptxas
@pytest.mark.parametrize("name", MODELS)
def test_models_stay_in_registers(name, tmp_path):
    model, sizes = MODELS[name]
    shapes = jax.eval_shape(lambda: (in_jax.weights(model), in_jax.inputs(model, model.sizes(*sizes))))
    with ptxas.images() as made:
        program = in_jax.compiled(model, target="cuda").lower(*shapes).compile()
    (image,) = made
    for level in ("sm_80", "sm_90"):
        for kernel, found in assembled(image, tmp_path, level).items():
            most = next(n for word, n in MOST_REGISTERS.items() if word in kernel)
            assert found.stack == found.spilled == 0 and found.registers <= most, (level, kernel, found)
    picked = [line for line in program.explain(full=True).splitlines() if "gather" in line]
    checked = 0
    for kernel, text in ptxas.kernels(image).items():
        if kernel.endswith("_aligned") and not any(re.search(rf"\b{kernel}\b", line) for line in picked):
            single = [access for access in ptxas.global_accesses(text) if ".v" not in access]
            assert len(single) <= 1, (kernel, single)  # a scalar
            checked += 1
    assert checked > 10
