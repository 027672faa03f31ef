"""A check whether other processes use the machine while a turn is measured."""

from __future__ import annotations

import os
from pathlib import Path

# The share of the machine that others may have, and seconds by which the system's counters are off.
SHARE, SLACK = 0.1, 0.02
_IDLE = (3, 4)  # of the first line of /proc/stat: idle and waiting for a disk
_GUEST = 8  # from here on counted before


def busy() -> float:
    """Return the seconds since boot that processors have worked, or were kept from this machine, summed over all."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    used = sum(x for place, x in enumerate(ticks[:_GUEST]) if place not in _IDLE)
    return used / os.sysconf("SC_CLK_TCK")


def disturbed(all_busy: float, own: float, wall: float, cores: int) -> bool:
    """Return whether other processes used more than SHARE of the machine.

    All times are seconds. own: those of the measured process.
    """
    return all_busy - own > SHARE * wall * cores + SLACK
