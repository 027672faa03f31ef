"""Programs whose host code was linked where the kit was made: nothing is compiled on this machine."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Linked:
    """A `Target` for programs whose host code is a shared library already."""

    levels = ()

    def __init__(self, driver: tuple[str, ...]):
        self.driver = driver

    def generator(self, level: str) -> Any:
        raise RuntimeError("the kit compiles nothing")

    def kernels(self, object_: bytes) -> list[str]:
        return []

    def check(self, features: tuple[str, ...]) -> None:
        """The host code asks for no more than AVX2, which /proc/cpuinfo names as compilers do."""
        flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
        if "avx2" not in flags:
            raise RuntimeError("this machine's CPU has no AVX2")

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Any:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(object_)
            file.flush()
            library = ctypes.CDLL(file.name)
        for name, address in symbols.items():
            ctypes.c_size_t.in_dll(library, f"{name}__to").value = address
        return _Library(library)


class _Library:
    def __init__(self, library: ctypes.CDLL):
        self._library = library

    def address(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(name) from None
