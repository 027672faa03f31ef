"""Other processes that a test starts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def printed(*words: object, **settings: Any) -> str:
    """Return what a command prints. If it fails, so does the test, with the end of what it printed of its error."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **settings)
    if done.returncode:
        raise AssertionError(f"exit status {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done.stdout


def python(*words: object, **settings: Any) -> str:
    """Return what this Python prints, given these words of its command line."""
    return printed(sys.executable, *words, **settings)
