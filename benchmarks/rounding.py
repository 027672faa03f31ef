"""The cost of rounding bf16 after each op: programs without and with `excess_precision`.

    python -m benchmarks.rounding

Programs run on one thread. Times are the processor time of the calling thread, medians of turns.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc
from benchmarks import in_jax
from benchmarks.frameworks import jax as ops
from benchmarks.program import programs

# Sizes at which programs are run.
SHAPES = {
    "BERT-base": [dict(b=1, s=128)],
    "GPT-2 prefill": [dict(b=1, s=128)],
    "GPT-2 decode": [dict(b=1, t=1000), dict(b=16, t=100)],
    "Llama block": [dict(b=1, s=1), dict(b=1, s=128)],
}
TURNS = 15
# A turn takes so many seconds at least.
TURN = 1e-3


class Case(NamedTuple):
    """A function in bf16, with its arguments."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]


def drawn(*shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)


def models() -> Iterator[Case]:
    for program in programs():
        for sizes in SHAPES.get(program.name, ()):
            args = in_jax.weights(program, "bf16"), in_jax.inputs(program, sizes, "bf16")
            yield Case(f"{program.name} {sizes}", in_jax.function(program), args)


def parts() -> Iterator[Case]:
    wide = drawn(128, 3072)
    yield Case("sum", jnp.add, (wide, wide))
    yield Case("f32 to bf16", lambda x: x.astype(jnp.bfloat16), (drawn(128, 3072, dtype=jnp.float32),))
    layer = {"scale": drawn(768), "bias": drawn(768)}
    yield Case("layer norm", functools.partial(ops.layer_norm, epsilon=1e-5), (layer, drawn(128, 768)))
    yield Case("softmax", ops.softmax, (drawn(1536, 128),))
    for approximate in (False, True):
        gelu = functools.partial(jax.nn.gelu, approximate=approximate)
        yield Case("GELU" + " with tanh" * approximate, gelu, (wide,))
    yield Case("SwiGLU", lambda x, y: jax.nn.silu(x) * y, (wide, wide))
    heads = drawn(1, 12, 128, 64)
    yield Case("attention", functools.partial(ops.attention, causal=True), (heads, heads, heads))


def seconds(call: Callable[[], Any], count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        jax.block_until_ready(call())
    return (time.thread_time() - start) / count


def main() -> None:
    print(f"{'bf16, one thread':40} {'rounded':>10} {'excess':>10}   rounded / excess")
    for case in (*parts(), *models()):
        each = [hlo_disc.jit(case.fn, threads=1, excess_precision=excess) for excess in (False, True)]
        calls = [functools.partial(f, *case.args) for f in each]
        first = [seconds(call, 3) for call in calls * 2][2:]  # the first one compiles, the second packs weights
        count = max(int(TURN / min(first)), 1)
        turns = [[seconds(call, count) for call in calls] for _ in range(TURNS)]
        ours, theirs = map(statistics.median, zip(*turns, strict=True))
        print(f"{case.name:40} {ours * 1e6:7.0f} µs {theirs * 1e6:7.0f} µs   {ours / theirs:.3f}", flush=True)


if __name__ == "__main__":
    main()
