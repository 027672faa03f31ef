"""Floating-point modes that a caller's thread may have, by C's functions."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_C = ctypes.CDLL("libm.so.6")
_PLACE = 28  # of MXCSR in glibc's fenv_t for x86-64
SUPPORTED = platform.machine() == "x86_64"
# Bits of MXCSR, how fesetround calls the rounding, and the bits of the x87's control word that are cleared.
MODES = {
    "flushed results": (0x8000, 0, 0),
    "flushed operands": (0x0040, 0, 0),
    "both": (0x8040, 0, 0),
    "down": (0, 0x400, 0),
    "up": (0, 0x800, 0),
    "to zero": (0, 0xC00, 0),
    "short x87": (0, 0, 0x300),
    "all": (0x8040, 0xC00, 0x300),
}


def control() -> tuple[int, int]:
    """The control bits of MXCSR and of the x87."""
    environment = (ctypes.c_char * 32)()
    _C.fegetenv(environment)
    sse = int.from_bytes(environment.raw[_PLACE:], "little")
    return sse & 0xFFC0, int.from_bytes(environment.raw[:2], "little") & 0x0F3F


@contextmanager
def mode(name: str) -> Iterator[None]:
    """The thread in this mode, which it must still have at the end."""
    bits, rounding, cleared = MODES[name]
    before = (ctypes.c_char * 32)()
    _C.fegetenv(before)
    try:
        assert _C.fesetround(rounding) == 0
        environment = (ctypes.c_char * 32)()
        _C.fegetenv(environment)
        sse = int.from_bytes(environment.raw[_PLACE:], "little") | bits
        environment[_PLACE:] = sse.to_bytes(4, "little")
        x87 = int.from_bytes(environment.raw[:2], "little") & ~cleared
        environment[:2] = x87.to_bytes(2, "little")
        _C.fesetenv(environment)
        entered = control()
        yield
        left = control()
    finally:
        _C.fesetenv(before)
    assert left == entered, (name, entered, left)


def same_in_all_modes(call: Callable[[], Any], times: int = 1) -> None:
    """A call has the same bits in the caller's usual mode and in all others."""
    want = [np.asarray(x).tobytes() for x in call()]
    for name in MODES:
        with mode(name):
            results = [call() for _ in range(times)]
        for result in results:
            assert [np.asarray(x).tobytes() for x in result] == want, name
