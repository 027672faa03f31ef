"""The target "cpu", for x86-64: what this machine has, and objects linked into this process.

This module implements `hlo_disc.targets.target.Target`. What compiles is loaded when it is asked for: to run what is
compiled needs none of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc import ral
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.targets.cpu.native import kernels, link

if TYPE_CHECKING:
    from hlo_disc.targets.cpu.x86_generator import X86Generator

__all__ = ["check", "driver", "generator", "kernels", "levels", "link", "made_for"]

driver: tuple[str, ...] = ()
_BASE = ("sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS = {"avx2": ("x86-64-v3", _BASE), "avx512": ("x86-64-v4", (*_BASE, *_AVX512))}
levels = tuple(_LEVELS)
# used where the machine has them, when compiling for it
_EXTRAS = (
    "amx-bf16", "amx-tile", "avx512bf16", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
    "avx512vpopcntdq",
)  # fmt: skip
# Registers of small matrices.
TILES = ("amx-bf16", "amx-tile")


@functools.cache
def host_features() -> frozenset[str]:
    """The features that this process may use, of those that code may need."""
    return frozenset(ral.cpu_features())


@functools.cache
def generator(features: str) -> X86Generator:
    """The generator for "host" (what the machine has), "avx2" or "avx512".

    Raises ArgumentError on a machine that lacks AVX2, FMA or another feature that is needed.
    """
    from hlo_disc.targets.cpu.x86_generator import X86Generator, host_name

    host = host_features()
    if features == "host":
        level = "avx512" if host.issuperset(_LEVELS["avx512"][1]) else "avx2"
    else:
        level = features
    cpu, required = _LEVELS[level]
    missing = [feature for feature in required if feature not in host]
    if missing:
        raise ArgumentError(
            f"the feature level {level!r} needs a CPU with {', '.join(required)}; this one lacks {', '.join(missing)}"
        )
    tune = cpu
    if features == "host":
        # only features that are asked for, not all that the CPU's name implies: a saved object then says what it needs
        tune = host_name()
        required = (*required, *(f for f in _EXTRAS if level == "avx512" and f in host))
    wide = level == "avx512"
    text = ",".join(f"+{f}" for f in required)
    tiles = set(TILES) <= set(required)
    return X86Generator(cpu, text, tune, required, level, 64 if wide else 32, 32 if wide else 16, tiles)


def made_for(level: str) -> str:
    """Return for "host" what LLVM goes by: the features, and the CPU, which it schedules for."""
    return f"{sorted(host_features())} {ral.cpu_model()}" if level == "host" else ""


def check(features: Sequence[str]) -> None:
    """Raise FormatError when this machine lacks one of the features that an object was compiled for."""
    missing = sorted(set(features) - host_features())
    if missing:
        raise FormatError(f"compiled for a CPU with {', '.join(missing)}, which this machine does not have; recompile")
