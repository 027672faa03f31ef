"""The target "cuda": kernels as PTX, which the driver assembles for the GPU that it finds; host code for the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import llvmlite.binding as llvm

from hlo_disc.targets import nvptx
from hlo_disc.targets.gpu import Vendor
from hlo_disc.targets.llvm_ir import optimize


def _code(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    return machine.emit_assembly(module).encode()


def _image(codes: Mapping[str, bytes]) -> bytes:
    (ptx,) = codes.values()
    return ptx + b"\0"


NVIDIA = Vendor(
    machine=nvptx.MACHINE,
    device=nvptx.DEVICE,
    driver=("cuda", "libcuda.so.1"),
    levels=("sm_80", "sm_90"),
    default=("sm_80",),  # PTX for one is assembled for every newer GPU
    intrinsics="nvvm",
    optimize=optimize,
    code=_code,
    image=_image,
)
