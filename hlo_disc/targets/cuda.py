"""The target "cuda": kernels as PTX, which the driver assembles for the GPU that it finds; host code for the CPU.

The PTX is in the object code of the host functions, as the image that the runtime hands to the driver. LLVM ends the
process where its NVPTX has no code for a function, so only those may be called that are known to be there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import llvmlite.binding as llvm

from hlo_disc.device import Device
from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.mlir import ir
from hlo_disc.targets import nvptx
from hlo_disc.targets.functions import IMAGE
from hlo_disc.targets.llvm_ir import LOCK, initialize, optimize, parse
from hlo_disc.targets.target import Dump, HostGenerator, Library, Target
from hlo_disc.targets.translate import canonicalize, translate

# PTX for one is assembled for every newer GPU.
_LEVELS = ("sm_80", "sm_90")
# Intrinsics that NVPTX has code for, whatever their types.
_KNOWN = (
    "abs", "bitreverse", "bswap", "ceil", "copysign", "ctlz", "ctpop", "cttz", "exp2", "fabs", "floor", "fma",
    "fmuladd", "fshl", "fshr", "masked.gather", "masked.load", "masked.scatter", "masked.store", "maximum", "maxnum",
    "minimum", "minnum", "nvvm", "rint", "round", "roundeven", "smax", "smin", "sqrt", "trunc", "umax", "umin",
    "vector.reduce",
)  # fmt: skip


@dataclass(frozen=True)
class CudaGenerator:
    """Implements `hlo_disc.targets.target.Generator`."""

    level: str
    host: HostGenerator

    @property
    def features(self) -> tuple[str, ...]:
        return (self.level, *self.host.features)

    @property
    def device(self) -> Device:
        return nvptx.DEVICE

    def compile(self, modules: Sequence[ir.Module], dump: Dump | None = None) -> bytes:
        """Kernels and host functions, each in a module, to an object. Raises CompileError, UnsupportedOpError."""
        kernels, host = modules
        canonicalize(modules)
        text = translate([kernels], nvptx.MACHINE)
        flow = translate([host], replace(self.host.machine, launches=True))
        if dump:
            dump("mlir", f"{kernels}\n{host}")
            dump("gpu.ll", text)
        image = ptx(text, self.level)
        if dump:
            dump("ptx", image)
        data = image.encode() + b"\0"
        escaped = re.sub(rb"[^ !#-\[\]-~]", lambda m: b"\\%02X" % m[0][0], data).decode()
        flow = flow.replace(
            f"@{IMAGE} = external constant i8", f'@{IMAGE} = internal constant [{len(data)} x i8] c"{escaped}"'
        )
        return self.host.compile_llvm(flow, dump)


def ptx(text: str, level: str) -> str:
    """LLVM IR of kernels as PTX. Raises UnsupportedOpError for a function that a GPU lacks, CompileError."""
    for name in re.findall(r"^declare [^@]*@([\w.]+)\(", text, re.M):
        known = name.startswith("llvm.") and any(name[5:].startswith(f"{known}.") for known in _KNOWN)
        if not known:
            raise UnsupportedOpError(f"the function {name} has no code for GPUs yet; compile for the CPU")
    machine = _machine(level)
    with llvm.create_context() as context, parse(text, context) as parsed, LOCK:
        optimize(parsed, machine)
        return machine.emit_assembly(parsed)


@functools.cache
def _machine(level: str) -> llvm.TargetMachine:
    initialize()
    return llvm.Target.from_triple(nvptx.TRIPLE).create_target_machine(cpu=level, opt=3)


class Cuda:
    """Implements `hlo_disc.targets.target.Target`. host: the target of this machine's CPU."""

    driver = "libcuda.so.1"

    def __init__(self, host: Target):
        self._host = host

    def generator(self, features: str) -> CudaGenerator:
        """For "sm_80" or "sm_90"; "host" is the lower, whose code runs on both. Raises ArgumentError."""
        level = _LEVELS[0] if features == "host" else features
        if level not in _LEVELS:
            raise ArgumentError(f"unknown feature level {features!r}; use 'host', {', '.join(map(repr, _LEVELS))}")
        return CudaGenerator(level, cast(HostGenerator, self._host.generator("host")))

    def check(self, features: Sequence[str]) -> None:
        """Raise FormatError when this machine's CPU lacks a feature; what the GPU lacks its driver says."""
        self._host.check([x for x in features if not x.startswith("sm_")])

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Library:
        """Load object code; its kernels stay in it until one is launched."""
        return self._host.link(object_, symbols)
