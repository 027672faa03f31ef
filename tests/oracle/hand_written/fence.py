"""Arrays with nothing behind them: a kernel that reads beyond its operand ends its process, at best a child."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from forked import holds_in_child

from hand_written.kernel_runner import KIND

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


def fenced(array: np.ndarray) -> np.ndarray:
    """Return a dense copy that ends where memory does, as far as its alignment allows. The next page is unreadable."""
    room = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    if _libc.mprotect(ctypes.c_void_p(whole.ctypes.data + room), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    copy = whole[room - array.nbytes : room].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def called_with_fenced(run: Callable[..., Any], calls: Iterable[Sequence[np.ndarray]]) -> list[Any]:
    """Return the results of calls with such arrays.

    A child makes the calls first, because it can be asserted that a child ends. One child makes all calls: to fork a
    process that has run thousands of tests takes a tenth of a second.
    """
    given = [[fenced(x) for x in arrays] for arrays in calls]
    if KIND == "cpu":  # an emulated one is a process of its own
        begun = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64)  # the child's writes are seen here
        assert holds_in_child(lambda: _makes(run, given, begun)), (
            f"it reads or writes outside of its memory, or does not end: {[x.shape for x in given[begun[0] - 1]]}"
        )
    return [run(*arrays) for arrays in given]


def _makes(run: Callable[..., Any], calls: Sequence[Sequence[np.ndarray]], begun: np.ndarray) -> bool:
    """Make the calls. begun[0]: how many have begun."""
    for arrays in calls:
        begun[0] += 1
        run(*arrays)
    return True
