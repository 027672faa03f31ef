"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381), and the code that networks of such blocks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.program import KERNEL, Draw
from benchmarks.programs.resnet import CLASSES, classifier

# A stage: how much wider a block is inside, its output's channels, the number of blocks, the first one's stride, and
# the size of kernels.
Stage = tuple[int, int, int, int, int]
STAGES: Sequence[Stage] = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
STEM, LAST = 32, 1280


def weights(draw: Draw, stages: Sequence[Stage] = STAGES, gain: float = 0.5, squeezed: int = 0) -> Any:
    """Return the weights. gain: the scale of what a block adds.

    squeezed: the squeezed width of a block is its input's channels divided by this; 0 for blocks that do not squeeze.
    """

    def pointwise(inputs: int, outputs: int) -> Any:
        return {KERNEL: draw.normal(1, 1, inputs, outputs, scale=inputs**-0.5), "bias": draw.normal(outputs)}

    made, channels = [], STEM
    for wider, outputs, count, _, size in stages:
        blocks = []
        for _ in range(count):
            inside = wider * channels
            block = {"depthwise": draw.conv(size, inside, inside, inside)}
            if squeezed:
                block["squeeze"] = pointwise(inside, channels // squeezed)
                block["excite"] = pointwise(channels // squeezed, inside)
            block["project"] = draw.conv(1, inside, outputs, gain=gain)
            if wider > 1:
                block["expand"] = draw.conv(1, channels, inside)
            blocks.append(block)
            channels = outputs
        made.append(blocks)
    return {
        "stem": draw.conv(3, 3, STEM),
        "stages": made,
        "last": draw.conv(1, channels, LAST),
        "head": draw.dense(LAST, CLASSES),
    }


def network(stages: Sequence[Stage], function: str) -> Callable[..., Any]:
    """Return a function from images (b, h, w, 3) to logits (b, 1000). function: the activation's name."""

    def logits(ops: Any, weights: Any, x: Any) -> Any:
        activation = getattr(ops, function)
        x = activation(ops.conv(weights["stem"], x, 2))
        for (_, _, _, first, _), blocks in zip(stages, weights["stages"], strict=True):
            for i, block in enumerate(blocks):
                y = activation(ops.conv(block["expand"], x)) if "expand" in block else x
                groups = block["depthwise"]["scale"].shape[0]
                y = activation(ops.conv(block["depthwise"], y, 1 if i else first, groups))
                if "squeeze" in block:
                    squeezed = activation(ops.conv(block["squeeze"], ops.image_mean(y, keep=True)))
                    y = y * ops.sigmoid(ops.conv(block["excite"], squeezed))
                y = ops.conv(block["project"], y)
                x = x + y if i else y
        x = activation(ops.conv(weights["last"], x))
        return ops.dense(weights["head"], ops.image_mean(x))

    return logits


PROGRAMS = [classifier("MobileNetV2", network(STAGES, "relu6"), weights)]
