"""A small U-Net (Ronneberger et al. 2015, arXiv:1505.04597), padded and with batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.program import KERNEL, Draw, Program, normal

WIDTHS, CLASSES = (32, 64, 128, 256), 8


def weights(draw: Draw) -> Any:
    def twice(inputs: int, outputs: int) -> Any:
        return [draw.conv(3, inputs, outputs), draw.conv(3, outputs, outputs)]

    deepest = WIDTHS[-1]
    return {
        "down": [twice(a, b) for a, b in zip((3, *WIDTHS), WIDTHS, strict=False)],
        "bottom": twice(deepest, deepest),
        "up": [twice(a + b, b) for a, b in zip((deepest, *WIDTHS[::-1]), WIDTHS[::-1], strict=False)],
        "head": {KERNEL: draw.normal(1, 1, WIDTHS[0], CLASSES, scale=WIDTHS[0] ** -0.5), "bias": draw.normal(CLASSES)},
    }


def unet(ops: Any, weights: Any, x: Any) -> Any:
    """Return logits of each pixel (b, 16 h, 16 w, 8) for images (b, 16 h, 16 w, 3)."""

    def twice(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = ops.relu(ops.conv(layer, x))
        return x

    skipped = []
    for layers in weights["down"]:
        x = twice(layers, x)
        skipped.append(x)
        x = ops.max_pool(x, 2, 2)
    x = twice(weights["bottom"], x)
    for layers in weights["up"]:
        x = twice(layers, ops.channels(ops.double(x), skipped.pop()))
    return ops.conv(weights["head"], x)


def inputs(b: int, h: int, w: int) -> list[np.ndarray]:
    return [normal(np.random.default_rng(b * h + w), (b, 16 * h, 16 * w, 3))]


PROGRAMS = [
    Program(
        "U-Net",
        "4 levels of 32 to 256 channels, logits of the pixels of b images of 16h x 16w",
        unet,
        weights,
        inputs,
        dims=("(b, 16*h, 16*w, _)",),
        shapes=[dict(b=b, h=h, w=w) for b, h, w in ((1, 16, 16), (2, 8, 12), (1, 7, 5))],
        stream={"b": (1, 2, 1), "h": (2, 8, 1), "w": (2, 8, 1)},
        images=True,
    )
]
