"""Hugging Face's decoders with random weights, a small one of each, next to eager mode at shapes that change.

A model has at most as many graphs as with `aot_eager`. What stays PyTorch's is named here.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import transformers as hf

from hlo_disc.errors import FallbackWarning

# Fields of configurations, of which each class has some.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 99, "max_position_embeddings": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 64, "d_model": 32, "num_layers": 2, "num_heads": 4, "attention_heads": 4, "ffn_dim": 48,
    "word_embed_proj_dim": 32, "rotary_dim": 4, "sliding_window": 6, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts_per_tok": 2, "state_size": 8,
    "time_step_rank": 4, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SHAPES = [(2, 7), (3, 11), (6, 16), (5, 13)]
PADDED = (
    "Arcee BioGpt Bloom CodeGen Cohere Ernie4_5 Exaone4 Falcon GPTJ GPTNeoX Gemma Gemma2 Glm Glm4 GptOss Granite "
    "GraniteMoe Llama MiniMax Mistral Mixtral Nemotron OPT Olmo Olmo2 Olmoe Persimmon Phi Phi3 Phimoe Qwen2 Qwen2Moe "
    "Qwen3 Qwen3Moe SmolLM3 StableLm Starcoder2 XGLM"
).split()
RECURRENT = ["FalconMamba", "Mamba", "RecurrentGemma"]
# Of these the products with experts' weights, each of as many rows as data says.
WITH_EXPERTS = "GptOss GraniteMoe MiniMax Mixtral Olmoe Phimoe Qwen2Moe Qwen3Moe".split()


def small(kind: Any) -> Any:
    default = kind()
    return kind(**{name: value for name, value in SMALL.items() if hasattr(default, name)})


def words(shape: tuple[int, int], padded: bool) -> dict[str, torch.Tensor]:
    """Sentences, all but the first padded on the right."""
    given = {"input_ids": torch.randint(3, 99, shape)}
    if padded:
        given["attention_mask"] = torch.ones(shape, dtype=torch.int64)
        given["attention_mask"][1:, shape[1] - 2 :] = 0
    return given


def run(model: Any, backend: str, calls: list[dict[str, torch.Tensor]]) -> tuple[list[torch.Tensor], int]:
    """The first results of calls, and how many graphs PyTorch made."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for call in calls:
        for x in call.values():
            torch._dynamo.maybe_mark_dynamic(x, 0)
    results = [compiled(**call)[0] for call in calls]
    return results, torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("name", [*PADDED, *RECURRENT])
def test_an_architecture(name: str) -> None:
    torch.manual_seed(0)
    kind = getattr(hf, f"{name}ForCausalLM")
    model = kind(small(kind.config_class)).eval()
    calls = [words(shape, name in PADDED) for shape in SHAPES]
    with torch.no_grad(), warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", FallbackWarning)
        wanted = [model(**call)[0] for call in calls]
        got, graphs = run(model, "hlo_disc", calls)
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=2e-4)
        if graphs > 1:
            assert graphs <= run(model, "aot_eager", calls)[1]
    left = {str(x.message).split("(")[0] for x in raised if issubclass(x.category, FallbackWarning)}
    assert left == ({"transformers.grouped_mm_fallback.default"} if name in WITH_EXPERTS else set())
