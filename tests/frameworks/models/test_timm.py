"""timm's families of models of pictures, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from check import Model, check


def family(name: str, size: int = 0, trained: bool = False, **fields: Any) -> Model:
    """A model by its name. size: that of all pictures; else they are of 64 x 64."""

    def make() -> torch.nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=7, **fields)

    def images(batch: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(batch, 3, size or 64, size or 64)}

    return Model(make, images, [2, 3, 1, 5], trained=trained)


MODELS: dict[str, Model] = {
    "beit": family("beit_base_patch16_224", img_size=64, embed_dim=32, depth=2, num_heads=2),
    "resnet": family("resnet18", trained=True),
    "xcit": family("xcit_nano_12_p16_224", img_size=64, embed_dim=32, depth=1, num_heads=2),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_family(name: str) -> None:
    check(MODELS[name])
