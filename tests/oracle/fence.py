"""Arrays with nothing behind them: a kernel that reads past the end of its operand ends the process."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


def fenced(array: np.ndarray) -> np.ndarray:
    """A dense copy that ends where memory does, as far as its alignment allows: a page follows that nobody may read."""
    room = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    if _libc.mprotect(ctypes.c_void_p(whole.ctypes.data + room), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    copy = whole[room - array.nbytes : room].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
