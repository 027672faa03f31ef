"""The generator that compiles for a CPU: MLIR modules to an ELF object. A machine's own generator adds its specifics.

Stages: verify, canonicalize and cse (MLIR); translate; parse and verify (LLVM); a lean pass list, because the schedules
vectorise and unroll themselves; code generation. llvmlite's LLVM aborts the process on a malformed module, so both
verifiers always run, and what they find is a CompileError.

Each module of kernels is one of LLVM's, whose stages run in threads while Python builds the next. How kernels are
divided depends on the program alone, so that its code is the same on any machine. A program of a single module of
kernels is compiled together with its host functions: it has nothing to divide.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from llvmlite.binding import TargetMachine, create_context

from hlo_disc.device import Device
from hlo_disc.mlir import ir
from hlo_disc.targets import llvm_ir
from hlo_disc.targets.cpu.objects import joined
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Dump
from hlo_disc.targets.translate.module import canonicalize, check_launched, translate
from hlo_disc.targets.workers import Workers, workers

# Kernels of a module: with fewer, what every module costs shows; with more, processors wait for the last one.
_BATCH = 8


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
        with self._machine() as machine:
            return str(machine.target_data)

    @property
    def batch(self) -> int:
        return _BATCH

    @property
    def linked(self) -> bool:
        """Functions that loops are outlined to are compiled once a program."""
        return True

    @contextmanager
    def begin(self, dump: Dump | None = None, threads: int = 0) -> Iterator[NativeCompilation]:
        """`dump(stage, text)` receives the IR after each stage: "mlir", "ll", "opt.ll" and "asm"."""
        with workers(threads) as made:
            yield NativeCompilation(self, dump, made)

    def compile_llvm(self, text: str, dump: Dump | None = None) -> bytes:
        """LLVM IR text to an ELF object. Raises CompileError for IR that does not parse or verify."""
        # closed here and in this order: the garbage collector could free a context before its module
        with self._machine() as machine, create_context() as context, llvm_ir.parse(text, context) as parsed:
            llvm_ir.optimize(parsed, machine)
            if dump:
                dump("opt.ll", str(parsed))
                with llvm_ir.parse(str(parsed), context) as copy:
                    dump("asm", llvm_ir.emit(copy, machine, assembly=True).decode())
            return llvm_ir.emit(parsed, machine)

    def _machine(self) -> AbstractContextManager[TargetMachine]:
        return llvm_ir.machine(self.triple, self.cpu, self.llvm, "small")


class _Code(NamedTuple):
    """An object, and for dumps the IR of its stages."""

    object: bytes
    stages: dict[str, str]


@dataclass(frozen=True)
class NativeCompilation:
    """Implements `hlo_disc.targets.target.Compilation`; host functions may be in modules of kernels, too.

    modules: all so far, of which the last one waits, for it may be the only one.
    """

    generator: NativeGenerator
    dump: Dump | None
    workers: Workers[_Code]
    modules: list[ir.Module] = field(default_factory=list)

    def add(self, module: ir.Module) -> None:
        """Kernels, whose code is made by threads."""
        if self.modules:
            self._begin(self.modules[-1])
        self.modules.append(module)

    def finish(self, *host: ir.Module) -> bytes:
        """A position-independent ELF object.

        Raises CompileError for a module that does not verify or uses what cannot be translated.
        """
        rest = [*self.modules, *host]
        if len(self.modules) > 1:
            self._begin(self.modules[-1])
            rest = list(host)
        text, stages = self._translated(rest)
        check_launched([*self.modules, *host])
        last = self._code(text, stages)  # before this thread helps others: it is mostly the longest one
        codes = [*self.workers.results(), last]
        if self.dump:
            for stage in stages:
                self.dump(stage, "\n".join(code.stages[stage] for code in codes))
        return joined([code.object for code in codes])

    def _begin(self, module: ir.Module) -> None:
        self.workers.add(functools.partial(self._code, *self._translated([module])))

    def _translated(self, modules: Sequence[ir.Module]) -> tuple[str, dict[str, str]]:
        canonicalize(modules)
        shown = {"mlir": "\n".join(map(str, modules))} if self.dump else {}
        text = translate(modules, self.generator.machine)
        return text, {**shown, "ll": text}

    def _code(self, text: str, stages: dict[str, str]) -> _Code:
        return _Code(self.generator.compile_llvm(text, stages.__setitem__ if self.dump else None), stages)
