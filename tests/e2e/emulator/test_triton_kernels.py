"""Kernels of Triton, which GPUs are known to run right, in the emulator: it must give PTX the same meaning.

Triton chooses the fragments of products, shuffles, barriers and addresses of shared memory here. numpy computes the
numbers that they have to give.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import ExitStack
from typing import Any

import emulated
import ml_dtypes
import numpy as np
import pytest
import small_kernels
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.instructions import by_triton

POINTERS = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "float64": "*fp64", "int8": "*i8",
            "uint8": "*u8", "int32": "*i32"}  # fmt: skip


def run(
    function: triton.JITFunction, *arguments: Any, blocks: int = 1, warps: int = 4, stages: int = 3, **constants: Any
) -> None:
    """Launch a kernel over arrays, which it changes in place, and numbers."""
    names = [n for n in function.arg_names if n not in constants]
    given = dict(zip(names, arguments, strict=True))
    signature = {n: "constexpr" if n in constants else kind(given[n]) for n in function.arg_names}
    whole = {
        (k,): [["tt.divisibility", 16]] for k, n in enumerate(function.arg_names) if n in given and aligned(given[n])
    }
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=whole)
    options = {"num_warps": warps, "num_stages": stages}
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    with ExitStack() as stack:
        arrays = {n: x for n, x in given.items() if isinstance(x, np.ndarray)}
        addresses = {n: stack.enter_context(small_kernels.block_of_memory(x.nbytes)) for n, x in arrays.items()}
        for name, x in arrays.items():
            ctypes.memmove(addresses[name], x.ctypes.data, x.nbytes)
        record = b""
        for name, x in given.items():
            size = 8 if name in arrays else 4
            record += b"\0" * (-len(record) % size)
            record += struct.pack("<q" if size == 8 else "<i", addresses.get(name, x))
        record += b"\0" * (-len(record) % 8 + 16)  # scratch memory, of which there is none
        small_kernels.launch_ptx(made.asm["ptx"], made.metadata.name, record, blocks, 32 * warps, made.metadata.shared)
        emulated.check()
        for name, x in arrays.items():
            ctypes.memmove(x.ctypes.data, addresses[name], x.nbytes)


def kind(x: Any) -> str:
    return POINTERS[x.dtype.name] if isinstance(x, np.ndarray) else "i32"


def aligned(x: Any) -> bool:
    return isinstance(x, np.ndarray) or x % 16 == 0


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("warps", [1, 4])
def test_softmax(warps):
    x = numbers(3, 200)
    out = np.zeros_like(x)
    run(by_triton.softmax, out, x, 200, 200, blocks=3, warps=warps, exact=False, B=256)
    wanted = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


def test_layer_norm():
    x, scale, bias = numbers(3, 500), numbers(500), numbers(500)
    out = np.zeros_like(x)
    run(by_triton.layer_norm, out, x, scale, bias, 500, 500, blocks=3, exact=True, B=256)
    centered = x - x.mean(1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_gelu():
    x = numbers(1000)
    out = np.zeros_like(x)
    run(by_triton.gelu, out, x, 1000, blocks=2, exact=True, B=512)
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    np.testing.assert_allclose(out, 0.5 * x * (1 + np.tanh(inner)), rtol=1e-4, atol=1e-6)


@triton.jit
def product(out, x, y, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, tf32: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.arange(0, N)
    total = tl.zeros([M, N], out.dtype.element_ty)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        a = tl.load(x + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0)
        b = tl.load(
            y + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < k) & (columns[None, :] < n), other=0
        )
        total = tl.dot(a, b, total, input_precision="tf32" if tf32 else "ieee", out_dtype=total.dtype)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(
    ("dtype", "sums", "tolerance"),
    [
        (np.float16, np.float32, 1e-4),
        (ml_dtypes.bfloat16, np.float32, 1e-4),
        (np.float32, np.float32, 2e-2),
        (np.float64, np.float64, 1e-12),
        (np.int8, np.int32, 0),
    ],
)
def test_products(dtype, sums, tolerance, warps):
    """Products are computed by mma.sync. ldmatrix loads its operands, transposed or not, behind asynchronous copies."""
    m, n, k = 40, 48, 96
    scale = 20 if sums == np.int32 else 1
    x, y = (numbers(m, k) * scale).astype(dtype), (numbers(n, k).T * scale).astype(dtype).copy()
    out = np.zeros((m, n), sums)
    run(product, out, x, y, m, n, k, blocks=2, warps=warps, M=32, N=64, K=32, tf32=dtype == np.float32)
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=10 * tolerance)


@triton.jit
def scanned(out, x, B: tl.constexpr, reverse: tl.constexpr):
    place = tl.arange(0, B)
    tl.store(out + place, tl.cumsum(tl.load(x + place), 0, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [32, 256, 1024])
def test_scans(size, reverse):
    x = np.random.default_rng(0).integers(-50, 50, size).astype(np.int32)
    out = np.zeros_like(x)
    run(scanned, out, x, B=size, reverse=reverse)
    np.testing.assert_array_equal(out, np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x))


@triton.jit
def in_order(out, x, B: tl.constexpr):
    place = tl.arange(0, B)
    tl.store(out + place, tl.sort(tl.load(x + place)))


def test_sort():
    x = numbers(512)
    out = np.zeros_like(x)
    run(in_order, out, x, B=512)
    np.testing.assert_array_equal(out, np.sort(x))


@triton.jit
def largest(out, at, x, B: tl.constexpr):
    row = tl.program_id(0)
    value, place = tl.max(tl.load(x + row * B + tl.arange(0, B)), 0, return_indices=True)
    tl.store(out + row, value)
    tl.store(at + row, place)


def test_the_largest():
    x = np.round(numbers(5, 256), 1)
    out, at = np.zeros(5, np.float32), np.zeros(5, np.int32)
    run(largest, out, at, x, blocks=5, B=256)
    np.testing.assert_array_equal(at, x.argmax(1))
    np.testing.assert_array_equal(out, x.max(1))


@triton.jit
def counted(out, x, B: tl.constexpr):
    tl.atomic_add(out + tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 1)


def test_counts():
    x = np.random.default_rng(0).integers(0, 10, 512).astype(np.int32)
    out = np.zeros(10, np.int32)
    run(counted, out, x, blocks=4, B=128)
    np.testing.assert_array_equal(out, np.bincount(x, minlength=10))


@triton.jit
def turned(out, x, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(value))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_transpositions(dtype):
    x = (numbers(32, 64) * 10).astype(dtype)
    out = np.zeros((64, 32), dtype)
    run(turned, out, x, M=32, N=64)
    np.testing.assert_array_equal(out, x.T)
