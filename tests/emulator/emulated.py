"""Targets whose kernels are those of a GPU, and run on the CPU, thread by thread: see `simt.cc`.

The code is the GPU module's own LLVM IR. What it cannot say to a CPU is replaced: address spaces go, intrinsics become
functions of the emulator, shared memory is asked for, and a kernel takes the record that a launch packs.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import instrument
import llvmlite.binding as llvm
import ptx

from hlo_disc.device import EXCHANGE_BYTES, Device
from hlo_disc.mlir import ir
from hlo_disc.targets import registry
from hlo_disc.targets.cpu import native, x86, x86_generator
from hlo_disc.targets.gpu import vendor as gpu
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.rocm import AMD
from hlo_disc.targets.gpu.vendor import Vendor
from hlo_disc.targets.target import Driver, Dump, Store
from hlo_disc.targets.translate.module import canonicalize, translate

_HERE = Path(__file__).parent
_PRODUCTS = _HERE / "driver" / "products.cc"
_COMPILE = ("c++", "-std=c++17", "-O2", "-Wall", "-I", _HERE)
_unseen = itertools.count()
_BUILD = _HERE.parents[1] / "build" / "emulator"


class SimtError(AssertionError):
    """A kernel did what no GPU defines."""


@functools.cache
def _built() -> str:
    """The driver with the emulator, which is built when a source has changed."""
    sources = sorted(path for path in _HERE.glob("*/*.cc") if path != _PRODUCTS)
    texts = b"".join(path.read_bytes() for path in [*sources, *sorted(_HERE.glob("*/*.h"))])
    built = _BUILD / f"libsimt-{hashlib.sha256(texts).hexdigest()[:16]}.so"
    if not built.exists():
        _BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=_BUILD, suffix=".so", delete=False) as made:
            command = [*_COMPILE, "-shared", "-fPIC", *sources, "-o", made.name]
        subprocess.run(command, check=True)
        os.replace(made.name, built)  # other processes may be about the same
    return str(built)


@functools.cache
def products(api: str) -> ctypes.CDLL:
    """Load the stand-in for the vendor's library of products into the process, and return it."""
    with tempfile.TemporaryDirectory() as directory:
        return ctypes.CDLL(str(build_products(api, Path(directory))))


def build_products(api: str, directory: Path) -> Path:
    """Build the stand-in under the name that the vendor's library has; return its path."""
    soname, macro = {"cuda": ("libcublasLt.so.13", "-DCUDA"), "hip": ("libhipblaslt.so.1", "-DHIP")}[api]
    command = [*_COMPILE, macro, "-shared", "-fPIC", f"-Wl,-soname,{soname}"]
    subprocess.run([*command, _PRODUCTS, _built(), "-o", directory / soname], check=True)
    return directory / soname


@functools.cache
def emulator() -> ctypes.CDLL:
    """The emulator's and the driver's functions."""
    library = ctypes.CDLL(_built())
    library.fake_failure.restype = ctypes.c_char_p
    library.fake_context.restype = ctypes.c_void_p
    return library


@contextmanager
def hostile(seed: int, strict: bool = False) -> Iterator[ctypes.CDLL]:
    """Let the driver do what streams have as late as it may, and hand memory out again as soon as it may.

    seed: of the order in which streams take turns; if 3 divides it they do so only when somebody waits. strict: a copy
    reads memory of the host when it is done, also where that is not pinned.
    """
    driver = emulator()
    driver.fake_hostile(ctypes.c_uint64(seed), strict)
    try:
        yield driver
    finally:
        driver.fake_kind()


def alive() -> dict[str, int]:
    """Count what the driver made and still has: blocks of memory, modules, events and streams."""
    counts = (ctypes.c_size_t * 4)()
    emulator().fake_alive(counts)
    return dict(zip(("blocks", "modules", "events", "streams"), counts, strict=True))


def check() -> None:
    """Raise SimtError for what went wrong in launches of this thread; with a hostile driver, of any thread."""
    if failure := emulator().fake_failure().decode():
        raise SimtError(failure)


def _addresses() -> dict[str, int]:
    names = ["simt_shared", "simt_access", "simt_planted", "simt_no_barrier", *_intrinsics()]
    return {name: ctypes.cast(getattr(emulator(), name), ctypes.c_void_p).value or 0 for name in names}


@functools.cache
def _intrinsics() -> tuple[str, ...]:
    text = (_HERE / "simt" / "simt.cc").read_text()
    shuffles = (f"llvm_nvvm_shfl_sync_{mode}_i32" for mode in re.findall(r"^SHUFFLE\((\w+)", text, re.M))
    products = (f"llvm_nvvm_mma_{name}" for name in re.findall(r"^MMA\((\w+)", text, re.M))
    return (*re.findall(r"\b(llvm_\w+)\(", text.replace("##", "#")), *shuffles, *products)


def for_cpu(text: str, most: int = 1 << 17) -> str:
    """Return LLVM IR of a GPU's kernels as functions of their records, to be linked with the emulator.

    `directory` makes the table of all such kernels.

    most: bytes of shared memory that a block may have.
    """
    shared: dict[str, tuple[int, int]] = {}
    end = 16  # fast memory is at no larger multiple
    for name, size in re.findall(r"^@(\w+) = internal addrspace\(3\) global \[(\d+) x i8\]", text, re.M):
        shared[name] = end, int(size)
        end += -(-int(size) // 16) * 16
    shared["fast"] = end, -1
    named = _named(text, {name: size for name, (_, size) in shared.items()})
    text = re.sub(r"^(target (triple|datalayout)|@\w+ = (internal|external) addrspace\(3\)) .*\n", "", text, flags=re.M)
    for name, (at, size) in shared.items():
        place = f"call ptr @simt_shared(i64 {at}, i64 {size})"
        text = text.replace(f"addrspacecast ptr addrspace(3) @{name} to ptr", place)
    text = re.sub(r"addrspacecast ptr addrspace\(1\) (%\w+) to ptr", r"getelementptr i8, ptr \1, i64 0", text)
    text = re.sub(r"addrspacecast ptr (%\w+) to ptr addrspace\(3\)", r"getelementptr i8, ptr \1, i64 0", text)
    text = re.sub(r" addrspace\(\d\)", "", text)
    text = instrument.instrumented(text)
    known = set(_intrinsics())

    def renamed(match: re.Match) -> str:
        name = match[0][1:].replace(".", "_")
        assert name in known, f"the emulator does not know {match[0]}"
        return "@" + name

    text = re.sub(r"@llvm\.(nvvm|amdgcn)\.[\w.]+", renamed, text)
    text = re.sub(r"^  (%\w+) = call ([{<].*[}>]) (@llvm_\w+)\((.*)\)$", _by_memory, text, flags=re.M)
    text = re.sub(r"^declare [{<].*[}>] (@llvm_\w+)\(.*$", r"declare ptr \1(...)", text, flags=re.M)
    text = re.sub(r"^declare [^\n]*@llvm_\w+\([^\n]*\)", r"\g<0> convergent nomerge nounwind", text, flags=re.M)
    text = re.sub(r' "(nvvm|amdgpu|uniform)[\w.-]*"(="[\w,]+")?', "", text)
    entries, kernels = [], []

    def body(match: re.Match) -> str:
        kernels.append(match[1])
        name, types = match[1], [p.split()[0] for p in match[2].split(", ")]
        record = "{ " + ", ".join(types) + " }"
        lines = [f"define void @{name}(ptr %record) {{"]
        for k, type_ in enumerate(types):
            lines.append(f"  %p{k} = getelementptr inbounds {record}, ptr %record, i32 0, i32 {k}")
            lines.append(f"  %a{k} = load {type_}, ptr %p{k}")
        lines.append(
            f"  call void @{name}.body({', '.join(f'{t} %a{k}' for k, t in enumerate(types))})\n  ret void\n}}"
        )
        entries.append("\n".join(lines))
        return f"define internal void @{name}.body({match[2]}) noinline"

    text = re.sub(r"^define (?:ptx|amdgpu)_kernel void @([\w.]+)\((.*)\)", body, text, flags=re.M)
    entries += _modules(kernels, named, most)
    return "\n".join([*_head(), instrument.DECLARATIONS, text, *entries, ""])


def ptx_for_cpu(code: str, most: int = 1 << 17, alone: bool = True) -> str:
    """Return such LLVM IR for PTX. alone: see `ptx.for_cpu`."""
    text, named = ptx.for_cpu(code, alone)
    return "\n".join([*_head(), instrument.DECLARATIONS, text, *_modules(list(named), named, most), ""])


def _head() -> list[str]:
    return [f'target triple = "{x86_generator.TRIPLE}"', f'target datalayout = "{_host().machine.layout}"']


def _by_memory(call: re.Match) -> str:
    """Return a call of a function of the emulator that leaves its result in memory, and takes no vectors."""
    name, result, function, arguments = call.groups()
    lines, passed = [], []
    for k, argument in enumerate(re.findall(r"(?:<.*?>|\w+(?: addrspace\(\d\))?) [^,]+", arguments)):
        vector = re.fullmatch(r"<(\d) x (\w+)> (.*)", argument)
        if not vector:
            passed.append(argument)
        elif vector[2] in ("half", "i16"):  # in a register of whole words
            word = f"i{16 * int(vector[1])}"
            lines.append(f"  {name}.word{k} = bitcast {argument} to {word}")
            passed.append(f"{word} {name}.word{k}")
        else:
            for i in range(int(vector[1])):
                lines.append(f"  {name}.part{k}.{i} = extractelement {argument}, i32 {i}")
                passed.append(f"{vector[2]} {name}.part{k}.{i}")
    lines.append(f"  {name}.at = call ptr {function}({', '.join(passed)})")
    return "\n".join([*lines, f"  {name} = load {result}, ptr {name}.at, align 4"])


def _named(text: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of shared memory that each kernel has under names."""
    kernels = re.findall(r"^define (?:ptx|amdgpu)_kernel void @([\w.]+)(.*?)^}", text, re.M | re.S)
    return {kernel: sum(max(sizes[x], 0) for x in sizes if f"@{x} " in body) for kernel, body in kernels}


def _modules(kernels: Sequence[str], named: Mapping[str, int], most: int) -> Iterator[str]:
    """Return LLVM IR of the driver's modules, one for each kernel: see `driver.cc`."""
    for name in kernels:
        entry = [f"ptr @{name}.text", f"ptr @{name}", f"i64 {named[name]}", f"i64 {most}"]
        fields = [f"i64 {0x746D69735F636C68}", *entry, "ptr null"]
        types = ", ".join(field.split()[0] for field in fields)
        yield f'@{name}.text = private constant [{len(name) + 1} x i8] c"{name}\\00"'
        yield f"@{name}.module = hidden constant {{ {types} }} {{ {', '.join(fields)} }}"


def directory(parts: Sequence[str]) -> str:
    """Return LLVM IR of the table of all modules, each behind one that the driver does not take."""
    kernels = [name for part in parts for name in re.findall(r"^@([\w.]+)\.module = ", part, re.M)]
    return "\n".join(
        [
            *_head(),
            "@of_another_gpu = private constant i64 0",
            *(f"@{name}.module = external hidden constant i8" for name in kernels),
            *gpu.directory([([name], ["of_another_gpu", f"{name}.module"]) for name in kernels]),
        ]
    )


def _host() -> x86_generator.X86Generator:
    return x86.generator("host")


@dataclass(frozen=True)
class EmulatedGenerator:
    """Implements `hlo_disc.targets.target.Generator`. most: bytes of shared memory that the driver gives to a block."""

    vendor: Vendor
    most: int
    features: tuple[str, ...] = ()

    @property
    def device(self) -> Device:
        return self.vendor.device

    @property
    def batch(self) -> int:
        return 0

    @property
    def linked(self) -> bool:
        return False

    @contextmanager
    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> Iterator[EmulatedCompilation]:
        yield EmulatedCompilation(self, dump)


@dataclass
class EmulatedCompilation:
    """Implements `hlo_disc.targets.target.Compilation`. parts: LLVM IR of the kernels, for this machine."""

    generator: EmulatedGenerator
    dump: Dump | None
    parts: list[str] = field(default_factory=list)

    def add(self, module: ir.Module) -> None:
        canonicalize([module])
        text = translate([module], self.generator.vendor.machine)
        if self.dump:
            self.dump("gpu.ll", text)
        with llvm.create_context() as context:
            with llvm.parse_assembly(text, context) as parsed:
                parsed.verify()
        self.parts.append(self._for_cpu(text))

    def reuse(self, parts: Sequence[object]) -> None:
        self.parts.extend(cast(Sequence[str], parts))

    def finish(self, *host: ir.Module) -> bytes:
        canonicalize(host)
        flow = translate(host, replace(_host().machine, launches=True))
        if self.dump:
            self.dump("ll", flow)
        # A context is closed after its modules, and linking closes one of them.
        with llvm.create_context() as context, llvm.parse_assembly(directory(self.parts), context) as whole:
            for text in (*self.parts, flow):
                whole.link_in(llvm.parse_assembly(text, context))
            linked = str(whole)
        # Kernels too are compiled as host functions are, quickly: most run once, at small sizes.
        return _host().compile_host(linked, self.dump)

    def _for_cpu(self, text: str) -> str:
        return for_cpu(text, self.generator.most)


@dataclass(frozen=True)
class PtxGenerator(EmulatedGenerator):
    """A generator of a target that runs what LLVM's back end makes of the kernels: see `ptx.py`."""

    @contextmanager
    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> Iterator[EmulatedCompilation]:
        yield PtxCompilation(self, dump)


class PtxCompilation(EmulatedCompilation):
    """A compilation of kernels by way of PTX."""

    def _for_cpu(self, text: str) -> str:
        (level,) = NVIDIA.default
        code = gpu.machine_code(NVIDIA, text, level).decode()
        if self.dump:
            self.dump("ptx", code)
        return ptx_for_cpu(code, self.generator.most)


class Emulated:
    """Implements `hlo_disc.targets.target.Target`. most: see `EmulatedGenerator`; by default what schedules know."""

    levels = ()

    def __init__(self, vendor: Vendor, most: int = 0, generator: type[EmulatedGenerator] = EmulatedGenerator):
        self._generator = generator(vendor, most or vendor.device.fast_limit + EXCHANGE_BYTES)

    @property
    def driver(self) -> Driver:
        return Driver(self._generator.vendor.driver.api, (_built(),))

    def made_for(self, level: str) -> str:
        return f"{self._generator.features} {self._generator.most} {x86.made_for('host')}"

    def generator(self, level: str) -> EmulatedGenerator:
        return self._generator

    def check(self, features: Sequence[str]) -> None:
        x86.check(features)

    def kernels(self, object_: bytes) -> list[str]:
        return []

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> native.NativeLibrary:
        return x86.link(object_, {**symbols, **_addresses()})


def register_products(least: int) -> None:
    """Register the targets "library-cuda" and "library-hip", whose dots are a library's from `least` products on."""
    for vendor in (NVIDIA, AMD):
        changed = replace(vendor, device=replace(vendor.device, library_products=least))
        registry.register(f"library-{vendor.driver.api}", functools.partial(Emulated, changed))


def register_large() -> None:
    """Register the target "large-cuda", which spreads work as a real GPU does."""
    registry.register("large-cuda", functools.partial(Emulated, NVIDIA))


def register_unseen(api: str) -> str:
    """Register a target whose driver has a name of its own: its GPU is new to the runtime. Return the target's name."""
    vendor = {"cuda": NVIDIA, "hip": AMD}[api]
    number = next(_unseen)

    class Unseen(Emulated):
        driver = Driver(api, (_built(), f"libunseen{number}.so"))

    registry.register(f"unseen{number}", lambda: Unseen(vendor))
    return f"unseen{number}"


def register() -> None:
    """Let programs be compiled for "emulated-cuda" and "emulated-rocm", GPUs with as little shared memory as any.

    They are small, so that blocks of small programs have several items, too.
    """
    for name, vendor, most, generator in (
        ("cuda", NVIDIA, 99 << 10, EmulatedGenerator),
        ("ptx", NVIDIA, 99 << 10, PtxGenerator),
        ("rocm", AMD, 64 << 10, EmulatedGenerator),
    ):
        small = replace(vendor, device=replace(vendor.device, at_once=1 << 10))
        registry.register(f"emulated-{name}", functools.partial(Emulated, small, most, generator))
