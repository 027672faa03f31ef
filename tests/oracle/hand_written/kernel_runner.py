"""Compile and run hand-written kernels: MLIR text in, numpy arrays in and out, without the native runtime."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import remote

from hand_written.kernel_calls import FAST_BYTES, SYMBOLS, call
from hlo_disc import mlir
from hlo_disc.errors import ArgumentError
from hlo_disc.mlir import ir
from hlo_disc.targets import registry
from hlo_disc.targets.target import Library, compile_modules
from hlo_disc.targets.translate.types import MINI_FLOATS

# The kind of CPU that kernels are for: this machine's, or an emulated one.
KIND = remote.TARGET if os.environ.get("HLO_DISC_TARGET") == remote.TARGET else "cpu"
CPU = registry.find(KIND)
_TYPES = {
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(np.int8): "i8",
    np.dtype(np.uint8): "i8",
    np.dtype(np.int16): "i16",
    np.dtype(np.uint16): "i16",
    np.dtype(np.int32): "i32",
    np.dtype(np.uint32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(np.uint64): "i64",
    **{np.dtype(kind): name for name, kind in MINI_FLOATS.items()},
}


def mlir_type(dtype: np.dtype | type) -> str:
    """The MLIR element type of arrays of `dtype` in memory."""
    return _TYPES[np.dtype(dtype)]


def levels() -> list[str]:
    """The feature levels that this machine, or the emulated one, can run."""
    found = []
    for name in CPU.levels:
        try:
            CPU.generator(name)
        except ArgumentError:
            continue
        found.append(name)
    return found


def parse(text: str) -> ir.Module:
    return ir.Module.parse(text, context=mlir.context())


def kernel_module(body: str, types: Sequence[str], blocks: int = 1, functions: str = "", host: str = "") -> str:
    """A module whose @main launches one kernel with `body` over buffers %a0, %a1, … of element `types`."""
    parameters = ", ".join(f"%a{k}: memref<?x{t}>" for k, t in enumerate(types))
    return f"""
    module attributes {{gpu.container_module}} {{
      gpu.module @kernels {{
        {functions}
        gpu.func @k({parameters}) kernel attributes {{known_block_size = array<i32: 1, 1, 1>}} {{
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          {body}
          gpu.return
        }}
      }}
      {host}
      func.func @main(%call: !llvm.ptr, %env: memref<?xi64>, %arena: memref<?xi8>, {parameters})
          attributes {{llvm.emit_c_interface}} {{
        %one = arith.constant 1 : index
        %blocks = arith.constant {blocks} : index
        %bytes = arith.constant {FAST_BYTES} : i32
        gpu.launch_func @kernels::@k blocks in (%blocks, %one, %one) threads in (%one, %one, %one)
          dynamic_shared_memory_size %bytes args({parameters})
        return
      }}
    }}"""


def load(text: str, level: str = "host") -> Library | remote.Library:
    """Compile MLIR text and link it with a `ral_parallel_for` of the tests'."""
    object_ = compile_modules(CPU.generator(level), [parse(text)])
    return remote.Library(object_) if KIND == remote.TARGET else CPU.link(object_, SYMBOLS)


@functools.lru_cache(maxsize=64)
def _load_cached(text: str, level: str) -> Library | remote.Library:
    return load(text, level)


def main_of(library: Library | remote.Library) -> Callable[..., None]:
    """`@main` as a function of buffers; call, env and arena are null unless given."""

    def main(*buffers: np.ndarray, env: np.ndarray | None = None, arena: np.ndarray | None = None) -> None:
        if isinstance(library, remote.Library):
            library.call(buffers, env, arena)
        else:
            call(library.address("main"), buffers, env, arena)

    main.library = library  # type: ignore[attr-defined]  # the code lives as long as its library
    return main


def run(body: str, *buffers: np.ndarray, level: str = "host", blocks: int = 1, functions: str = "") -> None:
    """Run a kernel with `body` over the buffers, in place."""
    text = kernel_module(body, [mlir_type(b.dtype) for b in buffers], blocks, functions)
    main_of(_load_cached(text, level))(*buffers)


def apply_all(
    expressions: Sequence[str],
    inputs: Sequence[np.ndarray],
    dtypes: Sequence[np.dtype | type],
    lanes: int,
    level: str = "host",
) -> list[np.ndarray]:
    """The results of several `%r = expression` over %x0, %x1, … in one kernel, `lanes` at a time (0: scalars).

    The arrays' length is a multiple of 16. `V(t)` stands for the vector (or scalar) type of element t; i1 results are
    to be stored as i8. One kernel for many expressions, because each costs a compilation otherwise.
    """
    types = [mlir_type(x.dtype) for x in inputs]

    def vector(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    load_op, store_op = ("vector.load", "vector.store") if lanes else ("memref.load", "memref.store")
    lines = []
    for k, t in enumerate(types):
        lines.append(f"%x{k} = {load_op} %a{k}[%i] : memref<?x{t}>{f', {vector(t)}' if lanes else ''}")
    outputs = []
    for k, (expression, dtype) in enumerate(zip(expressions, dtypes, strict=True)):
        text = re.sub(r"V\((\w+)\)", lambda match: vector(match[1]), expression)
        lines.append(re.sub(r"%([a-wyz]\w*)", rf"%\1_{k}", text))
        result = mlir_type(dtype)
        tail = f", {vector(result)}" if lanes else ""
        lines.append(f"{store_op} %r_{k}, %a{len(types) + k}[%i] : memref<?x{result}>{tail}")
        outputs.append(np.zeros(inputs[0].shape, dtype))
    body = f"""
          %n = arith.constant {inputs[0].size} : index
          %step = arith.constant {max(lanes, 1)} : index
          scf.for %i = %c0 to %n step %step {{
            {chr(10).join(lines)}
          }}"""
    run(body, *inputs, *outputs, level=level)
    return outputs


def apply(
    expression: str, inputs: Sequence[np.ndarray], dtype: np.dtype | type, lanes: int, level: str = "host"
) -> np.ndarray:
    """One expression of `apply_all`."""
    (result,) = apply_all([expression], inputs, [dtype], lanes, level)
    return result
