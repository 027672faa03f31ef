"""Kernels of a few lines of LLVM IR or MLIR, launched in the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import emulated
import numpy as np
from hand_written import kernel_runner

from hlo_disc.targets.cpu import x86
from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.vendor import Vendor
from hlo_disc.targets.translate.module import translate

BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"


@contextmanager
def block_of_memory(size: int = 256) -> Iterator[int]:
    """The address of so many bytes of the GPU's memory."""
    driver, address = emulated.emulator(), ctypes.c_size_t()
    driver.cuCtxPushCurrent_v2(None)
    assert driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(size), None) == 0
    yield address.value
    assert driver.cuMemFreeAsync(address, None) == 0
    emulated.check()
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def launch(body: str, memory: int, number: int = 0, blocks: int = 1, threads: int = 64, shared: int = 64) -> None:
    """Run a kernel of some memory %p, the %tid of a thread, its %block, a %number, and shared memory %own and %fast."""
    text = f"""
target triple = "{nvptx.TRIPLE}"
target datalayout = "{nvptx.LAYOUT}"
@own = internal addrspace(3) global [40 x i8] undef, align 16
@fast = external addrspace(3) global [0 x i8], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)
declare <2 x i32> @llvm.masked.gather.v2i32.v2p0(<2 x ptr>, <2 x i1>, <2 x i32>)
declare void @llvm.masked.scatter.v2i32.v2p0(<2 x i32>, <2 x ptr>, <2 x i1>)
define ptx_kernel void @kernel(i64 %number, ptr addrspace(1) %global) {{
entry:
  %p = addrspacecast ptr addrspace(1) %global to ptr
  %own = addrspacecast ptr addrspace(3) @own to ptr
  %fast = addrspacecast ptr addrspace(3) @fast to ptr
  %tid32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %tid = zext i32 %tid32 to i64
  %block32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext i32 %block32 to i64
{"".join(f"  {line.strip()}{chr(10)}" for line in body.strip().splitlines())}  ret void
}}
"""
    _launch(NVIDIA, text, [number, memory], blocks, threads, shared)


def run(vendor: Vendor, body: str, *buffers: np.ndarray, blocks: int = 1, threads: int = 64, head: str = "") -> None:
    """Run a kernel in MLIR over the buffers %a0, %a1, …, in place.

    It knows the number %t of a thread and %block of its block, as indices. head: stands before the kernel.
    """
    parameters = [f"%a{k}: memref<?x{kernel_runner.mlir_type(x.dtype)}>" for k, x in enumerate(buffers)]
    text = f"""
      gpu.module @kernels {{
        {head}
        gpu.func @kernel({", ".join(parameters)}) kernel attributes {{
            known_block_size = array<i32: {threads}, 1, 1>}} {{
          %t = gpu.thread_id x
          %block = gpu.block_id x
          {body}
          gpu.return
        }}
      }}"""
    made = translate([kernel_runner.parse(text)], vendor.machine)
    with ExitStack() as stack:
        addresses = [stack.enter_context(block_of_memory(x.nbytes)) for x in buffers]
        for address, x in zip(addresses, buffers, strict=True):
            ctypes.memmove(address, x.ctypes.data, x.nbytes)
        _launch(vendor, made, addresses, blocks, threads, 0)
        emulated.check()
        for address, x in zip(addresses, buffers, strict=True):
            ctypes.memmove(x.ctypes.data, address, x.nbytes)


def launch_ptx(ptx: str, name: str, record: bytes, blocks: int, threads: int, shared: int) -> None:
    """Run a kernel of a module of PTX, whose threads may store the same. record: its arguments, as in memory."""
    _run(NVIDIA, emulated.ptx_for_cpu(ptx, alone=False), name, record, blocks, threads, shared)


def _launch(vendor: Vendor, text: str, arguments: list[int], blocks: int, threads: int, shared: int) -> None:
    _run(vendor, emulated.for_cpu(text), "kernel", np.array(arguments, np.int64).tobytes(), blocks, threads, shared)


def _run(vendor: Vendor, text: str, name: str, record: bytes, blocks: int, threads: int, shared: int) -> None:
    library = emulated.Emulated(vendor).link(x86.generator("host").compile_llvm(text), {})
    kernel, data = ctypes.c_void_p(library.address(name)), ctypes.c_char_p(record)
    emulated.emulator().simt_warp(max(team.warp for team in vendor.device.teams))
    emulated.emulator().simt_launch(kernel, *map(ctypes.c_int64, (blocks, threads, shared)), data)
