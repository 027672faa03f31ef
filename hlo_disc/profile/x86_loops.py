"""Loops of machine code that reach a core's highest rates: multiply-adds of f32 and of bf16, and bytes read."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import NamedTuple

import llvmlite.binding as llvm

from hlo_disc.errors import DeviceError
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.llvm_ir import initialize

_CHAINS = 12  # independent sums: enough to hide the latency, few enough for 16 registers
_TILES = 6  # sums in tiles of 16 lines of 64 bytes; the other two of the eight are what is multiplied


class Loop(NamedTuple):
    """A loop. run: takes the address of data, their bytes, and the number of iterations. work: operations, or bytes
    read, in an iteration."""

    run: Callable[[int, int, int], object]
    work: int


def check() -> None:
    """Raise DeviceError on a machine for which there are no loops."""
    if platform.machine() not in ("x86_64", "AMD64") or not _has("fma"):
        raise DeviceError(f"a machine's limits are measured on x86-64 with FMA only, and this is {platform.machine()}")


def f32() -> Loop:
    """Multiply and add f32. The data are the 64 bytes of an operand, used again and again."""
    lanes = _lanes()
    vector = f"<{lanes} x float>"
    name = f"{vector} @llvm.fma.v{lanes}f32"
    step = f"%b{{i}} = call {name}({vector} %a{{i}}, {vector} %x, {vector} %x)"
    text = _chained(
        lanes, step, f"%x = load {vector}, ptr %data, align 4", declared=f"{name}({vector}, {vector}, {vector})"
    )
    return Loop(_compiled(text), 2 * lanes * _CHAINS)


def bf16() -> Loop | None:
    """Multiply and add bf16, with sums in f32, by tiles or by pairs of a vector; None on a machine with neither."""
    if _has(*x86.TILES):
        return tiles()
    return pairs() if _has("avx512f", "avx512bf16") else None


def pairs() -> Loop:
    """Multiply and add bf16 with AVX-512. The data are as for `f32`."""
    sums, x = "<16 x float>", "<32 x bfloat>"
    name = f"{sums} @llvm.x86.avx512bf16.dpbf16ps.512"
    step = f"%b{{i}} = call {name}({sums} %a{{i}}, {x} %x, {x} %x)"
    text = _chained(16, step, f"%x = load {x}, ptr %data, align 2", declared=f"{name}({sums}, {x}, {x})")
    return Loop(_compiled(text), 64 * _CHAINS)


def tiles() -> Loop:
    """Multiply and add bf16 with AMX. The data are the 1024 bytes of a tile. Threads must begin after Linux has granted
    tiles."""
    # palette 1; from byte 16 on the bytes of a line, from byte 48 on the lines
    config = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]
    zeros = "\n  ".join(f"call void @llvm.x86.tilezero(i8 {i})" for i in range(_TILES))
    steps = "\n  ".join(f"call void @llvm.x86.tdpbf16ps(i8 {i}, i8 6, i8 7)" for i in range(_TILES))
    text = f"""
@config = private constant [64 x i8] [{", ".join(f"i8 {byte}" for byte in config)}]
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
declare void @llvm.x86.tilerelease()
define float @loop(ptr %data, i64 %size, i64 %count) {{
entry:
  call void @llvm.x86.ldtilecfg(ptr @config)
  {zeros}
  call void @llvm.x86.tileloadd64(i8 6, ptr %data, i64 64)
  call void @llvm.x86.tileloadd64(i8 7, ptr %data, i64 64)
  br label %loop
loop:
  %t = phi i64 [ 0, %entry ], [ %next, %loop ]
  {steps}
  %next = add i64 %t, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
  call void @llvm.x86.tilerelease()
  ret float 0.0
}}
"""
    return Loop(_compiled(text), 2 * 16 * 16 * 32 * _TILES)


def read() -> Loop:
    """Sum an array of f32 repeatedly. Its bytes are a multiple of an iteration's."""
    lanes = _lanes()
    vector, size = f"<{lanes} x float>", 4 * lanes * _CHAINS
    step = f"""%p{{i}} = getelementptr {vector}, ptr %at, i64 {{i}}
  %x{{i}} = load {vector}, ptr %p{{i}}, align 4
  %b{{i}} = fadd {vector} %a{{i}}, %x{{i}}"""
    turn = f"""%from = phi i64 [ 0, %entry ], [ %rest, %loop ]
  %at = getelementptr i8, ptr %data, i64 %from
  %on = add i64 %from, {size}
  %ends = icmp eq i64 %on, %size
  %rest = select i1 %ends, i64 0, i64 %on"""
    return Loop(_compiled(_chained(lanes, step, turn=turn)), size)


def _chained(lanes: int, step: str, before: str = "", turn: str = "", declared: str = "") -> str:
    """Build a loop with independent sums. `step` computes %b{i} from %a{i}; `before` comes once, `turn` first in each
    iteration."""
    vector = f"<{lanes} x float>"
    every = range(_CHAINS)
    phis = "\n  ".join(f"%a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in every)
    steps = "\n  ".join(step.format(i=i) for i in every)
    sums = "\n  ".join(f"%s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in every)
    return f"""
{f"declare {declared}" if declared else ""}
define float @loop(ptr %data, i64 %size, i64 %count) {{
entry:
  {before}
  br label %loop
loop:
  %t = phi i64 [ 0, %entry ], [ %next, %loop ]
  {phis}
  {turn}
  {steps}
  %next = add i64 %t, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
  %s0 = fadd {vector} zeroinitializer, zeroinitializer
  {sums}
  %r = extractelement {vector} %s{_CHAINS}, i32 0
  ret float %r
}}
"""


def _compiled(text: str) -> Callable[[int, int, int], object]:
    initialize()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        engine.get_function_address("loop")
    )
    function.engine = engine  # type: ignore[attr-defined]  # the code lives as long
    return function


def _lanes() -> int:
    return 16 if _has("avx512f") else 8


def _has(*features: str) -> bool:
    return x86.host_features().issuperset(features)
