"""The target "cpu" for x86-64: an MLIR module to an ELF object, and objects linked into the running process.

This module implements `hlo_disc.targets.target.Target`.

Stages: verify, canonicalize and cse (MLIR); translate; parse and verify (LLVM); a lean pass list, because the schedules
vectorise and unroll themselves; code generation. llvmlite's LLVM aborts the process on a malformed module, so both
verifiers always run, and what they find is a CompileError.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import llvmlite.binding as llvm

from hlo_disc import ral
from hlo_disc.device import Device
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.mlir import ir
from hlo_disc.targets import x86_tiles
from hlo_disc.targets.llvm_ir import LOCK, initialize, optimize, parse
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Dump
from hlo_disc.targets.translate import canonicalize, translate
from hlo_disc.targets.x86_masks import hidden
from hlo_disc.targets.x86_scale import scale

driver: tuple[str, ...] = ()
TRIPLE = "x86_64-unknown-linux-gnu"
_BASE = ("sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS = {"avx2": ("x86-64-v3", _BASE), "avx512": ("x86-64-v4", (*_BASE, *_AVX512))}
levels = tuple(_LEVELS)
# used where the machine has them, when compiling for it
_EXTRAS = (
    "amx-bf16", "amx-tile", "avx512bf16", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
    "avx512vpopcntdq",
)  # fmt: skip
# The register tiles (rows, vectors) that reach the most FLOPs with so many vector registers.
_TILES = {32: (6, 4), 16: (4, 3)}
# Bytes ahead, by those of a register: where that is a line of the cache BERT's products are 5 % faster so, with few
# rows and with many; with AVX2, where a line would be asked for twice, they are 5 % slower.
_PREFETCH = {64: 2048, 32: 0}


@dataclass(frozen=True)
class X86Generator:
    """Implements `hlo_disc.targets.target.Generator`.

    cpu, llvm: LLVM's CPU name and feature string. tune: the CPU to schedule for. level: "avx2" or "avx512".
    features: what a machine must have to run the code. simd_bytes, registers: the vector registers.
    """

    cpu: str
    llvm: str
    tune: str
    level: str
    features: tuple[str, ...]
    simd_bytes: int
    registers: int

    @property
    def key(self) -> str:
        """All that LLVM is told of the machine."""
        return f"{self.cpu} {self.llvm} {self.tune}"

    @property
    def device(self) -> Device:
        """The schedules' record of the machine."""
        rows, vectors = _TILES[self.registers]
        return Device(
            self.simd_bytes, self.registers, tile_rows=rows, tile_vectors=vectors,
            pair_dot=self._has_pair_dot, tile_dot=self._has_tiles, prefetch=_PREFETCH[self.simd_bytes],
        )  # fmt: skip

    @functools.cached_property
    def machine(self) -> Machine:
        """The translator's record of the machine."""
        return Machine(
            triple=TRIPLE,
            layout=str(_machine(self).target_data),
            attributes=f'nounwind "tune-cpu"="{self.tune}" "prefer-vector-width"="{self.simd_bytes * 8}"',
            pair_dot="llvm.x86.avx512bf16.dpbf16ps.512" if self._has_pair_dot else "",
            tile=x86_tiles.tile if self._has_tiles else None,
            scale=scale if self.level == "avx512" else None,
            mask=None if self.level == "avx512" else hidden,
        )

    @property
    def _has_pair_dot(self) -> bool:
        return "avx512bf16" in self.features and self.simd_bytes == 64

    @property
    def _has_tiles(self) -> bool:
        return self._has_pair_dot and set(x86_tiles.FEATURES) <= set(self.features)

    @property
    def batch(self) -> int:
        """All kernels are in one module: they share the functions that loops are outlined to."""
        return 0

    @contextmanager
    def begin(self, dump: Dump | None = None) -> Iterator[X86Compilation]:
        """`dump(stage, text)` receives the IR after each stage: "mlir", "ll", "opt.ll" and "asm"."""
        yield X86Compilation(self, dump)

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
class X86Compilation:
    """Implements `hlo_disc.targets.target.Compilation`; host functions may be in modules of kernels, too."""

    generator: X86Generator
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


def host_features() -> tuple[str, ...]:
    """The names of the CPU features that this machine has, sorted."""
    return tuple(sorted(name for name, present in _host_map().items() if present))


@functools.cache
def _host_map() -> dict[str, bool]:
    try:
        found = dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell: then there is nothing to rely on
        return {}
    tiles = all(map(found.get, x86_tiles.FEATURES)) and x86_tiles.granted()
    return found | dict.fromkeys(x86_tiles.FEATURES, tiles)


@functools.cache
def generator(features: str) -> X86Generator:
    """The generator for "host" (what the machine has), "avx2" or "avx512".

    Raises ArgumentError on a machine that lacks AVX2, FMA or another feature that is needed.
    """
    host = set(host_features())
    if features == "host":
        level = "avx512" if host.issuperset(_LEVELS["avx512"][1]) else "avx2"
    else:
        level = features
    cpu, required = _LEVELS[level]
    missing = [feature for feature in required if feature not in host]
    if missing:
        raise ArgumentError(
            f"the feature level {level!r} needs a CPU with {', '.join(required)}; this one lacks {', '.join(missing)}"
        )
    tune = cpu
    if features == "host":
        # only features that are asked for, not all that the CPU's name implies: a saved object then says what it needs
        tune = llvm.get_host_cpu_name()
        required = (*required, *(f for f in _EXTRAS if level == "avx512" and f in host))
    wide = level == "avx512"
    text = ",".join(f"+{f}" for f in required)
    return X86Generator(cpu, text, tune, level, required, 64 if wide else 32, 32 if wide else 16)


def check(features: Sequence[str]) -> None:
    """Raise FormatError when this machine lacks one of the features that an object was compiled for."""
    missing = sorted(set(features) - set(host_features()))
    if missing:
        raise FormatError(f"compiled for a CPU with {', '.join(missing)}, which this machine does not have; recompile")


@functools.cache
def _machine(generator: X86Generator) -> llvm.TargetMachine:
    initialize()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=generator.cpu, features=generator.llvm, opt=2, reloc="pic", codemodel="small"
    )


class X86Library:
    """An object linked into this process; the code lives as long as this does."""

    def __init__(self, code: ral.Code):
        self._code = code
        # at exit nothing is freed, because threads may still be running the code
        weakref.finalize(self, code.close).atexit = False

    def address(self, name: str) -> int:
        """The address of an exported function. Raises KeyError when the object has none of that name."""
        found = self._code.address(name)
        if not found:
            raise KeyError(f"{name}: the object exports no such function")
        return found


def kernels(object_: bytes) -> list[str]:
    """Nothing: no driver loads any."""
    return []


def link(object_: bytes, symbols: Mapping[str, int]) -> X86Library:
    """Load an object, with `symbols` at the given addresses; other functions of this process are found by themselves.

    Raises FormatError for bytes that are no ELF object, and for a function that is nowhere.
    """
    try:
        return X86Library(ral.Code(object_, dict(symbols)))
    except ValueError as error:
        raise FormatError(f"cannot link the machine code: {error}") from None
