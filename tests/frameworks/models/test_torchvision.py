"""torchvision's families of models, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from check import Model, check
from torchvision import models

BATCHES = [2, 3, 1, 5]
IMAGES = [(2, 64, 64), (3, 96, 64), (1, 64, 65), (2, 97, 64)]


def image(shape: Any) -> dict[str, torch.Tensor]:
    shape = (shape, 64, 64) if isinstance(shape, int) else shape
    return {"x": torch.randn(shape[0], 3, *shape[1:])}


def classifier(name: str, shapes: Any = BATCHES, trained: bool = False, **fields: Any) -> Model:
    return Model(lambda: getattr(models, name)(weights=None, **fields), image, shapes, trained=trained)


def segmentation(name: str, shapes: Any = BATCHES) -> Model:
    def make() -> torch.nn.Module:
        return getattr(models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)

    return Model(make, image, shapes)


def film(name: str) -> Model:
    def pictures(batch: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(batch, 3, 8, 32, 32)}

    return Model(lambda: getattr(models.video, name)(weights=None), pictures, BATCHES)


def detection(name: str, **fields: Any) -> Model:
    """Lists of pictures. Every box counts, however low its score."""

    def make() -> torch.nn.Module:
        return getattr(models.detection, name)(
            weights=None, weights_backbone=None, num_classes=5, min_size=64, max_size=96, **fields
        )

    def pictures(shape: tuple[int, ...]) -> dict[str, Any]:
        return {"images": [torch.rand(3, *shape[1:]) for _ in range(shape[0])]}

    return Model(make, pictures, [(2, 64, 64), (2, 64, 80), (1, 64, 64), (2, 72, 64)], tolerance=2e-3)


def two(batch: int) -> dict[str, Any]:
    """Pictures one after the other."""
    return {"image1": torch.rand(batch, 3, 128, 128), "image2": torch.rand(batch, 3, 128, 128), "num_flow_updates": 2}


MODELS: dict[str, Model] = {
    "alexnet": classifier("alexnet", trained=True),
    "deeplab": segmentation("deeplabv3_mobilenet_v3_large"),
    "raft": Model(lambda: models.optical_flow.raft_small(weights=None), two, BATCHES, tolerance=2e-3),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_family(name: str) -> None:
    check(MODELS[name])
