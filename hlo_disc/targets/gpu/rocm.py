"""The target "rocm": kernels as code objects, of which the driver takes that of its GPU; host code for the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import llvmlite.binding as llvm

from hlo_disc.targets.gpu import amdgpu
from hlo_disc.targets.gpu.code_object import bundle, code_object, unbundled
from hlo_disc.targets.gpu.kernel_notes import Note, Roof, of_code_object
from hlo_disc.targets.gpu.vendor import Module, Vendor
from hlo_disc.targets.llvm_ir import emit, optimize_whole
from hlo_disc.targets.target import Driver


def _code(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    return code_object(emit(module, machine))


def _modules(codes: Mapping[str, bytes]) -> list[Module]:
    names = tuple(note.name for note in of_code_object(next(iter(codes.values()))))
    return [Module(names, (bundle(codes),))]


def _notes(object_: bytes) -> dict[str, list[Note]]:
    notes: dict[str, list[Note]] = {}
    for level, code in unbundled(object_):
        notes.setdefault(level, []).extend(of_code_object(code))
    return notes


_ROOFS = {"gfx90a": Roof("an MI250X", 3277, 47.9, 383), "gfx942": Roof("an MI300X", 5300, 163.4, 1307)}

AMD = Vendor(
    machine=amdgpu.MACHINE,
    device=amdgpu.DEVICE,
    driver=Driver("hip", ("libamdhip64.so", *(f"libamdhip64.so.{version}" for version in (7, 6, 5)))),
    roofs=_ROOFS,
    default=tuple(_ROOFS),  # code for one runs on no other
    intrinsics="amdgcn",
    optimize=optimize_whole,
    code=_code,
    modules=_modules,
    batch=8,
    notes=_notes,
)
