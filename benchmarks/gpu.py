"""The speed of kernels on this machine's NVIDIA GPU, next to PyTorch's own, at equal precision.

`make bench-gpu`. Tensors are in the GPU's memory; most are far larger than its caches. Times are the GPU's, measured
by events around calls that wait in its stream, medians of five turns. GB/s count the bytes that must be read and
written.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional

import hlo_disc
from benchmarks.measure import per_call

TURNS, CALLS = 5, 20
BEHIND = 2_000_000  # clock cycles that the GPU waits, so that what it is timed at has been asked for
ELEMENTS = 1 << 26


class Case(NamedTuple):
    """A kernel with its shapes. moved: the number of passes over memory; 0 for products, which are rated by FLOP/s."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., torch.Tensor]
    dtype: str
    shapes: Sequence[tuple[tuple[int, ...], ...]]
    moved: int = 0


def layer_norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def _rows(*cols: int) -> list[tuple[tuple[int, int]]]:
    return [((ELEMENTS // n, n),) for n in cols]


def _squares(*sizes: int) -> list[tuple[tuple[int, int], ...]]:
    return [((n, n),) * 2 for n in sizes]


gelu = partial(functional.gelu, approximate="tanh")
CASES = (
    Case("copy", lambda x: x * 2, lambda x: x * 2, "f32", _rows(4096), 2),
    Case("gelu", jax.nn.gelu, gelu, "f32", _rows(4096), 2),
    Case("gelu", jax.nn.gelu, gelu, "bf16", _rows(4096), 2),
    Case("softmax", jax.nn.softmax, lambda x: x.softmax(-1), "f32", _rows(128, 1023, 1024, 4096, 32768), 2),
    Case("softmax", jax.nn.softmax, lambda x: x.softmax(-1), "bf16", _rows(1024), 2),
    Case("layer norm", layer_norm, lambda x: functional.layer_norm(x, x.shape[-1:]), "f32", _rows(768, 4096), 2),
    Case("row sum", lambda x: x.sum(1), lambda x: x.sum(1), "f32", _rows(1023, 1024), 1),
    Case("column sum", lambda x: x.sum(0), lambda x: x.sum(0), "f32", _rows(1024, 4096), 1),
    Case("sum", lambda x: x.sum(), lambda x: x.sum(), "f32", _rows(4096), 1),
    Case("cumulative sum", lambda x: jnp.cumsum(x, 1), lambda x: x.cumsum(1), "f32", _rows(4096, ELEMENTS), 2),
    Case("transpose", lambda x: x.T, lambda x: x.T.contiguous(), "f32", [((8192, 8192),)], 2),
    Case("sort", lambda x: jnp.sort(x), lambda x: x.sort(-1).values, "f32", [((1024, 1024),), ((1, 1 << 20),)], 2),
    Case("product", jnp.matmul, torch.matmul, "f32", _squares(512, 2048, 4096)),
    Case("product", jnp.matmul, torch.matmul, "bf16", _squares(512, 1024, 4096, 8192)),
    Case(
        "attention", attention, functional.scaled_dot_product_attention, "bf16",
        [((b, 12, s, 64),) * 3 for b, s in ((1, 128), (8, 512))],
    ),
)  # fmt: skip


def timed(call: Callable[[], object]) -> float:
    """Return the microseconds that the GPU takes for a call."""
    for _ in range(3):
        call()
    times = []
    for _ in range(TURNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(BEHIND)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS * 1e3)
    return statistics.median(times)


def rate(case: Case, tensors: Sequence[torch.Tensor], microseconds: float) -> str:
    first = tensors[0]
    if case.moved:
        return f"{case.moved * first.numel() * first.element_size() / microseconds / 1e3:6.0f} GB/s"
    if case.name == "product":
        return f"{2 * first.numel() * tensors[1].shape[-1] / microseconds / 1e6:6.0f} TFLOP/s"
    return ""


def run(case: Case) -> None:
    tensors_of = {"f32": torch.float32, "bf16": torch.bfloat16}
    dims = {"attention": ["b, h, s, 64"] * 3, "product": ["m, k", "k, n"]}.get(case.name, ["m, n"])
    specs = [f"{case.dtype}[{sizes}]" for sizes in dims]
    with jax.default_matmul_precision("highest"):
        executable = hlo_disc.compile(case.ours, *specs, target="cuda")
    for shapes in case.shapes:
        tensors = [torch.randn(*shape, device="cuda").to(tensors_of[case.dtype]) for shape in shapes]
        ours, theirs = executable(*tensors).float(), case.theirs(*tensors).float()
        off = float((ours - theirs).abs().max() / theirs.abs().max())
        del ours, theirs
        times = [timed(partial(f, *tensors)) for f in (executable, case.theirs)]
        size = " x ".join(map(str, shapes[0]))
        figures = "  ".join(f"{t:8.1f} us {rate(case, tensors, t)}" for t in times)
        print(f"{case.name:14s} {case.dtype:4s} {size:18s} {figures}  {times[1] / times[0]:5.2f}  off {off:.0e}")


def host() -> None:
    """Print the host's time for a call of a small program."""
    x = torch.ones(8, device="cuda")
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="cuda")
    for name, call in (("ours", lambda: executable(x)), ("PyTorch", lambda: x + 1)):
        print(f"a call of a small program, {name}: {1e6 * per_call(call, 1000, TURNS):.1f} us")


def main() -> None:
    jax.config.update("jax_platforms", "cpu")  # no second pool of the GPU's memory
    print(f"{torch.cuda.get_device_name()}: ours, PyTorch {torch.__version__}, how many times faster ours is")
    for case in CASES:
        run(case)
    host()


if __name__ == "__main__":
    main()
