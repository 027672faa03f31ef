"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381)."""

from __future__ import annotations

from typing import Any

from benchmarks.program import Draw, Program
from benchmarks.programs.resnet import CLASSES, inputs

# Of each stage: how much wider a block is inside, its output's channels, the number of blocks, the first one's stride.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM, LAST = 32, 1280


def weights(draw: Draw) -> Any:
    stages, channels = [], STEM
    for wider, outputs, count, _ in STAGES:
        blocks = []
        for _ in range(count):
            inside = wider * channels
            block = {
                "depthwise": draw.conv(3, inside, inside, inside),
                "project": draw.conv(1, inside, outputs, gain=0.5),
            }
            if wider > 1:
                block["expand"] = draw.conv(1, channels, inside)
            blocks.append(block)
            channels = outputs
        stages.append(blocks)
    return {
        "stem": draw.conv(3, 3, STEM),
        "stages": stages,
        "last": draw.conv(1, channels, LAST),
        "head": draw.dense(LAST, CLASSES),
    }


def mobilenet(ops: Any, weights: Any, x: Any) -> Any:
    """Images (b, h, w, 3) to logits (b, 1000)."""
    x = ops.relu6(ops.conv(weights["stem"], x, 2))
    for (_, _, _, first), blocks in zip(STAGES, weights["stages"], strict=True):
        for i, block in enumerate(blocks):
            y = ops.relu6(ops.conv(block["expand"], x)) if "expand" in block else x
            groups = block["depthwise"]["scale"].shape[0]
            y = ops.relu6(ops.conv(block["depthwise"], y, 1 if i else first, groups))
            y = ops.conv(block["project"], y)
            x = x + y if i else y
    x = ops.relu6(ops.conv(weights["last"], x))
    return ops.dense(weights["head"], ops.image_mean(x))


PROGRAMS = [
    Program(
        "MobileNetV2",
        "logits of b images of h x w",
        mobilenet,
        weights,
        inputs,
        dims=("(b, h, w, _)",),
        shapes=[dict(b=b, h=h, w=w) for b, h, w in ((1, 224, 224), (4, 160, 192), (1, 97, 65))],
        stream={"b": (1, 2, 1), "h": (64, 160, 8), "w": (64, 160, 8)},
        images=True,
    )
]
