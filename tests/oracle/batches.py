"""Random batches for a given time, of `fuzz.py` and `fuzz_files.py`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hlo_disc.conformance.pool import Task


def batches_until(directory: Path, names: list[str], first: int, until: float) -> Iterator[Task]:
    """A batch of each name and number, from `first` on, until it is time."""
    for number in range(first, sys.maxsize):
        for name in names:
            if time.monotonic() > until:
                return
            yield directory, f"{name}:{number}"
