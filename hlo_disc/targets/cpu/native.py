"""Object code of a CPU in this process: the library that links and runs it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from hlo_disc import ral
from hlo_disc.errors import FormatError


class NativeLibrary:
    """An object linked into this process; the code lives as long as this does."""

    def __init__(self, code: ral.Code):
        self._code = code
        # at exit nothing is freed, because threads may still be running the code
        weakref.finalize(self, code.close).atexit = False

    def address(self, name: str) -> int:
        """Return the address of an exported name. Raises KeyError for an unknown one."""
        found = self._code.address(name)
        if not found:
            raise KeyError(f"{name}: the object exports no such function")
        return found

    def functions(self) -> Mapping[str, int]:
        """Return all functions by name, internal ones too."""
        return self._code.functions()


def kernels(object_: bytes) -> list[str]:
    """Return nothing: no driver loads kernels."""
    return []


def link(object_: bytes, symbols: Mapping[str, int]) -> NativeLibrary:
    """Load an object, with `symbols` at the given addresses; other functions of this process are found by themselves.

    Raises FormatError for bytes that are no ELF object, and for a function that is nowhere.
    """
    try:
        return NativeLibrary(ral.Code(object_, dict(symbols)))
    except ValueError as error:
        raise FormatError(f"cannot link the machine code: {error}") from None
