"""The target "cpu", for x86-64: the features of this machine, and objects linked into this process.

This module implements `hlo_disc.targets.target.Target`. The compiler is loaded only when it is needed: to run compiled
code needs none of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hlo_disc import ral
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.targets.cpu.native import kernels, link

if TYPE_CHECKING:
    from hlo_disc.targets.cpu.x86_generator import X86Generator

__all__ = ["check", "driver", "generator", "kernels", "levels", "link", "made_for"]

driver: tuple[str, ...] = ()
_BASE = ("sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# Features that code for "host" uses if the machine has them.
_EXTRAS = (
    "amx-bf16", "amx-tile", "avx512bf16", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
    "avx512vpopcntdq",
)  # fmt: skip


class Level(NamedTuple):
    """A level of features. cpu: LLVM's name for it. simd_bytes, registers: the vector registers that code uses.

    extras: the features that code for "host" uses beside those of the level, if the machine has them.
    """

    cpu: str
    features: tuple[str, ...]
    simd_bytes: int
    registers: int
    extras: tuple[str, ...] = ()


# The lowest level first. "host" is the last level whose features the machine has.
LEVELS = {
    "avx2": Level("x86-64-v3", _BASE, simd_bytes=32, registers=16),
    "avx512": Level("x86-64-v4", (*_BASE, *_AVX512), simd_bytes=64, registers=32, extras=_EXTRAS),
}
levels = tuple(LEVELS)
# Registers of small matrices.
TILES = ("amx-bf16", "amx-tile")


@functools.cache
def host_features() -> frozenset[str]:
    """The features that this process may use, of those that code may need."""
    return frozenset(ral.cpu_features())


@functools.cache
def generator(features: str) -> X86Generator:
    """The generator for "host" (what the machine has), or for a level.

    Raises ArgumentError if the machine lacks a feature.
    """
    from hlo_disc.targets.cpu.x86_generator import X86Generator, host_name

    host = host_features()
    name = features
    if features == "host":
        name = next((name for name in reversed(levels) if host.issuperset(LEVELS[name].features)), levels[0])
    level = LEVELS[name]
    required = level.features
    missing = [feature for feature in required if feature not in host]
    if missing:
        raise ArgumentError(
            f"the feature level {name!r} needs a CPU with {', '.join(required)}; this one lacks {', '.join(missing)}"
        )
    tune = level.cpu
    if features == "host":
        # only features that are asked for, not all that the CPU's name implies: a saved object then says what it needs
        tune = host_name()
        required = (*required, *(f for f in level.extras if f in host))
    text = ",".join(f"+{f}" for f in required)
    tiles = set(TILES) <= set(required)
    return X86Generator(level.cpu, text, tune, required, level.simd_bytes, level.registers, tiles)


def made_for(level: str) -> str:
    """Return for "host" what LLVM goes by: the features, and the CPU, which it schedules for."""
    return f"{sorted(host_features())} {ral.cpu_model()}" if level == "host" else ""


def check(features: Sequence[str]) -> None:
    """Raise FormatError when this machine lacks one of the features that an object was compiled for."""
    missing = sorted(set(features) - host_features())
    if missing:
        raise FormatError(f"compiled for a CPU with {', '.join(missing)}, which this machine does not have; recompile")
