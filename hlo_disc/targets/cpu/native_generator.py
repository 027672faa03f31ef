"""The generator that compiles for a CPU: MLIR modules to an ELF object. A machine's own generator adds its specifics.

Stages: verify, canonicalize and cse (MLIR); translate; parse and verify (LLVM); a lean pass list, because the schedules
vectorise and unroll themselves; code generation, which is quick for host functions. llvmlite's LLVM aborts the process
on a malformed module, so both verifiers always run, and what they find is a CompileError.

Each kernel and each device function is a module that says nothing of its program, so a store can keep its code for
other programs. Modules are compiled in batches by threads while Python builds the next ones. In a batch each module has
a section, by which its code is taken out for the store. Symbols get the program's names when objects are joined.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from types import MappingProxyType
from typing import ClassVar, NamedTuple, cast

from llvmlite.binding import TargetMachine, create_context

from hlo_disc.device import Device
from hlo_disc.frozen import frozen
from hlo_disc.mlir import ir
from hlo_disc.targets import llvm_ir
from hlo_disc.targets.cpu.objects import Part, joined, kernels_of, picked
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Dump, Store
from hlo_disc.targets.translate.module import Unit, canonicalize, check_launched, section_name, translate
from hlo_disc.targets.workers import Workers, workers

# How many kernels are compiled together. With fewer, the fixed cost of an LLVM module shows; with more, processors wait
# for the last batch.
_BATCH = 12
# LLVM's level of code generation. Host code runs once a call and does little: at the lowest level it takes a third of
# the time. Host functions that run often get the passes before it.
_KERNELS, _HOST = 2, 0
# How many digits of a kernel's key are in its symbols until the objects are joined.
_DIGITS = 16


@frozen
class NativeGenerator:
    """The part of `hlo_disc.targets.target.Generator` that all CPUs share.

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
        with self._machine(_KERNELS) as machine:
            return str(machine.target_data)

    @functools.cached_property
    def digest(self) -> bytes:
        """A digest of the machine that code is made for."""
        return hashlib.sha256(repr(self).encode()).digest()

    @property
    def batch(self) -> int:
        return 1

    @property
    def linked(self) -> bool:
        """Return true: functions that loops are outlined to are compiled once."""
        return True

    @contextmanager
    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> Iterator[NativeCompilation]:
        """`dump(stage, text)` receives the IR after each stage: "mlir", "ll", "opt.ll" and "asm"."""
        with workers(threads) as made:
            yield NativeCompilation(self, dump, made, store)

    def compile_llvm(self, text: str, dump: Dump | None = None) -> bytes:
        """Compile LLVM IR of kernels to an ELF object. Raises CompileError for IR that does not parse or verify."""
        return self._compiled(text, _KERNELS, dump)

    def compile_host(self, text: str, dump: Dump | None = None) -> bytes:
        """Compile LLVM IR text of host functions to an ELF object. Raises what `compile_llvm` raises."""
        return self._compiled(text, _HOST, dump)

    def _compiled(self, text: str, level: int, dump: Dump | None) -> bytes:
        # closed here and in this order: the garbage collector could free a context before its module
        with self._machine(level) as machine, create_context() as context, llvm_ir.parse(text, context) as parsed:
            llvm_ir.optimize(parsed, machine)
            if dump:
                dump("opt.ll", str(parsed))
                with llvm_ir.parse(str(parsed), context) as copy:
                    dump("asm", llvm_ir.emit(copy, machine, assembly=True).decode())
            return llvm_ir.emit(parsed, machine)

    def _machine(self, level: int) -> AbstractContextManager[TargetMachine]:
        return llvm_ir.machine(self.triple, self.cpu, self.llvm, "small", level)


class _Code(NamedTuple):
    """An object, and for dumps the IR of its stages."""

    object: bytes
    stages: dict[str, str]


@frozen
class _Module:
    """A module of the program. key, record: see `LinkedCompilation.add`."""

    module: ir.Module
    unit: Unit
    key: bytes
    record: bytes

    @property
    def renamed(self) -> dict[str, str]:
        return {self.unit.symbols: self.unit.linked}


@frozen
class NativeCompilation:
    """Implements `hlo_disc.targets.target.LinkedCompilation`; host functions may be in modules of kernels, too.

    modules: all so far. parts: the object code, once it is there. reused: code that the program has. found: code from
    the store. types: of kernels among it. waiting: modules of the next batch. batches: those that the workers have, in
    the order of their results.
    """

    generator: NativeGenerator
    dump: Dump | None
    workers: Workers[_Code]
    store: Store | None
    modules: list[_Module] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    reused: list[Part] = field(default_factory=list)
    found: list[Part] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    waiting: list[_Module] = field(default_factory=list)
    batches: list[list[_Module]] = field(default_factory=list)

    def add(self, module: ir.Module, prefix: str = "", key: bytes = b"", record: bytes = b"") -> None:
        """Add kernels. Threads compile them, a batch at a time."""
        added = _Module(module, Unit(key.hex()[:_DIGITS] or str(len(self.modules)), prefix), key, record)
        self.modules.append(added)
        if len(self.waiting) == _BATCH or any(added.unit.section == x.unit.section for x in self.waiting):
            self._begin()
        self.waiting.append(added)

    def take(self, key: bytes, code: bytes, prefix: str = "", types: Mapping[str, str] = MappingProxyType({})) -> None:
        """Add code from the store, which is linked unchanged."""
        unit = Unit(key.hex()[:_DIGITS], prefix)
        self.found.append(Part(code, {unit.symbols: unit.linked}))
        self.types.update({prefix + name: type_ for name, type_ in types.items()})

    def reuse(self, parts: Sequence[object]) -> None:
        """Take code that the program has already."""
        self.reused.extend(map(Part, kernels_of(cast(Sequence[bytes], parts))))

    def finish(self, *host: ir.Module) -> bytes:
        """Return a position-independent ELF object.

        Raises CompileError for a module that does not verify or uses what cannot be translated.
        """
        if not self.reused:
            prefixes = [x.unit.prefix for x in self.modules]
            check_launched([*(x.module for x in self.modules), *host], prefixes, self.types)
        if self.waiting:
            self._begin()
        made = self._host(host) if host else []  # before this thread helps others
        codes = [*self.workers.results(), *made]
        if self.dump:
            for stage in codes[0].stages if codes else ():
                self.dump(stage, "\n".join(code.stages[stage] for code in codes))
        renamed = [{before: after for x in batch for before, after in x.renamed.items()} for batch in self.batches]
        parts = [Part(code.object, names) for code, names in zip(codes, [*renamed, *({} for _ in made)], strict=True)]
        self.parts.append(joined([*self.reused, *self.found, *parts]))
        return self.parts[-1]

    def _begin(self) -> None:
        """Let threads compile the waiting modules."""
        batch = list(self.waiting)
        self.waiting.clear()
        self.batches.append(batch)
        text, stages = self._translated([x.module for x in batch], [x.unit for x in batch])
        self.workers.add(functools.partial(self._code, batch, text, stages))

    def _host(self, modules: Sequence[ir.Module]) -> list[_Code]:
        """The code of host functions."""
        text, stages = self._translated(modules)
        return [_Code(self.generator.compile_host(text, stages.__setitem__ if self.dump else None), stages)]

    def _translated(self, modules: Sequence[ir.Module], units: Sequence[Unit] = ()) -> tuple[str, dict[str, str]]:
        canonicalize(modules)
        shown = {"mlir": "\n".join(map(str, modules))} if self.dump else {}
        text = translate(modules, self.generator.machine, units)
        return text, {**shown, "ll": text}

    def _code(self, batch: Sequence[_Module], text: str, stages: dict[str, str]) -> _Code:
        code = self.generator.compile_llvm(text, stages.__setitem__ if self.dump else None)
        if self.store:
            keyed = {section_name(x.unit.section): x for x in batch if x.key}
            for section, kept in picked(code, list(keyed)).items():
                self.store.keep(keyed[section].key, keyed[section].record + kept)
        return _Code(code, stages)
