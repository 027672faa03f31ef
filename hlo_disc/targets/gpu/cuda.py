"""The target "cuda": kernels as PTX, which the driver assembles for the GPU that it finds; host code for the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import llvmlite.binding as llvm

from hlo_disc.targets.gpu import assembler, nvptx
from hlo_disc.targets.gpu.kernel_notes import Note, Roof, of_ptx
from hlo_disc.targets.gpu.vendor import Module, Vendor
from hlo_disc.targets.llvm_ir import emit, optimize
from hlo_disc.targets.target import Driver


def _code(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    return emit(module, machine, assembly=True)


_ENTRY = re.compile(rb"^\.visible \.entry (\w+)\(.*?^\}\n", re.S | re.M)


def _modules(codes: Mapping[str, bytes]) -> list[Module]:
    """Make a module for each kernel, since the driver takes longest to assemble them, and most calls need few."""
    (ptx,) = codes.values()
    rest = _ENTRY.sub(b"", ptx)
    return [Module((entry[1].decode(),), (b"".join([rest, entry[0], b"\0"]),)) for entry in _ENTRY.finditer(ptx)]


def _assemble(module: Module, level: str) -> Module:
    (ptx,) = module.forms
    return replace(module, forms=(assembler.assemble(ptx[:-1], level), ptx))


def _notes(object_: bytes) -> dict[str, list[Note]]:
    notes: dict[str, list[Note]] = {}
    for text in re.findall(rb"\n\.version [^\0]*\0", object_):
        level = re.findall(rb"^\.target (\w+)", text, re.M)[0].decode()
        notes.setdefault(level, []).extend(of_ptx(text))
    return notes


def _is_assembled(object_: bytes) -> bool:
    """Whether it contains an ELF object for CUDA's machine, number 190."""
    return re.search(rb"\x7fELF.{14}\xbe\0", object_, re.S) is not None


NVIDIA = Vendor(
    machine=nvptx.MACHINE,
    device=nvptx.DEVICE,
    driver=Driver("cuda", ("libcuda.so.1",)),
    roofs={"sm_80": Roof("an A100", 2039, 19.5, 312), "sm_90": Roof("an H100", 3350, 67, 989)},
    default=("sm_80",),  # PTX for one is assembled for every newer GPU
    intrinsics="nvvm",
    optimize=optimize,
    code=_code,
    modules=_modules,
    batch=8,
    notes=_notes,
    assemble=_assemble,
    assembler=assembler.version,
    is_assembled=_is_assembled,
)
