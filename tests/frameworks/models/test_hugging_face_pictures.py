"""Hugging Face's models of pictures and films, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from check import Model, check
from small import BATCHES, pictures, row

IMAGES = [(2, 32, 32), (3, 64, 32), (1, 32, 48), (2, 96, 64)]
LARGE = [(2, 64, 64), (3, 64, 64), (1, 64, 64), (5, 64, 64)]
DETR = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "d_model": 32, "num_queries": 6,
    "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip


def view(name: str, inputs: Any = pictures, shapes: Any = BATCHES, **fields: Any) -> Model:
    return row(name, inputs, shapes, **fields)


def resnet(stages: int = 2) -> Any:
    """A backbone with results of all stages."""
    return hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16][:stages], depths=[1] * stages, layer_type="basic",
        out_features=[f"stage{i + 1}" for i in range(stages)],
    )  # fmt: skip


def swin() -> Any:
    """A backbone with results of all stages."""
    return hf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 2], window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip


def masked(batch: int) -> dict[str, torch.Tensor]:
    return pictures(batch) | {"noise": torch.rand(batch, 16)}


def films(batch: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 4, 3, 32, 32)}


def pointed(batch: int) -> dict[str, torch.Tensor]:
    """Pictures with two points in each."""
    return pictures(batch) | {
        "input_points": torch.rand(batch, 1, 2, 2) * 32, "input_labels": torch.ones(batch, 1, 2, dtype=torch.int64),
    }  # fmt: skip


MODELS: dict[str, Model] = {
    "beit": view("BeitModel", use_relative_position_bias=True, use_mask_token=False),
    "bit": view("BitModel", embedding_size=8, num_groups=4, hidden_sizes=[16, 32], depths=[1, 1]),
    "conditional detr": view("ConditionalDetrForObjectDetection", backbone_config=resnet(), **DETR),
    "convnext": view("ConvNextModel", shapes=IMAGES, trained=True, num_stages=4, hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1], patch_size=4),
    "convnextv2": view("ConvNextV2Model", num_stages=4, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1],
        patch_size=4),
    "deformable detr": view("DeformableDetrForObjectDetection", backbone_config=resnet(), num_feature_levels=3,
        **{**DETR, "decoder_layers": 2}),
    "deit": view("DeiTModel"),
    "dpt": view("DPTForDepthEstimation", num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8,
        8, 16, 16], fusion_hidden_size=8, is_hybrid=False, backbone_config=None),
    "levit": view("LevitModel", hidden_sizes=[16, 24, 32], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8,
        8, 8], image_size=64, patch_size=16, shapes=LARGE),
    "mask2former": view("Mask2FormerForUniversalSegmentation", shapes=[(n, 64, 64) for n in (2, 3, 5, 4)],
        backbone_config=swin(), feature_size=32, mask_feature_size=32, hidden_dim=32, num_queries=5, encoder_layers=1,
        decoder_layers=1, encoder_feedforward_dim=32, dim_feedforward=32),
    "mobilevit": view("MobileViTModel", shapes=LARGE, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24,
        32, 32], patch_size=2, mlp_ratio=2.0),
    "sam": view("SamModel", pointed, vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        image_size=32, patch_size=8, window_size=3, global_attn_indexes=[1], mlp_dim=48, output_channels=16,
        num_pos_feats=8), prompt_encoder_config=dict(hidden_size=16, image_size=32, patch_size=8,
        mask_input_channels=4), mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_attention_heads=2,
        iou_head_hidden_dim=16)),
    "segformer": view("SegformerForSemanticSegmentation", shapes=LARGE, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1,
        1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16, classifier_dropout_prob=0.0, drop_path_rate=0.0),
    "superpoint": view("SuperPointForKeypointDetection", encoder_hidden_sizes=[8, 8, 16, 16], decoder_hidden_size=16,
        keypoint_decoder_dim=65, descriptor_decoder_dim=16),
    "swin": view("SwinModel", patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        drop_path_rate=0.0),
    "vit": view("ViTModel", trained=True),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_pictures(name: str) -> None:
    check(MODELS[name])
