"""Hugging Face's models of pictures and words together, next to eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from check import Model, check
from small import BATCHES, EYE, WIDE, WORDS, both, boxed, pictures, row, words

# What stands where a picture's parts belong.
PLACE = 98
BEGIN = 95
# PyTorch makes graphs anew for another number of pictures: they come as a list.
SENTENCES = [(2, 12), (2, 15), (2, 13), (2, 20)]
LLAMA = {"model_type": "llama", **WORDS, "num_key_value_heads": 2, "head_dim": 8}
OPT = {
    "model_type": "opt", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "ffn_dim": 48,
    "vocab_size": 99, "max_position_embeddings": 64, "word_embed_proj_dim": 32,
}  # fmt: skip


def joint(name: str, inputs: Any = both, shapes: Any = BATCHES, **fields: Any) -> Model:
    return row(name, inputs, shapes, **fields)


def chat(places: int) -> Callable[[Any], dict[str, torch.Tensor]]:
    """Twelve words, or as many as stand behind the batch, among which a picture has so many places."""

    def make(shape: Any) -> dict[str, torch.Tensor]:
        batch, count = (shape, 12) if isinstance(shape, int) else shape
        ids = torch.randint(3, 90, (batch, count + places))
        ids[:, 2 : 2 + places] = PLACE
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pictures(batch)}

    return make


def merged(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Words, with a picture of 4 x 4 parts of which each 2 x 2 share a place, behind what begins it."""
    places, batch = chat(4)((shape[0], shape[1] - 4)), shape[0]
    ids = places["input_ids"]
    ids[:, 1] = BEGIN
    return {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": (ids == PLACE).long(),
        "pixel_values": torch.randn(batch * 16, 3 * 2 * 4 * 4), "image_grid_thw": torch.tensor([[1, 4, 4]] * batch),
    }  # fmt: skip


def page(batch: int) -> dict[str, torch.Tensor]:
    return boxed((batch, 7)) | pictures(batch)


MODELS: dict[str, Model] = {
    "altclip": joint("AltCLIPModel", text_config={**WORDS, "project_dim": 16}, vision_config=EYE),
    "blip": joint("BlipModel", text_config={**WORDS, "encoder_hidden_size": 32}, vision_config=EYE),
    "blip2": joint("Blip2ForConditionalGeneration", chat(5), vision_config=EYE, qformer_config={**WIDE,
        "vocab_size": 99, "encoder_hidden_size": 32}, text_config=OPT, num_query_tokens=5, image_token_index=98),
    "groupvit": joint("GroupViTModel", text_config=WORDS, vision_config={**EYE, "depths": [1, 1],
        "num_group_tokens": [4, 0], "num_output_groups": [4, 0], "num_hidden_layers": 2},
        projection_intermediate_dim=32),
    "idefics": joint("IdeficsForVisionText2Text", lambda b: words((b, 7)) | {"pixel_values": torch.randn(b, 1, 3, 32,
        32), "image_attention_mask": torch.ones(b, 7, 1, dtype=torch.int64)}, vision_config={"embed_dim": 32,
        "image_size": 32, "patch_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
        perceiver_config=dict(use_resampler=False), cross_layer_interval=1, additional_vocab_size=0,
        alpha_initializer="ones"),
    "kosmos2": joint("Kosmos2Model",
        lambda b: (lambda g: g | {"image_embeds_position_mask": (g["input_ids"] == 98).long()})(chat(4)(b)),
        text_config=dict(vocab_size=99, embed_dim=32, layers=2, ffn_dim=48, attention_heads=4,
        max_position_embeddings=64), vision_config=EYE, latent_query_num=4),
    "layoutlmv3": joint("LayoutLMv3Model", page, input_size=32, patch_size=8, coordinate_size=6, shape_size=4,
        max_2d_position_embeddings=64, has_relative_attention_bias=True, has_spatial_attention_bias=True),
    "llava": joint("LlavaForConditionalGeneration", chat(16), SENTENCES, text_config=LLAMA, image_token_index=98,
        vision_config={**EYE, "model_type": "clip_vision_model"}),
    "qwen2 vl": joint("Qwen2VLForConditionalGeneration", merged, SENTENCES, text_config={**LLAMA, "model_type":
        "qwen2_vl_text", "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}},
        vision_config=dict(depth=1, embed_dim=32, hidden_size=32, num_heads=4, mlp_ratio=2, patch_size=4,
        spatial_merge_size=2, temporal_patch_size=2, in_channels=3), image_token_id=PLACE, video_token_id=97,
        vision_start_token_id=BEGIN),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_pictures_and_words(name: str) -> None:
    check(MODELS[name])
