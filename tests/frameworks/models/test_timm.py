"""timm's families of models of pictures, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from check import Model, check

# What transformers have of each, next to a size of pictures that is given to them too.
SMALL = {"embed_dim": 32, "depth": 2, "num_heads": 2}
STAGES = {"depths": (1, 1, 1, 1)}


def family(name: str, size: int = 64, shapes: Any = (2, 3, 5, 4), trained: bool = False, **fields: Any) -> Model:
    """Return the row of a model by its name. size: that of all pictures, where `shapes` are numbers of them."""

    def make() -> torch.nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=7, **fields)

    def images(shape: Any) -> dict[str, torch.Tensor]:
        shape = (shape, size, size) if isinstance(shape, int) else shape
        return {"x": torch.randn(shape[0], 3, *shape[1:])}

    return Model(make, images, shapes, trained=trained)


def sized(name: str, size: int = 64, **fields: Any) -> Model:
    """Return the row of a model that is made for one size."""
    return family(name, size, img_size=size, **fields)


def patches(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return pictures as lists of parts of 16 x 16, and where these lie."""
    batch, height, width = shape
    places = torch.cartesian_prod(torch.arange(height), torch.arange(width)).expand(batch, -1, -1).contiguous()
    given = {"patches": torch.randn(batch, height * width, 768), "patch_coord": places}
    return {"x": given | {"patch_valid": torch.ones(batch, height * width, dtype=torch.bool)}}


MODELS: dict[str, Model] = {
    "beit": sized("beit_base_patch16_224", **SMALL),
    "beit v2": sized("beitv2_base_patch16_224", **SMALL),
    "botnet": family("botnet26t_256", 256),
    "byobnet": family("repvgg_a0"),
    "cait": sized("cait_xxs24_224", embed_dim=32, depth=1, num_heads=2, depth_token_only=1),
    "coat": sized("coat_tiny", embed_dims=(16,) * 4, serial_depths=(1,) * 4, parallel_depth=0),
    "convit": sized("convit_tiny", local_up_to_layer=1, **SMALL),
    "convnext": family("convnext_atto", dims=(8, 8, 16, 16), trained=True, **STAGES),
    "davit": family("davit_tiny", embed_dims=(8, 16, 16, 32), num_heads=(1, 2, 2, 4), **STAGES),
    "deepseek vit": sized("deepseek_vit_412m", 56, **SMALL),
    "deit": sized("deit3_small_patch16_224", **SMALL),
    "densenet": family("densenet121", block_config=(1, 1, 1, 1), growth_rate=8),
    "efficientvim": family("efficientvim_m1", 224),
    "eva": sized("eva02_tiny_patch14_224", 56, embed_dim=24, depth=2, num_heads=2),
    "fasternet": family("fasternet_t0"),
    "focalnet": family("focalnet_tiny_srf"),
    "gemma4 vit": sized("gemma4_vit_167m", 96, embed_dim=32, depth=1, num_heads=2, head_dim=16, intermediate_size=48),
    "gmlp": sized("gmlp_ti16_224"),
    "hgnet": family("hgnetv2_b0"),
    "hiera": family("hiera_tiny_224", 224, embed_dim=24, num_heads=1, stages=(1, 1, 1, 1)),
    "inception next": family("inception_next_atto"),
    "mambaout": family("mambaout_femto", dims=(8, 16, 16, 32), **STAGES),
    "metaformer": family("caformer_s18"),
    "mixer": sized("mixer_s32_224"),
    "mobilenet v4": family("mobilenetv4_conv_small_050"),
    "naflexvit": Model(family("naflexvit_base_patch16_gap", **SMALL).make, patches, [(2, 4, 4), (3, 4, 6), (5, 3, 4),
        (4, 5, 7)]),
    "nfnet": family("nf_regnet_b0"),
    "pit": family("pit_ti_224", 224),
    "qwen3 vit": sized("qwen3_vit_88m", **SMALL),
    "regnet": family("regnetx_002"),
    "relative positions": sized("vit_relpos_small_patch16_224", **SMALL),
    "resnest": family("resnest14d"),
    "resnet": family("resnet18", trained=True),
    "resnet of any size": family("resnet18", shapes=[(2, 64, 96), (3, 96, 64), (5, 64, 65), (4, 97, 64)]),
    "resnetv2": family("resnetv2_18"),
    "senet": family("seresnet18"),
    "sequencer": family("sequencer2d_s", 224, layers=(1,) * 4, embed_dims=(16,) * 4, hidden_sizes=(8,) * 4),
    "skresnet": family("skresnet18"),
    "starnet": family("starnet_s050"),
    "swiftformer": family("swiftformer_xs", 224),
    "swin": family("swin_tiny_patch4_window7_224", 224, embed_dim=24, **STAGES),
    "swin v2": family("swinv2_tiny_window8_256", 256, embed_dim=24, **STAGES),
    "swin v2 cr": family("swinv2_cr_tiny_ns_224", 224, embed_dim=24, **STAGES),
    "tnt": sized("tnt_s_legacy_patch16_224", embed_dim=32, inner_dim=8, depth=2, num_heads_inner=2, num_heads_outer=2),
    "twins": family("twins_svt_small", 224, embed_dims=(16, 16, 32, 32), **STAGES),
    "visformer": family("visformer_tiny", 224),
    "vit": sized("vit_tiny_patch16_224", trained=True, **SMALL),
    "vit hybrid": family("vit_tiny_r_s16_p8_224", 224, embed_dim=32, depth=1, num_heads=2),
    "vit of any size": family("vit_tiny_patch16_224", shapes=[(2, 64, 96), (3, 96, 64), (5, 64, 65), (4, 97, 64)],
        dynamic_img_size=True, dynamic_img_pad=True, **SMALL),
    "vit sam": family("samvit_base_patch16_224", 224, global_attn_indexes=(1,), neck_chans=16, **SMALL),
    "vitamin": family("vitamin_small_224", 224),
    "xcit": sized("xcit_nano_12_p16_224", embed_dim=32, depth=1, num_heads=2),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_family(name: str) -> None:
    check(MODELS[name])
