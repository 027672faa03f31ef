"""The generator that compiles for a CPU: MLIR modules to an ELF object. A machine's own generator adds its specifics.

Stages: verify, canonicalize and cse (MLIR); translate; parse and verify (LLVM); a lean pass list, because the schedules
vectorise and unroll themselves; code generation. llvmlite's LLVM aborts the process on a malformed module, so both
verifiers always run, and what they find is a CompileError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import llvmlite.binding as llvm

from hlo_disc.device import Device
from hlo_disc.mlir import ir
from hlo_disc.targets.llvm_ir import LOCK, initialize, optimize, parse
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Dump
from hlo_disc.targets.translate.module import canonicalize, translate


@dataclass(frozen=True)
class NativeGenerator:
    """Implements `hlo_disc.targets.target.Generator`, but for what the machine is.

    triple: LLVM's name of machine and system.
    cpu, llvm: LLVM's CPU name and feature string. tune: the CPU to schedule for.
    features: what a machine must have to run the code.
    """

    triple: ClassVar[str]
    cpu: str
    llvm: str
    tune: str
    features: tuple[str, ...]

    @property
    def device(self) -> Device:
        """The schedules' record of the machine."""
        raise NotImplementedError

    @property
    def machine(self) -> Machine:
        """The translator's record of the machine."""
        raise NotImplementedError

    @property
    def layout(self) -> str:
        """LLVM's data layout."""
        return str(_machine(self).target_data)

    @property
    def batch(self) -> int:
        """All kernels are in one module: they share the functions that loops are outlined to."""
        return 0

    @contextmanager
    def begin(self, dump: Dump | None = None) -> Iterator[NativeCompilation]:
        """`dump(stage, text)` receives the IR after each stage: "mlir", "ll", "opt.ll" and "asm"."""
        yield NativeCompilation(self, dump)

    def compile_llvm(self, text: str, dump: Dump | None = None) -> bytes:
        """LLVM IR text to an ELF object. Raises CompileError for IR that does not parse or verify."""
        machine = _machine(self)
        # closed here and in this order: the garbage collector could free a context before its module
        with llvm.create_context() as context, parse(text, context) as parsed, LOCK:
            optimize(parsed, machine)
            if dump:
                dump("opt.ll", str(parsed))
                with parse(str(parsed), context) as copy:
                    dump("asm", machine.emit_assembly(copy))
            return machine.emit_object(parsed)


@dataclass(frozen=True)
class NativeCompilation:
    """Implements `hlo_disc.targets.target.Compilation`; host functions may be in modules of kernels, too."""

    generator: NativeGenerator
    dump: Dump | None
    modules: list[ir.Module] = field(default_factory=list)

    def add(self, module: ir.Module) -> None:
        """To be compiled with all others."""
        self.modules.append(module)

    def finish(self, *host: ir.Module) -> bytes:
        """A position-independent ELF object.

        Raises CompileError for a module that does not verify or uses what cannot be translated.
        """
        modules = [*self.modules, *host]
        canonicalize(modules)
        if self.dump:
            self.dump("mlir", "\n".join(map(str, modules)))
        text = translate(modules, self.generator.machine)
        if self.dump:
            self.dump("ll", text)
        return self.generator.compile_llvm(text, self.dump)


@functools.cache
def _machine(generator: NativeGenerator) -> llvm.TargetMachine:
    initialize()
    target = llvm.Target.from_triple(generator.triple)
    return target.create_target_machine(
        cpu=generator.cpu, features=generator.llvm, opt=2, reloc="pic", codemodel="small"
    )
