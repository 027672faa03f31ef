"""diffusers' U-nets, transformers and autoencoders, next to eager mode."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from check import Model, check

BATCHES = [2, 3, 1, 5]
LATENTS = [(2, 8, 8), (3, 16, 8), (1, 8, 8), (2, 16, 16)]
UNET = {
    "sample_size": 8, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "block_out_channels": (16, 32),
    "norm_num_groups": 4,
}  # fmt: skip
ATTENDS = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 16, "attention_head_dim": 2,
}  # fmt: skip
CODER = {
    "block_out_channels": (8, 16), "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 4,
}  # fmt: skip


def latents(shape: Any) -> dict[str, torch.Tensor]:
    shape = (shape, 8, 8) if isinstance(shape, int) else shape
    return {"sample": torch.randn(shape[0], 4, *shape[1:]), "timestep": torch.tensor(3)}


def told(shape: Any) -> dict[str, torch.Tensor]:
    """Return latents with the embedding of a text."""
    given = latents(shape)
    return given | {"encoder_hidden_states": torch.randn(len(given["sample"]), 5, 16)}


def images(batch: int) -> dict[str, torch.Tensor]:
    return {"sample": torch.randn(batch, 3, 16, 16)}


def words_and(*shape: int, pooled: int = 12, whole: bool = True, **more: Any) -> Any:
    """Return a function that makes latents of a shape, times of noise (fractions or whole numbers), and five words."""

    def make(batch: int) -> dict[str, Any]:
        times = torch.randint(0, 9, (batch,)) if whole else torch.rand(batch)
        given = {"hidden_states": torch.randn(batch, *shape), "timestep": times}
        given["encoder_hidden_states"] = torch.randn(batch, 5, 16)
        return given | ({"pooled_projections": torch.randn(batch, pooled)} if pooled else {}) | more

    return make


def of(name: str, inputs: Any = latents, shapes: Any = BATCHES, trained: bool = False, **fields: Any) -> Model:
    """Return the row of a model by the name of its class."""
    return Model(lambda: getattr(diffusers, name)(**fields), inputs, shapes, trained=trained)


MODELS: dict[str, Model] = {
    "unet 2d": of("UNet2DModel", latents, LATENTS, trained=True, **UNET, down_block_types=("DownBlock2D",
        "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8),
    "unet cond": of("UNet2DConditionModel", told, LATENTS, **UNET, **ATTENDS),
    "vae kl": of("AutoencoderKL", images, **CODER),
    "vq": of("VQModel", images, **CODER, latent_channels=3),
    "dit": of("DiTTransformer2DModel", lambda n: {"hidden_states": torch.randn(n, 4, 8, 8),
        "timestep": torch.randint(0, 9, (n, )), "class_labels": torch.randint(0, 9, (n, ))}, trained=True,
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=1, sample_size=8, patch_size=2,
        norm_num_groups=4, num_embeds_ada_norm=10),
    "sd3": of("SD3Transformer2DModel", words_and(4, 8, 8, whole=False), sample_size=8, in_channels=4, out_channels=4,
        num_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16, caption_projection_dim=16,
        pooled_projection_dim=12),
    "flux": of("FluxTransformer2DModel", words_and(64, 4, whole=False, img_ids=torch.arange(192.0).reshape(64, 3) / 192,
        txt_ids=torch.zeros(5, 3)), in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=12, axes_dims_rope=(4, 4, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str) -> None:
    check(MODELS[name])
