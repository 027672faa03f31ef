"""The memory-bound kernels, each with three shapes: a large one, a middling one and an odd one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Kernel:
    """dims: the dims of each argument, as `hlo_disc.jit` takes them. inputs: sizes to arguments."""

    name: str
    fn: Callable[..., jax.Array]
    dims: dict[str, str]
    inputs: Callable[..., tuple[Any, ...]]
    sizes: tuple[dict[str, int], ...]


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def masked_softmax(x, mask):
    scores = jnp.where(mask[:, None, None, :] != 0, x * 0.125, -1e9)
    return jax.nn.softmax(scores, axis=-1)


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale + bias


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def bias_gelu(x, bias):
    return jax.nn.gelu(x + bias, approximate=False)


def column_sum(x):
    return x.sum(0)


def running_sum(x):
    return jnp.cumsum(x)


def running_sum_of_rows(x):
    return jnp.cumsum(x, axis=1)


def running_sum_of_columns(x):
    return jnp.cumsum(x, axis=0)


def argmax_of_rows(x):
    return jnp.argmax(x, axis=1)


def max_pool(x):
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)


def average_pool(x):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") * 0.25


def floats(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


def masked(b: int, h: int, s: int, t: int) -> tuple[jax.Array, np.ndarray]:
    lengths = np.random.default_rng(b + t).integers(t // 2, t + 1, (b, 1))
    return floats(b, h, s, t), (np.arange(t) < lengths).astype(np.int32)


def matrices(*sizes: tuple[int, int]) -> tuple[dict[str, int], ...]:
    return tuple({"n": n, "m": m} for n, m in sizes)


KERNELS = (
    Kernel(
        "softmax",
        softmax,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((12288, 128), (6144, 512), (1000, 77)),
    ),
    Kernel(
        "masked softmax",
        masked_softmax,
        {"x": "(b, h, s, t)", "mask": "(b, t)"},
        masked,
        (dict(b=8, h=12, s=128, t=128), dict(b=1, h=12, s=384, t=384), dict(b=3, h=12, s=50, t=50)),
    ),
    Kernel(
        "layer norm",
        layer_norm,
        {"x": "(n, m)", "scale": "(m)", "bias": "(m)"},
        lambda n, m: (floats(n, m), floats(m), floats(m)),
        matrices((4096, 768), (512, 1024), (333, 257)),
    ),
    Kernel(
        "RMS norm",
        rms_norm,
        {"x": "(n, m)", "scale": "(m)"},
        lambda n, m: (floats(n, m), floats(m)),
        matrices((4096, 768), (512, 4096), (333, 257)),
    ),
    Kernel(
        "exact GELU",
        gelu,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((512, 3072), (2048, 3072), (77, 1537)),
    ),
    Kernel(
        "bias + GELU",
        bias_gelu,
        {"x": "(n, m)", "bias": "(m)"},
        lambda n, m: (floats(n, m), floats(m)),
        matrices((512, 3072), (2048, 3072), (77, 1537)),
    ),
    Kernel(
        "column sum",
        column_sum,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((4096, 768), (100000, 3), (999, 333)),
    ),
    Kernel(
        "cumsum",
        running_sum,
        {"x": "(n)"},
        lambda n: (floats(n),),
        (dict(n=1000000), dict(n=50000), dict(n=1001)),
    ),
    Kernel(
        "cumsum of rows",
        running_sum_of_rows,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((1000, 1000), (4096, 77), (33, 333)),
    ),
    Kernel(
        "cumsum of columns",
        running_sum_of_columns,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((1000, 1000), (4096, 77), (33, 333)),
    ),
    Kernel(
        "argmax",
        argmax_of_rows,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((64, 50257), (4096, 10), (333, 257)),
    ),
    Kernel(
        "max pool 3x3",
        max_pool,
        {"x": "(b, h, w, c)"},
        lambda b, s, c: (floats(b, s, s, c),),
        (dict(b=1, s=112, c=64), dict(b=8, s=56, c=64), dict(b=3, s=33, c=17)),
    ),
    Kernel(
        "average pool 2x2",
        average_pool,
        {"x": "(b, h, w, c)"},
        lambda b, s, c: (floats(b, s, s, c),),
        (dict(b=1, s=112, c=64), dict(b=8, s=56, c=64), dict(b=3, s=33, c=17)),
    ),
)
