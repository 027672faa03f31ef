"""The interface of a target to the compiler. Targets are found by name: `registry.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeGuard

from hlo_disc.device import Device
from hlo_disc.mlir import ir
from hlo_disc.targets.machine import Machine

# dump(stage, text) receives the IR after each stage of code generation.
Dump = Callable[[str, str], None]


class Compilation(Protocol):
    """Code generation of one program. It gets modules as soon as they are built, and may change them."""

    def add(self, module: ir.Module) -> object:
        """Add kernels. They may be compiled while the caller builds others. Raises CompileError, UnsupportedOpError."""
        ...

    def finish(self, *host: ir.Module) -> bytes:
        """The object code of all kernels, and of a module of host functions or none, which launch them by their names.

        If a driver launches kernels, the object code has the data that the driver loads as `abi.MODULES`. Without host
        functions it has nothing else.
        Raises CompileError.
        """
        ...

    @property
    def parts(self) -> Sequence[object]:
        """The code of its kernels, once it is finished, as `reuse` takes it."""
        ...

    def reuse(self, parts: Sequence[object]) -> None:
        """Add kernels that earlier compilations of the program have made.

        The caller has checked that host functions launch them with their arguments, and leaves none of them out.
        """
        ...


class LinkedCompilation(Compilation, Protocol):
    """Code generation of a program whose kernels and device functions are modules of their own, which call each other.

    Such modules say nothing of their program.
    """

    def add(self, module: ir.Module, prefix: str = "", key: bytes = b"", record: bytes = b"") -> None:
        """Add kernels as any compilation does. prefix: what host functions put before the kernels' names.

        key: under which the store keeps the record and, after it, the code; none if it does not.
        """
        ...

    def take(self, key: bytes, code: bytes, prefix: str = "", types: Mapping[str, str] = ...) -> None:
        """Add code that the store has under a key. types: those of the kernels, by their names in it."""
        ...


class Store(Protocol):
    """Code of kernels that is kept for other programs. Threads may use it."""

    def find(self, key: bytes) -> bytes | None:
        """Return the content kept with an equal key, by any process, if it still exists."""
        ...

    def keep(self, key: bytes, code: bytes) -> None:
        """Keep it, if possible."""
        ...


class Generator(Protocol):
    """A target with the features to compile for."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that a machine must have to run the code."""
        ...

    @property
    def device(self) -> Device:
        """The machine as schedules see it, with its register tiles."""
        ...

    @property
    def batch(self) -> int:
        """The number of kernels that are worth a module, if they are not linked; 0 if all must be in one."""
        ...

    @property
    def linked(self) -> bool:
        """Whether it is a `LinkedGenerator`."""
        ...

    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> AbstractContextManager[Compilation]:
        """Compile a program in `threads` threads, the caller's among them, or 0 for one per processor.

        store: has code of linked modules, and gets the code of new ones.
        If the context is left before it is finished, nothing of it stays.
        """
        ...


class LinkedGenerator(Generator, Protocol):
    """A target for which each kernel and each device function is a module of its own."""

    @property
    def digest(self) -> bytes:
        """A digest of the machine that code is made for."""
        ...

    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> AbstractContextManager[LinkedCompilation]:
        """Begin as any generator does."""
        ...


def is_linked(generator: Generator) -> TypeGuard[LinkedGenerator]:
    """Whether a generator is one of these."""
    return generator.linked


class HostGenerator(Generator, Protocol):
    """A generator of the machine that this process runs on: other targets let it compile host functions."""

    @property
    def machine(self) -> Machine:
        """The translator's record of the machine."""
        ...

    def compile_host(self, text: str, dump: Dump | None = None) -> bytes:
        """Compile LLVM IR text to object code. Raises CompileError for IR that does not parse or verify."""
        ...


class Driver(NamedTuple):
    """A driver of GPUs. api: its functions' names, "cuda" or "hip". libraries: the shared libraries that may have them,
    of which the runtime prefers one that is loaded."""

    api: str
    libraries: tuple[str, ...]


class Library(Protocol):
    """Object code linked into this process; the code lives as long as this does."""

    def address(self, name: str) -> int:
        """Return the address of a function. Raises KeyError for an unknown name, FormatError."""
        ...

    def functions(self) -> Mapping[str, int]:
        """Return all functions of the object code that are in this process, internal ones too, by name."""
        ...


class Target(Protocol):
    """A kind of machine."""

    @property
    def driver(self) -> Driver | None:
        """The driver that launches kernels; None if kernels are functions of the object code."""
        ...

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of features that code can be compiled for, the lowest first."""
        ...

    def generator(self, level: str) -> Generator:
        """Return the generator for a level, or "host": the level of this machine or, if unknown, one that most machines
        have. Raises ArgumentError for a level that this machine lacks."""
        ...

    def made_for(self, level: str) -> str:
        """Return a text of everything else that the code for a level depends on: equal texts give equal code.

        It needs no generator, because a generator loads the compiler.
        """
        ...

    def check(self, features: Sequence[str]) -> None:
        """Raise FormatError when this machine lacks one of a program's features."""
        ...

    def kernels(self, object_: bytes) -> list[str]:
        """Return notes about the kernels that a driver loads from object code, for people, line by line."""
        ...

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Library:
        """Load object code, with `symbols` at the given addresses. Raises FormatError for anything but object code."""
        ...


def compile_modules(
    generator: Generator, kernels: Iterable[ir.Module], *host: ir.Module, dump: Dump | None = None
) -> bytes:
    """Compile modules that are built already. Raises CompileError, UnsupportedOpError."""
    with generator.begin(dump) as compilation:
        for module in kernels:
            compilation.add(module)
        return compilation.finish(*host)
