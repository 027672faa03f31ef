"""Hugging Face's architectures with random weights, a small one of each, next to eager mode at shapes that change.

A model has at most as many graphs as with `aot_eager`. What stays PyTorch's is named here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers as hf

from hlo_disc.errors import FallbackWarning

# Fields of configurations, whatever a class has of them.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 99, "max_position_embeddings": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "ffn_dim": 48, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
    "embedding_size": 32, "use_cache": False, "state_size": 8, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts_per_tok": 2, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "image_size": 32, "patch_size": 8, "word_embed_proj_dim": 32,
    "max_seq_len": 64, "sliding_window": 6, "rotary_dim": 4, "conv_dim": (16, 16), "conv_kernel": (4, 4),
    "conv_stride": (2, 2), "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2, "time_step_rank": 4, "attention_hidden_size": 32, "context_length": 64,
}  # fmt: skip
TEXTS = [(2, 7), (3, 11), (6, 16), (5, 13)]
PICTURES = [(2, 32, 32), (4, 32, 32), (3, 32, 32), (5, 32, 32)]
GROUPED = "transformers.grouped_mm_fallback"  # products with experts' weights, as many rows each as data says


def words(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Sentences that are padded on the right, but for the first."""
    mask = torch.ones(shape, dtype=torch.int64)
    mask[1:, shape[1] - 2 :] = 0
    return {"input_ids": torch.randint(3, 99, shape), "attention_mask": mask}


def whole(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 99, shape)}


def pairs(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return words(shape) | {"decoder_input_ids": torch.randint(3, 99, (shape[0], shape[1] + 1))}


def pictures(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(shape[0], 3, *shape[1:])}


def waves(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(shape[0], shape[1] * 40)}


@dataclass(frozen=True)
class Case:
    """model: a class of transformers. own: fields of its configuration. left: what stays PyTorch's, "" for nothing."""

    model: str
    inputs: Callable[[tuple[int, ...]], dict[str, torch.Tensor]]
    shapes: list[tuple[int, ...]]
    own: dict[str, Any] = field(default_factory=dict)
    left: str = ""


def rows() -> Iterator[Case]:
