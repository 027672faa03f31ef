"""EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946), whose blocks squeeze and excite (arXiv:1709.01507)."""

from __future__ import annotations

from typing import Any

from benchmarks.program import KERNEL, Draw, Program
from benchmarks.programs.resnet import CLASSES, inputs

# Of each stage: how much wider a block is inside, its output's channels, the number of blocks, the first one's stride,
# and the size of kernels.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, LAST, SQUEEZED = 32, 1280, 4


def weights(draw: Draw) -> Any:
    def pointwise(inputs: int, outputs: int) -> Any:
        return {KERNEL: draw.normal(1, 1, inputs, outputs, scale=inputs**-0.5), "bias": draw.normal(outputs)}

    stages, channels = [], STEM
    for wider, outputs, count, _, size in STAGES:
        blocks = []
        for _ in range(count):
            inside = wider * channels
            block = {
                "depthwise": draw.conv(size, inside, inside, inside),
                "squeeze": pointwise(inside, channels // SQUEEZED),
                "excite": pointwise(channels // SQUEEZED, inside),
                "project": draw.conv(1, inside, outputs),
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


def efficientnet(ops: Any, weights: Any, x: Any) -> Any:
    """Images (b, h, w, 3) to logits (b, 1000)."""
    x = ops.silu(ops.conv(weights["stem"], x, 2))
    for (_, _, _, first, _), blocks in zip(STAGES, weights["stages"], strict=True):
        for i, block in enumerate(blocks):
            y = ops.silu(ops.conv(block["expand"], x)) if "expand" in block else x
            groups = block["depthwise"]["scale"].shape[0]
            y = ops.silu(ops.conv(block["depthwise"], y, 1 if i else first, groups))
            squeezed = ops.silu(ops.conv(block["squeeze"], ops.image_mean(y, keep=True)))
            y = ops.conv(block["project"], y * ops.sigmoid(ops.conv(block["excite"], squeezed)))
            x = x + y if i else y
    x = ops.silu(ops.conv(weights["last"], x))
    return ops.dense(weights["head"], ops.image_mean(x))


PROGRAMS = [
    Program(
        "EfficientNet-B0",
        "logits of b images of h x w",
        efficientnet,
        weights,
        inputs,
        dims=("(b, h, w, _)",),
        shapes=[dict(b=b, h=h, w=w) for b, h, w in ((1, 224, 224), (4, 160, 192), (1, 97, 65))],
        stream={"b": (1, 2, 1), "h": (64, 160, 8), "w": (64, 160, 8)},
        images=True,
    )
]
