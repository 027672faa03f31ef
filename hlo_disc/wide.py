"""A program's kernels with indices of 64 bits: compiled when a call first needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hlo_disc.abi import MODULES
from hlo_disc.compiled.program import Program
from hlo_disc.targets import registry

if TYPE_CHECKING:
    from hlo_disc.targets.target import Library


class Wide:
    """Compiles the kernels once. program: returns the program with all its kernels."""

    def __init__(self, program: Callable[[], Program]):
        self._program = program
        self._lock = threading.Lock()
        self._library: Library | None = None

    def __call__(self) -> int:
        """Return the address of the code that the driver loads. Raises CompileError."""
        from hlo_disc import ral

        with self._lock:
            if self._library is None:
                program = self._program()
                self._library = registry.find(program.target).link(wide_object(program), ral.symbols())
            return self._library.address(MODULES)


def wide_object(program: Program) -> bytes:
    """Compile a program's kernels with indices of 64 bits. Returns object code, empty if no kernel needs it. Raises
    CompileError."""
    if not program.wide_kernels:
        return b""
    from hlo_disc.mlir import from_bytecode
    from hlo_disc.targets.target import compile_modules

    target = registry.find(program.target)
    generator = target.generator("host")
    if generator.features != tuple(program.features):
        generator = target.generator(next(level for level in program.features if level in target.levels))
    return compile_modules(generator, map(from_bytecode, program.wide_kernels))
