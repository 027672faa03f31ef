"""Whole models, assembled for two of NVIDIA's GPUs: nothing is kept in local memory, and rows go by whole registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import ptxas
import pytest
from ptxas import assembled, needs_ptxas

import hlo_disc
from benchmarks import cases, models

# A program, and its arguments at some shape.
MODELS: dict[str, tuple[cases.Family, Callable[[], Any]]] = {
    "BERT": (cases.BERT, lambda: (models.bert_params(2), *models.bert_inputs(1, 17))),
    "GPT-2 prefill": (cases.PREFILL, lambda: (models.gpt2_params(2), *models.gpt2_inputs(1, 17))),
    "GPT-2 decode": (cases.DECODE, lambda: (models.gpt2_params(2), *models.gpt2_decode_inputs(1, 8, 2))),
    "ResNet-50": (cases.RESNET, lambda: (cases.RESNET.params(), *cases.RESNET.inputs(1, 64, 64))),
    "LSTM": (cases.LSTM, lambda: (cases.LSTM.params(), *cases.LSTM.inputs(1))),
    "training step": (cases.TRAINING, lambda: (cases.TRAINING.params(), *cases.TRAINING.inputs(32))),
}
# Registers of a thread, by what is in a kernel's name: the first that fits.
MOST_REGISTERS = {"dot": 255, "scan": 128, "": 64}


@needs_ptxas
@pytest.mark.parametrize("name", MODELS)
def test_models_stay_in_registers(name, tmp_path):
    family, arguments = MODELS[name]
    shapes = jax.eval_shape(arguments)
    with ptxas.images() as made:
        program = hlo_disc.jit(family.fn, dims=family.dims, target="cuda").lower(*shapes).compile()
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
