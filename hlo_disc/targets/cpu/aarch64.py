"""The target "aarch64", and "cpu" on such machines: Arm's 64-bit CPUs, with the vectors (NEON) that all of them have.

This module implements `hlo_disc.targets.target.Target`. Other machines compile for it, and cannot link what they make.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc import ral
from hlo_disc.errors import FormatError
from hlo_disc.targets.cpu.native import kernels, link

if TYPE_CHECKING:
    from hlo_disc.targets.cpu.aarch64_generator import Aarch64Generator

__all__ = ["check", "driver", "generator", "kernels", "levels", "link", "made_for"]

driver = None
levels = ("neon",)


def generator(features: str) -> Aarch64Generator:
    """Return the generator for "neon", which is also "host"."""
    from hlo_disc.targets.cpu.aarch64_generator import Aarch64Generator

    return Aarch64Generator("generic", "+fp-armv8,+neon", "generic", ("neon",))


def made_for(level: str) -> str:
    """Return "": all code is for the same machine."""
    return ""


def check(features: Sequence[str]) -> None:
    """Raise FormatError on another machine, and when this one lacks one of the features that an object needs."""
    missing = sorted(set(features) - set(ral.cpu_features()))
    if not missing:
        return
    if platform.machine() != "aarch64":
        raise FormatError(
            f"compiled for AArch64, and this machine is {platform.machine()}: it runs there only. What is compiled for "
            "another machine is written by 'hlo-disc compile FILE --target aarch64 -o OUTPUT', without being linked"
        )
    raise FormatError(f"compiled for a CPU with {', '.join(missing)}, which this machine does not have; recompile")
