"""The programs that tests compile for GPUs of all vendors: row programs, and a kernel for each function."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def layer_norm(x, scale):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


ROW_PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "softmax": (jax.nn.softmax, ("f32[m, n]",)),
    "layer norm": (layer_norm, ("f32[m, n]", "f32[n]")),
    "GELU": (jax.nn.gelu, ("bf16[m, n]",)),
    "cumulative sum": (lambda x: jnp.cumsum(x, -1), ("f32[m, n]",)),
    "argmax": (lambda x: jnp.argmax(x, -1), ("f32[m, n]",)),
}


def function_kernel(function: str, dtype: str, threads: int) -> str:
    """Return the MLIR of a kernel that applies a function of `vecmath` to an element a thread."""
    operands = "%x, %x" if function in ("pow", "atan2", "fmod") else "%x"
    op = {"fmod": "arith.remf", "pow": "math.powf"}.get(function, f"math.{function}")
    return f"""
      gpu.module @kernels {{
        gpu.func @k(%a: memref<?x{dtype}>) kernel attributes {{known_block_size = array<i32: {threads}, 1, 1>}} {{
          %i = gpu.thread_id x
          %x = memref.load %a[%i] : memref<?x{dtype}>
          %y = {op} {operands} : {dtype}
          memref.store %y, %a[%i] : memref<?x{dtype}>
          gpu.return
        }}
      }}"""
