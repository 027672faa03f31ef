"""Dots and attention at many shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.program import Program, named
from benchmarks.programs.kernels import floats, no_weights, of_inputs


def by_weight(inner: int, columns: int, *rows: int) -> Program:
    """Return a program that multiplies by a packed weight."""
    return Program(
        f"x @ weight, {inner} x {columns}",
        "of m rows",
        lambda ops, weight, x: x @ weight,
        lambda draw: draw.normal(inner, columns),
        lambda m: [floats(m, inner)],
        dims=["(m, _)"],
        shapes=[dict(m=m) for m in rows],
        stream={"m": (1, 512, 1)},
    )


def product(name: str, fn: Callable[..., Any], left: str, right: str, *sizes: tuple[int, int, int]) -> Program:
    """Return a program that multiplies two arguments of any size. left, right: the letters of their axes."""
    return Program(
        name,
        "of (m, k) and (k, n)",
        of_inputs(fn),
        no_weights,
        lambda **sizes: [floats(*(sizes[axis] for axis in axes)) for axes in (left, right)],
        dims=[f"({', '.join(axes)})" for axes in (left, right)],
        shapes=[dict(zip("mkn", each, strict=True)) for each in sizes],
        stream=dict.fromkeys("mkn", (1, 512, 1)),
    )


MATMUL = product(
    "x @ y",
    lambda ops, x, y: x @ y,
    "mk",
    "kn",
    *((1, 768, 3072), (8, 768, 3072), (128, 768, 3072), (1000, 1000, 1000), (64, 64, 64)),
)

PROGRAMS = [
    by_weight(768, 3072, 1, 4, 17, 128, 512),
    by_weight(3072, 768, 1, 17, 128, 512),
    by_weight(768, 768, 17, 512),
    by_weight(768, 2, 1, 128, 4096),
    MATMUL,
    product(
        "x @ y.T",
        lambda ops, x, y: x @ ops.transpose(y, (1, 0)),
        "mk",
        "nk",
        *((1, 768, 3072), (8, 768, 3072), (128, 768, 3072), (512, 64, 512)),
    ),
    replace(
        MATMUL,
        shapes=[dict(m=m, k=k, n=n) for m, k, n in ((1, 1024, 1024), (128, 768, 3072), (1024, 1024, 1024))],
        dtypes=("bf16",),
    ),
    replace(  # as the gradient of a weight is over a batch
        named("x.T @ y"),
        shapes=[
            dict(k=k, m=m, n=n) for m, k, n in ((512, 2048, 512), (256, 32768, 256), (64, 65536, 512), (10, 100000, 10))
        ],
    ),
    Program(
        "attention, 12 heads of 64",
        "of b sequences, m queries and n keys",
        of_inputs(lambda ops, *heads: ops.attention(*heads)),
        no_weights,
        lambda b, m, n: [floats(b, 12, m, 64), *(floats(b, 12, n, 64) for _ in "kv")],
        dims=["(b, _, m, _)", "(b, _, n, _)", "(b, _, n, _)"],
        shapes=[
            dict(b=b, m=m, n=n)
            for b, m, n in (
                *((1, 17, 17), (1, 77, 77), (1, 128, 128), (8, 128, 128), (1, 384, 384), (1, 512, 512)),
                (1, 1, 512),
            )
        ],
        stream={"b": (1, 4, 1), "m": (1, 100, 1), "n": (1, 100, 1)},
    ),
]
