"""Calls of hand-written kernels in the process that has their code: without the native runtime, MLIR or LLVM."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

_PARALLEL_FOR = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
_BLOCKS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
FAST_BYTES = 1 << 16


@_PARALLEL_FOR
def _parallel_for(call, function, record, blocks):
    """Two ranges, to see that a kernel can start anywhere."""
    fast = (ctypes.c_char * (FAST_BYTES + 64))()
    aligned = -(-ctypes.addressof(fast) // 64) * 64
    middle = blocks // 2
    _BLOCKS(function)(record, 0, middle, aligned)
    _BLOCKS(function)(record, middle, blocks, aligned)


SYMBOLS = {"ral_parallel_for": ctypes.cast(_parallel_for, ctypes.c_void_p).value or 0}


def call(main: int, buffers: Sequence[np.ndarray], env: np.ndarray | None, arena: np.ndarray | None) -> None:
    """Call `@main` at an address; its call is null, and env and arena unless given."""
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(main)
    pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[b.ctypes.data for b in buffers])
    extra = [None if x is None else x.ctypes.data for x in (env, arena)]
    function(None, *extra, ctypes.addressof(pointers))
