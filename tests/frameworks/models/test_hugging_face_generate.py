"""Hugging Face's `generate()` word by word, with a cache that grows, next to eager mode."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from small import made, words

from hlo_disc.errors import FallbackWarning

PROMPTS = [(2, 7), (3, 11), (4, 5), (2, 9)]
# Decoders alone, and those that an encoder reads for; with how many beams.
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", 1, {}),
    "llama": ("LlamaForCausalLM", 1, {}),
    "llama with beams": ("LlamaForCausalLM", 2, {}),
    "bart": ("BartForConditionalGeneration", 1, {"forced_eos_token_id": None}),
    "t5": ("T5ForConditionalGeneration", 1, {"decoder_start_token_id": 1}),
}  # fmt: skip


def written(model: Any, prompts: list[dict[str, torch.Tensor]], beams: int) -> list[torch.Tensor]:
    fields = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "num_beams": beams}
    with torch.no_grad():
        return [model.generate(**prompt, **fields) for prompt in prompts]


@pytest.mark.parametrize("name", MODELS)
def test_words_are_the_same(name: str) -> None:
    torch.manual_seed(0)
    kind, beams, fields = MODELS[name]
    model = made(kind, use_cache=True, **fields)().eval()
    prompts = [words(shape) for shape in PROMPTS]
    wanted, graphs = written(model, prompts, beams), {}
    forward = model.forward
    for backend in ("hlo_disc", "aot_eager"):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model.forward = torch.compile(forward, backend=backend, dynamic=True)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", FallbackWarning)
            got = written(model, prompts, beams)
        graphs[backend] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert all(x.equal(y) for x, y in zip(got, wanted, strict=True))
        assert not [x for x in raised if issubclass(x.category, FallbackWarning)]
    assert graphs["hlo_disc"] <= graphs["aot_eager"]
