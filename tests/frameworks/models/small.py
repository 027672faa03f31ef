"""Small configurations of Hugging Face's models with random weights, and what such models are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from check import Inputs, Model
from torch import nn

# Fields of configurations, of which each class has some.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 99, "max_position_embeddings": 64, "n_embd": 32, "n_layer": 1, "n_head": 4,
    "n_positions": 64, "d_model": 32, "num_layers": 1, "num_heads": 4, "attention_heads": 4, "ffn_dim": 48,
    "sliding_window": 6, "embedding_size": 32, "d_ff": 48, "d_kv": 8, "num_decoder_layers": 1, "head_dim": 8,
    "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "image_size": 32, "patch_size": 8, "projection_dim": 16,
    "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "state_size": 8,
    "shared_expert_intermediate_size": 32, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
# Some that cannot be given, by the kind of model.
NOT_GIVEN = {
    "funnel": ["num_hidden_layers"], "xlnet": ["max_position_embeddings"], "prophetnet": ["num_hidden_layers"],
    "deepseek_v3": ["head_dim"], "gpt_neo": ["num_hidden_layers", "n_layer"],
}  # fmt: skip
# Configurations of parts of models.
WIDE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {
    **WIDE, "vocab_size": 99, "max_position_embeddings": 64, "projection_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 98,
}  # fmt: skip
EYE = {**WIDE, "image_size": 32, "patch_size": 8, "projection_dim": 16}

TEXTS = [(2, 7), (3, 11), (1, 16), (4, 13)]
BATCHES = [2, 3, 1, 5]


def small(kind: Any, **fields: Any) -> Any:
    """Return a configuration of a class with these fields. Others that it has are small."""
    default, given = kind(), dict(fields)
    for name, value in SMALL.items():
        own = kind.attribute_map.get(name, name)
        if hasattr(default, name) and own not in fields and name not in NOT_GIVEN.get(kind.model_type, ()):
            given.setdefault(name, value)
    return kind(**given)


def made(name: str, **fields: Any) -> Callable[[], nn.Module]:
    """Return a function that makes a model by the name of its class.

    Convolutions are initialised so that numbers keep their size, layer by layer. fields: of its configuration.
    """

    def make() -> nn.Module:
        kind = getattr(hf, name)
        model = kind(small(kind.config_class, **fields))
        for layer in model.modules():
            if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(layer.weight)
        return model

    return make


def row(
    name: str, inputs: Callable[[Any], Inputs], shapes: Any, trained: bool = False, left: str = "", **fields: Any
) -> Model:
    """Return the row of the model of this name. left: the ops that stay PyTorch's. fields: of its configuration."""
    return Model(made(name, **fields), inputs, shapes, left=frozenset(left.split()), trained=trained)


def words(shape: tuple[int, int], padded: bool = True) -> dict[str, torch.Tensor]:
    """Return sentences, all but the first padded on the right."""
    given = {"input_ids": torch.randint(3, 99, shape)}
    if padded:
        given["attention_mask"] = torch.ones(shape, dtype=torch.int64)
        given["attention_mask"][1:, max(1, shape[1] - 2) :] = 0
    return given


def pairs(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Return sentences, and the beginnings of others."""
    return words(shape) | {"decoder_input_ids": torch.randint(3, 99, (shape[0], shape[1] + 1))}


def boxed(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Return words in boxes on a page."""
    corner = torch.randint(0, 40, (*shape, 2))
    return words(shape) | {"bbox": torch.cat([corner, corner + 5], -1)}


def pictures(shape: Any) -> dict[str, torch.Tensor]:
    """Return pictures of 32 x 32, or of the sizes behind the batch."""
    shape = (shape, 32, 32) if isinstance(shape, int) else shape
    return {"pixel_values": torch.randn(shape[0], 3, *shape[1:])}


def both(batch: int) -> dict[str, torch.Tensor]:
    """Return pictures and sentences."""
    return words((batch, 7)) | pictures(batch)
