"""Checks that would change this process for good, made in a child of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

SECONDS = 120  # after which a child that waits for something is ended


def holds_in_child(check: Callable[[], bool]) -> bool:
    """Return whether a check ends in a forked child, and holds there. It must not use JAX, which has threads."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
