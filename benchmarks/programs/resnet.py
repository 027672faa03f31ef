"""ResNet-50 (He et al. 2015, arXiv:1512.03385), as "v1.5" with the stride in the 3x3 convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.program import BOTH, F32, Draw, Program, normal

# Blocks of each stage, and the width inside them; a block's output is four times as wide.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
CLASSES = 1000


def weights(draw: Draw) -> Any:
    stages, channels = [], 64
    for count, width in STAGES:
        blocks = []
        for i in range(count):
            block = {
                "reduce": draw.conv(1, channels, width),
                "conv": draw.conv(3, width, width),
                "expand": draw.conv(1, width, 4 * width, gain=0.2),
            }
            if i == 0:
                block["shortcut"] = draw.conv(1, channels, 4 * width)
            blocks.append(block)
            channels = 4 * width
        stages.append(blocks)
    return {"stem": draw.conv(7, 3, 64), "stages": stages, "head": draw.dense(channels, CLASSES)}


def resnet(ops: Any, weights: Any, x: Any) -> Any:
    """Return logits (b, 1000) for images (b, h, w, 3)."""
    x = ops.max_pool(ops.relu(ops.conv(weights["stem"], x, 2)), 3, 2)
    for number, blocks in enumerate(weights["stages"]):
        for i, block in enumerate(blocks):
            stride = 2 if number and not i else 1
            y = ops.relu(ops.conv(block["reduce"], x))
            y = ops.relu(ops.conv(block["conv"], y, stride))
            y = ops.conv(block["expand"], y)
            if "shortcut" in block:
                x = ops.conv(block["shortcut"], x, stride)
            x = ops.relu(x + y)
    return ops.dense(weights["head"], ops.image_mean(x))


def inputs(b: int, h: int, w: int) -> list[np.ndarray]:
    return [normal(np.random.default_rng(b * h + w), (b, h, w, 3))]


def classifier(
    name: str,
    fn: Callable[..., Any],
    weights: Callable[[Draw], Any],
    about: str = "logits of b images of h x w",
    dtypes: Sequence[str] = F32,
) -> Program:
    return Program(
        name,
        about,
        fn,
        weights,
        inputs,
        dims=("(b, h, w, _)",),
        shapes=[dict(b=b, h=h, w=w) for b, h, w in ((1, 224, 224), (4, 160, 192), (1, 97, 65))],
        stream={"b": (1, 2, 1), "h": (64, 160, 8), "w": (64, 160, 8)},
        dtypes=dtypes,
        images=True,
    )


PROGRAMS = [classifier("ResNet-50", resnet, weights, "v1.5, logits of b images of h x w", BOTH)]
