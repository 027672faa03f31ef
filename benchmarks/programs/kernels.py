"""Small programs of one operation each: a large shape, a middling one and an odd one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.program import BOTH, KERNEL, Draw, Program, normal

MATRIX, VECTOR = "(n, m)", "(m)"
CHANNELS, WORDS, WIDTH, SIZE = 96, 30522, 768, 64


def floats(*shape: int) -> np.ndarray:
    return normal(np.random.default_rng(sum(shape)), shape)


def integers(below: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, below, shape, np.int32)


def no_weights(draw: Draw) -> Any:
    return {}


def of_inputs(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a program's function from a function without weights."""
    return lambda ops, weights, *inputs: fn(ops, *inputs)


def by_vectors(
    name: str, fn: Callable[..., Any], *draws: Callable[[int], np.ndarray], sizes: tuple[int, ...]
) -> Program:
    """Return a program whose inputs are vectors (n)."""
    return Program(
        name,
        f"of {'a vector' if len(draws) == 1 else 'vectors'} (n)",
        of_inputs(fn),
        no_weights,
        lambda n: [draw(n) for draw in draws],
        dims=["(n)"] * len(draws),
        shapes=[dict(n=n) for n in sizes],
        stream={"n": (1, 50000, 1)},
    )


def by_matrix(name: str, about: str, fn: Callable[..., Any], *shapes: tuple[int, int], vectors: int = 0) -> Program:
    """Return a program whose inputs are a matrix (n, m) and `vectors` vectors (m)."""
    return Program(
        name,
        f"{about} (n, m)",
        of_inputs(fn),
        no_weights,
        lambda n, m: [floats(n, m), *(floats(m) for _ in range(vectors))],
        dims=(MATRIX, *[VECTOR] * vectors),
        shapes=[dict(n=n, m=m) for n, m in shapes],
        stream={"n": (1, 1000, 1), "m": (1, 500, 1)},
    )


def by_image(
    name: str,
    about: str,
    fn: Callable[..., Any],
    *shapes: Mapping[str, int],
    weights: Callable[[Draw], Any] = no_weights,
    channels: int = 0,
) -> Program:
    """Return a program whose input is square images (b, s, s, c). channels: their number, if it is fixed."""
    return Program(
        name,
        about,
        fn,
        weights,
        lambda b, s, c=channels: [floats(b, s, s, c)],
        dims=("(b, s, s, _)" if channels else "(b, s, s, c)",),
        shapes=shapes,
        stream={"b": (1, 4, 1), "s": (8, 56, 1), **({} if channels else {"c": (8, 64, 8)})},
        images=True,
    )


def masked_softmax(ops: Any, x: Any, mask: Any) -> Any:
    """Return the softmax of scores x (b, h, s, t) where the mask i32 (b, t) is not 0."""
    return ops.softmax(ops.where(mask[:, None, None, :] != 0, x * 0.125, -1e9), -1)


def masked(b: int, h: int, s: int, t: int) -> list[np.ndarray]:
    lengths = np.random.default_rng(b + t).integers(t // 2, t + 1, (b, 1))
    return [floats(b, h, s, t), (np.arange(t) < lengths).astype(np.int32)]


def depthwise(draw: Draw) -> Any:
    return {KERNEL: draw.normal(3, 3, 1, CHANNELS, scale=1 / 3), "bias": draw.normal(CHANNELS)}


POOLED = (dict(b=1, s=112, c=64), dict(b=8, s=56, c=64), dict(b=3, s=33, c=17))
GELU = ((512, 3072), (2048, 3072), (77, 1537))
SUMMED = ((1000, 1000), (4096, 77), (33, 333))

MEMORY_BOUND = [
    by_matrix("softmax", "of rows of", lambda ops, x: ops.softmax(x, -1), (12288, 128), (6144, 512), (1000, 77)),
    Program(
        "masked softmax",
        "of scores (b, h, s, t)",
        of_inputs(masked_softmax),
        no_weights,
        masked,
        dims=("(b, h, s, t)", "(b, t)"),
        shapes=[dict(b=8, h=12, s=128, t=128), dict(b=1, h=12, s=384, t=384), dict(b=3, h=12, s=50, t=50)],
        stream={"b": (1, 4, 1), "h": (1, 12, 1), "s": (1, 128, 1), "t": (2, 128, 1)},
    ),
    by_matrix(
        "layer norm",
        "of rows of",
        lambda ops, x, scale, bias: ops.layer_norm({"scale": scale, "bias": bias}, x, 1e-5),
        (4096, 768),
        (512, 1024),
        (333, 257),
        vectors=2,
    ),
    by_matrix(
        "RMS norm",
        "of rows of",
        lambda ops, x, scale: ops.rms_norm(scale, x, 1e-6),
        (4096, 768),
        (512, 4096),
        (333, 257),
        vectors=1,
    ),
    by_matrix("GELU", "exact, of", lambda ops, x: ops.gelu(x, approximate=False), *GELU),
    by_matrix("bias + GELU", "of", lambda ops, x, bias: ops.gelu(x + bias, approximate=False), *GELU, vectors=1),
    by_matrix("column sum", "of", lambda ops, x: ops.total(x, 0), (4096, 768), (100000, 3), (999, 333)),
    by_vectors("cumsum", lambda ops, x: ops.cumsum(x, 0), floats, sizes=(1000000, 50000, 1001)),
    by_matrix("cumsum of rows", "of", lambda ops, x: ops.cumsum(x, 1), *SUMMED),
    by_matrix("cumsum of columns", "of", lambda ops, x: ops.cumsum(x, 0), *SUMMED),
    by_matrix("argmax", "of rows of", lambda ops, x: ops.argmax(x, 1), (64, 50257), (4096, 10), (333, 257)),
    by_image(
        "max pool", "3x3 by steps of 2, of (b, s, s, c)", of_inputs(lambda ops, x: ops.max_pool(x, 3, 2)), *POOLED
    ),
    by_image("average pool", "2x2 of (b, s, s, c)", of_inputs(lambda ops, x: ops.average_pool(x, 2)), *POOLED),
]
PROGRAMS = [
    *MEMORY_BOUND,
    by_vectors("sort", lambda ops, x: ops.sort(x), floats, sizes=(1000000, 50000, 1001)),
    Program(
        "gather of rows",
        f"b x s of {WORDS} rows of {WIDTH}",
        lambda ops, weights, ids: ops.take(weights, ids),
        lambda draw: draw.normal(WORDS, WIDTH),
        lambda b, s: [integers(WORDS, b, s)],
        dims=("(b, s)",),
        shapes=[dict(b=b, s=s) for b, s in ((32, 128), (1, 384), (3, 17))],
        stream={"b": (1, 8, 1), "s": (1, 128, 1)},
    ),
    Program(
        "scatter-add of rows",
        "e rows of 64 to n",
        of_inputs(lambda ops, x, values, ids: ops.segment_sum(values, ids, x)),
        no_weights,
        lambda n, e: [floats(n, SIZE), floats(e, SIZE), integers(n, e)],
        dims=("(n, _)", "(e, _)", "(e)"),
        shapes=[dict(n=n, e=e) for n, e in ((10000, 100000), (1000, 8000), (77, 333))],
        stream={"n": (1, 1000, 1), "e": (1, 5000, 1)},
    ),
    by_image(
        "depthwise convolution",
        f"3x3 of {CHANNELS} channels, on (b, s, s, {CHANNELS})",
        lambda ops, weights, x: ops.conv(weights, x, groups=CHANNELS),
        dict(b=8, s=56),
        dict(b=1, s=56),
        dict(b=3, s=33),
        weights=depthwise,
        channels=CHANNELS,
    ),
    Program(
        "x.T @ y",
        "of (k, m) and (k, n), n small",
        of_inputs(lambda ops, x, y: ops.transpose(x, (1, 0)) @ y),
        no_weights,
        lambda k, m, n: [floats(k, m), floats(k, n)],
        dims=("(k, m)", "(k, n)"),
        shapes=[dict(k=k, m=m, n=n) for k, m, n in ((2048, 2048, 4), (4096, 512, 16), (1001, 333, 7))],
        stream={"k": (64, 1024, 1), "m": (64, 1024, 1), "n": (1, 16, 1)},
    ),
    Program(
        "matmul",
        "of (n, n) and (n, n)",
        of_inputs(lambda ops, x, y: x @ y),
        no_weights,
        lambda n: [floats(n, n), floats(n, n)],
        dims=("(n, n)", "(n, n)"),
        shapes=[dict(n=n) for n in (1024, 256, 333)],
        stream={"n": (16, 512, 1)},
        dtypes=BOTH,
    ),
    Program(
        "attention",
        "of one query a head, h heads of 64 and s keys",
        of_inputs(lambda ops, *heads: ops.attention(*heads)),
        no_weights,
        lambda h, s: [floats(1, h, 1, SIZE), *(floats(1, h, s, SIZE) for _ in range(2))],
        dims=("(_, h, _, _)", "(_, h, s, _)", "(_, h, s, _)"),
        shapes=[dict(h=h, s=4096) for h in (1, 16, 64)],
        stream={"h": (1, 32, 1), "s": (1, 2048, 1)},
        dtypes=BOTH,
    ),
]
