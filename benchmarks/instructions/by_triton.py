"""The kernels as Triton's users write them, in f32. `exact`: quotients and functions are as exact as ours."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from benchmarks.instructions.sass import Code, kernels


@triton.jit
def softmax(out, x, stride, n, exact: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0) * stride
    c = tl.arange(0, B)
    v = tl.load(x + row + c, mask=c < n, other=-float("inf"))
    v -= tl.max(v, 0)
    if exact:
        e = libdevice.exp(v)
        y = tl.div_rn(e, tl.sum(e, 0))
    else:
        e = tl.exp(v)
        y = e / tl.sum(e, 0)
    tl.store(out + row + c, y, mask=c < n)


@triton.jit
def layer_norm(out, x, scale, bias, stride, n, exact: tl.constexpr, B: tl.constexpr):
    x += tl.program_id(0) * stride
    out += tl.program_id(0) * stride
    total = tl.zeros([B], tl.float32)
    for first in range(0, n, B):
        c = first + tl.arange(0, B)
        total += tl.load(x + c, mask=c < n, other=0.0)
    mean = tl.sum(total, 0) / n
    total = tl.zeros([B], tl.float32)
    for first in range(0, n, B):
        c = first + tl.arange(0, B)
        v = tl.where(c < n, tl.load(x + c, mask=c < n, other=0.0) - mean, 0.0)
        total += v * v
    factor = 1 / tl.sqrt(tl.sum(total, 0) / n + 1e-5)
    for first in range(0, n, B):
        c = first + tl.arange(0, B)
        m = c < n
        y = (tl.load(x + c, mask=m) - mean) * factor * tl.load(scale + c, mask=m) + tl.load(bias + c, mask=m)
        tl.store(out + c, y, mask=m)


@triton.jit
def gelu(out, x, n, exact: tl.constexpr, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + c, mask=c < n)
    t = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    if exact:
        h = libdevice.tanh(t)
    else:
        h = 1 - 2 / (tl.exp(2 * t) + 1)
    tl.store(out + c, 0.5 * v * (1 + h), mask=c < n)


@triton.jit
def column_sum(out, x, rows, columns, exact: tl.constexpr, B: tl.constexpr):
    c = tl.program_id(0) * 128 + tl.arange(0, 128)
    total = tl.zeros([B, 128], tl.float32)
    for first in range(0, rows, B):
        r = first + tl.arange(0, B)
        inside = (r[:, None] < rows) & (c[None, :] < columns)
        total += tl.load(x + r[:, None] * columns + c[None, :], mask=inside, other=0.0)
    tl.store(out + c, tl.sum(total, 0), mask=c < columns)


def compiled(function: triton.JITFunction, level: str, exact: bool, block: int, warps: int) -> Code:
    names = function.arg_names
    constants = {"exact": exact, "B": block}
    pointers = ("out", "x", "scale", "bias")
    signature = {n: "constexpr" if n in constants else "*fp32" if n in pointers else "i32" for n in names}
    multiples = {(k,): [["tt.divisibility", 16]] for k, n in enumerate(names) if n not in constants}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=multiples)
    target = GPUTarget("cuda", int(level.removeprefix("sm_")), 32)
    (code,) = kernels(triton.compile(source, target=target, options={"num_warps": warps}).asm["cubin"]).values()
    return code


def each(function: triton.JITFunction, level: str, exact: bool, block: int, warps: int) -> float:
    """Return the instructions for an element: those of the loops, or else those that a block twice as large adds."""
    code = compiled(function, level, exact, block, warps)
    if code.loops:
        return code.each(len(code.loops))
    twice = compiled(function, level, exact, 2 * block, warps)
    return (twice.instructions - code.instructions) / (block / (32 * warps))
