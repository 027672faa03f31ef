"""What compiles for x86-64: MLIR modules to an ELF object.

Stages: verify, canonicalize and cse (MLIR); translate; parse and verify (LLVM); a lean pass list, because the schedules
vectorise and unroll themselves; code generation. llvmlite's LLVM aborts the process on a malformed module, so both
verifiers always run, and what they find is a CompileError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import llvmlite.binding as llvm

from hlo_disc.device import Device
from hlo_disc.mlir import ir
from hlo_disc.targets import x86_tiles
from hlo_disc.targets.llvm_ir import LOCK, initialize, optimize, parse
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Dump
from hlo_disc.targets.translate import canonicalize, translate
from hlo_disc.targets.x86_masks import hidden
from hlo_disc.targets.x86_scale import scale

TRIPLE = "x86_64-unknown-linux-gnu"
# The register tiles (rows, vectors) that reach the most FLOPs with so many vector registers.
_TILES = {32: (6, 4), 16: (4, 3)}
# Bytes ahead, by those of a register: where that is a line of the cache BERT's products are 5 % faster so, with few
# rows and with many; with AVX2, where a line would be asked for twice, they are 5 % slower.
_PREFETCH = {64: 2048, 32: 0}


@dataclass(frozen=True)
class X86Generator:
    """Implements `hlo_disc.targets.target.Generator`.

    cpu, llvm: LLVM's CPU name and feature string. tune: the CPU to schedule for. level: "avx2" or "avx512".
    features: what a machine must have to run the code. simd_bytes, registers: the vector registers. tiles: whether
    there are registers of small matrices.
    """

    cpu: str
    llvm: str
    tune: str
    level: str
    features: tuple[str, ...]
    simd_bytes: int
    registers: int
    tiles: bool

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
        return self._has_pair_dot and self.tiles

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


@functools.cache
def _machine(generator: X86Generator) -> llvm.TargetMachine:
    initialize()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=generator.cpu, features=generator.llvm, opt=2, reloc="pic", codemodel="small"
    )


def host_name() -> str:
    """What LLVM calls this machine's CPU."""
    return str(llvm.get_host_cpu_name())
