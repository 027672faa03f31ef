"""Row kernels of a GPU, thread by thread, each size in one order of three, and threads that miss each other."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import depth
import emulated
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each

import hlo_disc
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA

ORDERS = (0, -1, 7)
SIZES = (
    (1, 1), (3, 7), (33, 32), (4, 129), (7, 257), (2, 4099), (300, 17), (1100, 3), (0, 5), (5, 0), (20, 50),
    (3, 4), (36, 132), (3, 260), (8, 1028), (2, 4100),
)  # fmt: skip
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "c64": np.complex64}


@pytest.fixture(autouse=True)
def registered(emulated_targets) -> Iterator[None]:
    yield
    emulated.emulator().simt_order(0)


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def last_affine(x, y):
    """Compose the maps t -> x t + y of each row, one after another: a region that does not commute."""
    return jax.lax.reduce((x, y), (np.float32(1), np.float32(0)), lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]), (1,))


PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "map": (lambda x: jax.nn.gelu(x) + 1, ("f32[m, n]",)),
    "softmax": (jax.nn.softmax, ("f32[m, n]",)),
    "layer norm": (layer_norm, ("f32[m, n]", "f32[n]", "f32[n]")),
    "column sum": (lambda x: x.sum(0), ("f32[m, n]",)),
    "all in one": (lambda x: x.astype(np.float32).sum(), ("bf16[m, n]",)),
    "argmax": (lambda x: jnp.argmax(x, -1), ("i32[m, n]",)),
    "region": (last_affine, ("f32[m, n]", "f32[m, n]")),
    "cumulative sum": (lambda x: jnp.cumsum(x, -1), ("f32[m, n]",)),
    "reverse maximum": (lambda x: jax.lax.cummax(x, 1, reverse=True), ("bf16[m, n]",)),
    "cumulative log of a sum": (lambda x: jax.lax.cumlogsumexp(x, 1), ("f32[m, n]",)),
    "transpose": (lambda x: x.T * 2, ("f32[m, n]",)),
    "complex": (lambda x, y: (x * y).sum(-1), ("c64[m, n]", "c64[m, n]")),
    "pad and stride": (lambda x: jnp.pad(x, ((1, 2), (0, 3)))[:, ::2], ("f32[m, n]",)),
    "random bits": (lambda x: jax.random.bits(jax.random.key(1), x.shape) + x.astype(np.uint32), ("i32[m, n]",)),
}  # fmt: skip


def arrays(specs: tuple[str, ...], m: int, n: int) -> list[np.ndarray]:
    rng, made = np.random.default_rng(m + n), []
    for spec in specs:
        name, shape = spec.rstrip("]").split("[")
        x = rng.standard_normal([{"m": m, "n": n}[dim] for dim in shape.split(", ")]) * (4 if name == "i32" else 0.7)
        made.append((x + 1j * x[::-1] if name == "c64" else x).astype(TYPES[name]))
    return made


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
def test_runs_are_no_further_aligned_than_fast_memory(target):
    """Four numbers of 64 bits are twice as many bytes as four of 32: fast memory need not be aligned so far."""
    with jax.enable_x64(True):
        executable = hlo_disc.compile(jax.nn.softmax, "f64[m, n]", target=target)
        for m, n in ((4, 128), (8, 1028), (2, 4100)):
            x = np.random.default_rng(n).standard_normal((m, n))
            result = executable(x)
            emulated.check()
            np.testing.assert_allclose(result, jax.nn.softmax(x), rtol=1e-13)


@functools.cache
def expected_of(name: str) -> dict[tuple[int, int], list[Any]]:
    """Return XLA's results at each size, which both targets have to give."""
    function, specs = PROGRAMS[name]
    sizes = [(m, n) for m, n in SIZES if n or name != "argmax"]
    results = at_each(function, [arrays(specs, *size) for size in sizes])
    return dict(zip(sizes, map(jax.tree.leaves, results), strict=True))


@depth.sampled(2)
@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_row_kernels(name, target):
    function, specs = PROGRAMS[name]
    executable = hlo_disc.compile(function, *specs, target=target)
    for number, ((m, n), expected) in enumerate(expected_of(name).items()):
        xs = arrays(specs, m, n)
        for order in depth.some(ORDERS, number):
            emulated.emulator().simt_order(order)
            results = jax.tree.leaves(executable(*xs))
            emulated.check()
            for result, right in zip(results, expected, strict=True):
                assert result.dtype == right.dtype
                np.testing.assert_allclose(result, right, rtol=2e-5, atol=1e-5, err_msg=f"{m} x {n}, order {order}")


@pytest.mark.parametrize("element", ["f4E2M1FN", "f6E3M2FN", "f8E4M3FN"])
def test_elements_of_few_bits_are_a_byte_each(element):
    text = f"""
      func.func @main() -> tensor<8x{element}> {{
        %c = stablehlo.constant dense<[0.0, 1.0, -0.5, 2.0, 3.0, 4.0, 1.5, -1.0]> : tensor<8x{element}>
        return %c : tensor<8x{element}>
      }}"""
    result = hlo_disc.compile(text, target="emulated-cuda")()
    assert result.astype(np.float32).tolist() == [0, 1, -0.5, 2, 3, 4, 1.5, -1]


BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"


DIVERGENT = f"""
target triple = "{nvptx.TRIPLE}"
target datalayout = "{nvptx.LAYOUT}"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define ptx_kernel void @kernel(i64 %limit) {{
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %wide = zext i32 %tid to i64
  %low = icmp slt i64 %wide, %limit
  br i1 %low, label %one, label %other
one:
{BARRIER}  br label %done
other:
  CALL
  br label %done
done:
  ret void
}}
"""


@pytest.mark.parametrize(
    ("planted", "message"), [(BARRIER.strip(), "different barriers"), ("; none", "have left")], ids=["two", "one"]
)
def test_divergent_barriers_are_found(planted, message):
    object_ = x86.generator("host").compile_llvm(emulated.for_cpu(DIVERGENT.replace("CALL", planted)))
    library = emulated.Emulated(NVIDIA).link(object_, {})
    for limit in (64, 0, 17):
        record = np.array([limit], np.int64)
        kernel, data = map(ctypes.c_void_p, (library.address("kernel"), record.ctypes.data))
        emulated.emulator().simt_launch(kernel, ctypes.c_int64(2), ctypes.c_int64(64), ctypes.c_int64(0), data)
        if limit == 17:
            with pytest.raises(emulated.SimtError, match=message):
                emulated.check()
        else:
            emulated.check()
