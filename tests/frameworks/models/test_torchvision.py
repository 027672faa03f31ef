"""torchvision's families of models, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from check import Model, check
from torchvision import models

BATCHES = [2, 3, 5, 4]
IMAGES = [(2, 64, 96), (3, 96, 64), (5, 64, 65), (4, 97, 64)]


def image(shape: Any) -> dict[str, torch.Tensor]:
    shape = (shape, 64, 64) if isinstance(shape, int) else shape
    return {"x": torch.randn(shape[0], 3, *shape[1:])}


def classifier(name: str, shapes: Any = BATCHES, trained: bool = False, **fields: Any) -> Model:
    return Model(lambda: getattr(models, name)(weights=None, **fields), image, shapes, trained=trained)


def segmentation(name: str, argument: str = "x") -> Model:
    def make() -> torch.nn.Module:
        return getattr(models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)

    return Model(make, lambda batch: {argument: image(batch)["x"]}, BATCHES)


def film(name: str, size: int = 32) -> Model:
    def pictures(batch: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(batch, 3, 8, size, size)}

    return Model(lambda: getattr(models.video, name)(weights=None), pictures, BATCHES)


def detection(name: str, **fields: Any) -> Model:
    """Lists of pictures of one size: what changes is how many regions are found. Each counts, however low its score.

    (PyTorch takes minutes to trace pictures of any size, which are scaled to one first.)
    """

    def make() -> torch.nn.Module:
        return getattr(models.detection, name)(weights=None, weights_backbone=None, num_classes=5, **fields)

    def pictures(_: int) -> dict[str, Any]:
        return {"images": [torch.rand(3, 64, 96) for _ in range(2)]}

    return Model(make, pictures, range(4), tolerance=2e-3)


def two(batch: int) -> dict[str, Any]:
    """Pictures one after the other."""
    return {"image1": torch.rand(batch, 3, 128, 128), "image2": torch.rand(batch, 3, 128, 128), "num_flow_updates": 2}


SIZES = {"min_size": 64, "max_size": 96}
MODELS: dict[str, Model] = {
    "alexnet": classifier("alexnet", trained=True),
    "convnext": classifier("convnext_tiny"),
    "deeplab": segmentation("deeplabv3_mobilenet_v3_large"),
    "efficientnet": classifier("efficientnet_b0"),
    "faster rcnn": detection("fasterrcnn_mobilenet_v3_large_320_fpn", box_score_thresh=0.0, rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_test=10, **SIZES),
    "fcn": segmentation("fcn_resnet50"),
    "googlenet": classifier("googlenet", init_weights=False),
    "lraspp": segmentation("lraspp_mobilenet_v3_large", "input"),
    "mc3": film("mc3_18"),
    "mnasnet": classifier("mnasnet0_5"),
    "mobilenet v2": classifier("mobilenet_v2"),
    "r2plus1d": film("r2plus1d_18"),
    "r3d": film("r3d_18"),
    "raft": Model(lambda: models.optical_flow.raft_small(weights=None), two, BATCHES, tolerance=2e-3),
    "regnet": classifier("regnet_y_400mf"),
    "resnet": classifier("resnet18", IMAGES, trained=True),
    "retinanet": detection("retinanet_resnet50_fpn", score_thresh=0.0, **SIZES),
    "shufflenet": classifier("shufflenet_v2_x0_5", trained=True),
    "squeezenet": classifier("squeezenet1_1"),
    "ssdlite": detection("ssdlite320_mobilenet_v3_large", score_thresh=0.0),
    "swin": classifier("swin_t"),
    "swin v2": classifier("swin_v2_t"),
    "swin3d": film("swin3d_t", 64),
    "vgg": classifier("vgg11_bn"),
    "vit": classifier("vit_b_32", image_size=64),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_family(name: str) -> None:
    check(MODELS[name])
