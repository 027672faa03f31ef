"""The targets whose kernels a GPU's driver launches: the code that all vendors share.

The object code of the host functions contains the kernels that the driver loads. LLVM ends the process if it has no
code for a function of a GPU. So kernels may call only functions that are known to exist there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import cast

import llvmlite.binding as llvm

from hlo_disc.abi import MODULES
from hlo_disc.device import Device
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.mlir import ir
from hlo_disc.targets import llvm_ir
from hlo_disc.targets.gpu import kernel_notes
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.target import Driver, Dump, HostGenerator, Library, Store, Target
from hlo_disc.targets.translate.module import canonicalize, translate
from hlo_disc.targets.workers import Workers, workers

# Intrinsics that LLVM has code for on all GPUs, whatever their types.
_KNOWN = (
    "abs", "bitreverse", "bswap", "ceil", "copysign", "ctlz", "ctpop", "cttz", "exp2", "fabs", "floor", "fma",
    "fmuladd", "fshl", "fshr", "masked.gather", "masked.load", "masked.scatter", "masked.store", "maximum", "maxnum",
    "minimum", "minnum", "rint", "round", "roundeven", "smax", "smin", "sqrt", "trunc", "umax", "umin",
    "vector.reduce",
)  # fmt: skip


@frozen
class Module:
    """The kernels that a driver loads at once, by their names.

    forms: their code, of which the driver loads the first that it takes.
    """

    kernels: tuple[str, ...]
    forms: tuple[bytes, ...]


@frozen
class Vendor:
    """The properties that GPUs of a vendor have of their own.

    machine, device: how the translator and schedules see them.
    roofs: of a GPU of each level that code can be made for; default: those that it is made for where nothing is said.
    intrinsics: the prefix of the machine's own.
    optimize: f(module, machine) runs LLVM's passes. code: f(module, machine) is the code of a module for one level.
    modules: f(code of a module by level) are those that the driver loads. batch: see `Generator.batch`.
    assemble: f(module, level) has machine code for the level, too; None for a module that has it already.
    assembler: f() says which assembler that is; "" where there is none.
    notes: f(object code) says of its kernels, by level. is_assembled: f(object code) says whether there is machine code
        beside other code.
    """

    machine: Machine
    device: Device
    driver: Driver
    roofs: Mapping[str, kernel_notes.Roof]
    default: tuple[str, ...]
    intrinsics: str
    optimize: Callable[[llvm.ModuleRef, llvm.TargetMachine], None]
    code: Callable[[llvm.ModuleRef, llvm.TargetMachine], bytes]
    modules: Callable[[Mapping[str, bytes]], list[Module]]
    batch: int
    notes: Callable[[bytes], Mapping[str, Sequence[kernel_notes.Note]]]
    assemble: Callable[[Module, str], Module] | None = None
    assembler: Callable[[], str] = str
    is_assembled: Callable[[bytes], bool] = lambda object_: False

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of features for which there can be code."""
        return tuple(self.roofs)


@frozen
class GpuGenerator:
    """Implements `hlo_disc.targets.target.Generator`. assembles: see `Gpu.generator`."""

    vendor: Vendor
    levels: tuple[str, ...]
    host: HostGenerator
    assembles: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.levels, *self.host.features)

    @property
    def device(self) -> Device:
        return self.vendor.device

    @property
    def batch(self) -> int:
        return self.vendor.batch

    @property
    def linked(self) -> bool:
        return False

    @contextmanager
    def begin(self, dump: Dump | None = None, threads: int = 0, store: Store | None = None) -> Iterator[GpuCompilation]:
        """Begin a compilation. Threads compile kernels while others are built, which takes as long."""
        with workers(threads) as made, workers(threads) as assembled:
            yield GpuCompilation(self, dump, made, assembled)


@frozen
class GpuCompilation:
    """Implements `hlo_disc.targets.target.Compilation`.

    workers: make the code of each module for each level. assemblers: see `Vendor.assemble`. parts: the modules that the
    driver loads. listing: what dumps are made of, by their suffix.
    """

    generator: GpuGenerator
    dump: Dump | None
    workers: Workers[tuple[bytes, dict[str, str]]]
    assemblers: Workers[Module]
    parts: list[Module] = field(default_factory=list)
    listing: dict[str, list[str]] = field(default_factory=dict)

    def add(self, module: ir.Module) -> None:
        """Add kernels, which threads compile."""
        g = self.generator
        canonicalize([module])
        text = translate([module], g.vendor.machine)
        if self.dump:
            self._list("mlir", str(module))
            self._list("gpu.ll", text)
        check_functions(text, g.vendor)
        for level in g.levels:
            self.workers.add(functools.partial(self._machine_code, text, level))

    def _machine_code(self, text: str, level: str) -> tuple[bytes, dict[str, str]]:
        listed: dict[str, str] = {}
        return machine_code(self.generator.vendor, text, level, listed.__setitem__ if self.dump else None), listed

    def reuse(self, parts: Sequence[object]) -> None:
        """Take modules that are made already."""
        self.parts.extend(cast(Sequence[Module], parts))

    def finish(self, *host: ir.Module) -> bytes:
        """Return the object of the host functions, with the data that the driver loads."""
        g = self.generator
        canonicalize(host)
        flow = translate(host, replace(g.host.machine, launches=True))
        made = self.workers.results()
        if self.dump:
            self._list("mlir", "\n".join(map(str, host)))
            self._list("ll", flow)
            for _, listed in made:
                for suffix, text in listed.items():
                    self._list(suffix, text)
            for suffix, texts in self.listing.items():
                self.dump(suffix, "\n".join(texts))
        codes, count = [code for code, _ in made], len(g.levels)
        by_level = [dict(zip(g.levels, codes[k : k + count], strict=True)) for k in range(0, len(codes), count)]
        modules = [module for code in by_level for module in g.vendor.modules(code)]
        if g.vendor.assemble and g.assembles:
            for module in modules:
                self.assemblers.add(functools.partial(g.vendor.assemble, module, *g.levels))
            modules = self.assemblers.results()
        self.parts.extend(modules)
        flow = flow.replace(f"@{MODULES} = external constant i8\n", "")
        return g.host.compile_host("\n".join([flow, *loadable(self.parts)]), self.dump)

    def _list(self, suffix: str, text: str) -> None:
        self.listing.setdefault(suffix, []).append(text)


def loadable(modules: Sequence[Module]) -> Iterator[str]:
    """Return LLVM IR of modules and of their directory."""
    for k, module in enumerate(modules):
        for i, form in enumerate(module.forms):
            # At a page, as drivers find what their own compilers make.
            yield f"{_bytes(f'{MODULES}.{k}.{i}', form)}, align 4096"
    yield from directory(
        [(x.kernels, [f"{MODULES}.{k}.{i}" for i in range(len(x.forms))]) for k, x in enumerate(modules)]
    )


def directory(modules: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Iterator[str]:
    """Return LLVM IR of the table by which the runtime finds a program's kernels, see `ral_module` in `ral.h`: their
    names, and the names of the modules that are loaded for them."""
    rows = []
    for k, (kernels, forms) in enumerate(modules):
        names, listed = f"{MODULES}.{k}.kernels", f"{MODULES}.{k}.forms"
        yield _bytes(names, "\0".join([*kernels, "", ""]).encode())
        pointers = [*(f"ptr @{form}" for form in forms), "ptr null"]
        yield f"@{listed} = private constant [{len(pointers)} x ptr] [{', '.join(pointers)}]"
        rows.append(f"{_ROW} {{ ptr @{names}, ptr @{listed} }}")
    yield f"@{MODULES} = constant [{len(rows) + 1} x {_ROW}] [{', '.join([*rows, f'{_ROW} zeroinitializer'])}]\n"


_ROW = "{ ptr, ptr }"


def _bytes(name: str, data: bytes) -> str:
    escaped = re.sub(rb"[^\n\t !#-\[\]-~]", lambda m: b"\\%02X" % m[0][0], data).decode()
    return f'@{name} = private constant [{len(data)} x i8] c"{escaped}"'


def check_functions(text: str, vendor: Vendor) -> None:
    """Raise UnsupportedOpError for a function that LLVM IR of kernels calls and that a GPU lacks."""
    known = (*_KNOWN, vendor.intrinsics)
    for name in re.findall(r"^declare [^@]*@([\w.]+)\(", text, re.M):
        if not (name.startswith("llvm.") and any(name[5:].startswith(f"{prefix}.") for prefix in known)):
            raise UnsupportedOpError(f"the function {name} has no code for GPUs yet; compile for the CPU")


def machine_code(vendor: Vendor, text: str, level: str, dump: Dump | None = None) -> bytes:
    """Compile checked LLVM IR of kernels for one level. Raises CompileError."""
    _initialize()
    with llvm_ir.machine(vendor.machine.triple, level) as machine, llvm.create_context() as context:
        with llvm_ir.parse(text, context) as parsed:
            vendor.optimize(parsed, machine)
            if dump:
                with parsed.clone() as copy:  # making assembly changes a module
                    dump(f"{level}.s", llvm_ir.emit(copy, machine, assembly=True).decode())
            return vendor.code(parsed, machine)


@functools.cache
def _initialize() -> None:
    llvm_ir.initialize()
    # straight line strength reduction has nothing to gain, and takes an eighth of code generation; without what looks
    # for redundant scalars across blocks, another fifth, some kernels need more registers than there are. For a CPU it
    # does not run, and from now on each run of passes keeps 54 KiB, names of all passes, which llvmlite never frees
    llvm_ir.set_option("-opt-disable=slsr")


class Gpu:
    """Implements `hlo_disc.targets.target.Target`. host: the target of this machine's CPU."""

    def __init__(self, vendor: Vendor, host: Target):
        self._vendor = vendor
        self._host = host

    @property
    def driver(self) -> Driver:
        return self._vendor.driver

    @property
    def levels(self) -> tuple[str, ...]:
        return self._vendor.levels

    def generator(self, level: str) -> GpuGenerator:
        """Return the generator for one of the vendor's levels, or for "host", which means all of these levels.

        Host code does no more than launch: it is for all CPUs, since the GPU is often another machine's. For a level
        that was named there is machine code beside what the driver would assemble, where the vendor's assembler is.
        """
        host = cast(HostGenerator, self._host.generator(self._host.levels[0]))
        return GpuGenerator(self._vendor, self._levels(level), host, bool(self._assembler(level)))

    def made_for(self, level: str) -> str:
        """Return the vendor's levels, its assembler, and the least CPU."""
        return f"{self._levels(level)} {self._assembler(level)} {self._host.made_for(self._host.levels[0])}"

    def _assembler(self, level: str) -> str:
        return "" if level == "host" else self._vendor.assembler()

    def _levels(self, level: str) -> tuple[str, ...]:
        return self._vendor.default if level == "host" else (level,)

    def check(self, features: Sequence[str]) -> None:
        """Raise FormatError if this machine's CPU lacks a feature; the driver itself reports what the GPU lacks."""
        self._host.check([x for x in features if x not in self._vendor.levels])

    def kernels(self, object_: bytes) -> list[str]:
        """Return what the code says of the kernels."""
        lines = list(kernel_notes.lines(self._vendor.notes(object_), self._vendor.roofs))
        return (
            [*lines, "machine code beside what the driver assembles"] if self._vendor.is_assembled(object_) else lines
        )

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Library:
        """Load object code; its kernels stay in it until one is launched."""
        return self._host.link(object_, symbols)
