"""The target "cuda": kernels as PTX, which the driver assembles for the GPU that it finds; host code for the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.kernel_notes import Note, Roof, of_ptx
from hlo_disc.targets.gpu.vendor import Vendor
from hlo_disc.targets.llvm_ir import emit, optimize


def _code(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    return emit(module, machine, assembly=True)


# The last line of what a module of PTX says of all of it.
_HEAD = b".address_size 64\n"


def _image(codes: Mapping[str, Sequence[bytes]]) -> bytes:
    """One module. What is external may be declared again."""
    (modules,) = codes.values()
    head, *_ = modules[0].partition(_HEAD)
    return b"".join([head, _HEAD, *(ptx.partition(_HEAD)[2] for ptx in modules), b"\0"])


def _notes(object_: bytes) -> dict[str, list[Note]]:
    start = object_.index(b"\n.version ")
    (level,) = re.findall(rb"^\.target (\w+)", object_[start : start + 100], re.M)
    return {level.decode(): of_ptx(object_[start:])}


NVIDIA = Vendor(
    machine=nvptx.MACHINE,
    device=nvptx.DEVICE,
    driver=("cuda", "libcuda.so.1"),
    roofs={"sm_80": Roof("an A100", 2039, 19.5, 312), "sm_90": Roof("an H100", 3350, 67, 989)},
    default=("sm_80",),  # PTX for one is assembled for every newer GPU
    intrinsics="nvvm",
    optimize=optimize,
    code=_code,
    image=_image,
    batch=8,
    notes=_notes,
)
