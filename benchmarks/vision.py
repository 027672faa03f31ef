"""ResNet-50 in plain JAX with random weights, forward: any batch and image size, in either layout of images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

# Blocks of each stage, and the width inside them; a block's output is four times as wide.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
CLASSES = 1000


class _Weights:
    """Random f32 weights under which values neither grow nor vanish; running means and variances are not quite 0, 1."""

    def __init__(self, seed: int, layout: str):
        self._rng, self._layout = np.random.default_rng(seed), layout

    def _normal(self, *shape: int) -> np.ndarray:
        return self._rng.standard_normal(shape, np.float32)

    def conv(self, size: int, inputs: int, outputs: int, scale: float = 1.0) -> Params:
        kernel = self._normal(size, size, inputs, outputs) * np.float32((2 / (size * size * inputs)) ** 0.5)
        kernel = kernel if self._layout == "NHWC" else kernel.transpose(3, 2, 0, 1)
        small = (self._normal(outputs) * np.float32(0.1) for _ in range(4))
        names = ("scale", "bias", "mean", "variance")
        start = (scale, 0.0, 0.0, 1.0)
        norm = {name: jnp.asarray(np.abs(x) + one) for name, x, one in zip(names, small, start, strict=True)}
        return {"kernel": jnp.asarray(kernel), **norm}

    def dense(self, inputs: int, outputs: int) -> Params:
        return {"w": jnp.asarray(self._normal(inputs, outputs) * np.float32(0.02)), "b": jnp.zeros(outputs)}


def resnet_params(layout: str = "NHWC", seed: int = 4) -> Params:
    """The weights of ResNet-50 (He et al. 2015, arXiv:1512.03385), as "v1.5" with the stride in the 3x3 convolution."""
    make = _Weights(seed, layout)
    stages, channels = [], 64
    for count, width in STAGES:
        blocks = []
        for i in range(count):
            block = {
                "reduce": make.conv(1, channels, width),
                "conv": make.conv(3, width, width),
                "expand": make.conv(1, width, 4 * width, scale=0.2),
            }
            if i == 0:
                block["shortcut"] = make.conv(1, channels, 4 * width)
            blocks.append(block)
            channels = 4 * width
        stages.append(blocks)
    return {"stem": make.conv(7, 3, 64), "stages": stages, "head": make.dense(channels, CLASSES)}


def _conv(layer: Params, x: jax.Array, layout: str, size: int, stride: int = 1) -> jax.Array:
    """Convolution and batch norm with running statistics."""
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    pads = [(size // 2, size // 2)] * 2
    x = jax.lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), pads, dimension_numbers=(layout, kernel, layout)
    )
    shape = (-1,) if layout == "NHWC" else (-1, 1, 1)
    mean, variance, scale, bias = (layer[name].reshape(shape) for name in ("mean", "variance", "scale", "bias"))
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias


def _pool(x: jax.Array, layout: str) -> jax.Array:
    """The largest of 3x3, every second one."""
    spread = lambda inside, outside: tuple(outside if axis in "NC" else inside for axis in layout)  # noqa: E731
    pads = spread((1, 1), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, spread(3, 1), spread(2, 1), pads)


def resnet(params: Params, x: jax.Array, layout: str = "NHWC") -> jax.Array:
    """Images (b, h, w, 3), or (b, 3, h, w) in layout NCHW, to logits (b, 1000)."""
    x = _pool(jax.nn.relu(_conv(params["stem"], x, layout, 7, 2)), layout)
    for number, blocks in enumerate(params["stages"]):
        for i, block in enumerate(blocks):
            stride = 2 if number and not i else 1
            y = jax.nn.relu(_conv(block["reduce"], x, layout, 1))
            y = jax.nn.relu(_conv(block["conv"], y, layout, 3, stride))
            y = _conv(block["expand"], y, layout, 1)
            if "shortcut" in block:
                x = _conv(block["shortcut"], x, layout, 1, stride)
            x = jax.nn.relu(x + y)
    pooled = x.mean((1, 2) if layout == "NHWC" else (2, 3))
    return pooled @ params["head"]["w"] + params["head"]["b"]


def resnet_inputs(b: int, h: int, w: int, layout: str = "NHWC") -> tuple[jax.Array]:
    image = np.random.default_rng(b * h + w).standard_normal((b, h, w, 3), np.float32)
    return (jnp.asarray(image if layout == "NHWC" else image.transpose(0, 3, 1, 2)),)


def resnet_work(b: int, h: int, w: int) -> tuple[float, float]:
    """The operations that XLA counts before it optimises, and the bytes of the weights."""
    params = jax.eval_shape(resnet_params)
    images = jax.ShapeDtypeStruct((b, h, w, 3), jnp.float32)
    cost = jax.jit(resnet).lower(params, images).cost_analysis()
    return cost["flops"], 4.0 * sum(leaf.size for leaf in jax.tree.leaves(params))
