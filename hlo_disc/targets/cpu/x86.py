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

driver = None
_BASE = ("sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# What code asks for beside bf16: bytes that are permuted and compressed, and bits that are counted, by one instruction.
_BF16 = ("avx512bf16", "avx512bitalg", "avx512vbmi", "avx512vbmi2", "avx512vpopcntdq")
# Registers of small matrices.
TILES = ("amx-bf16", "amx-tile")


class Level(NamedTuple):
    """A level of features. cpu: LLVM's name for it. tune: LLVM's name of the CPU that code is scheduled for.

    simd_bytes, registers: the vector registers that code uses.
    """

    cpu: str
    tune: str
    features: tuple[str, ...]
    simd_bytes: int
    registers: int


# The lowest level first. "host" is the last level whose features the machine has, and nothing else: so all machines of
# a level have equal code. AMD's Zen 4 and 5 have bf16 without AMX; LLVM schedules for both alike.
LEVELS = {
    "avx2": Level("x86-64-v3", "x86-64-v3", _BASE, simd_bytes=32, registers=16),
    "avx512": Level("x86-64-v4", "x86-64-v4", (*_BASE, *_AVX512), simd_bytes=64, registers=32),
    "avx512bf16": Level("x86-64-v4", "znver4", (*_BASE, *_AVX512, *_BF16), simd_bytes=64, registers=32),
    "amx": Level("x86-64-v4", "sapphirerapids", (*_BASE, *_AVX512, *_BF16, *TILES), simd_bytes=64, registers=32),
}
levels = tuple(LEVELS)


@functools.cache
def host_features() -> frozenset[str]:
    """The features that this process may use, of those that code may need."""
    return frozenset(ral.cpu_features())


@functools.cache
def generator(features: str) -> X86Generator:
    """Return the generator for a level, or for "host", the best one that the machine has.

    Raises ArgumentError if the machine lacks a feature.
    """
    from hlo_disc.targets.cpu.x86_generator import X86Generator

    name = _host_level() if features == "host" else features
    level = LEVELS[name]
    missing = [feature for feature in level.features if feature not in host_features()]
    if missing:
        required, lacking = ", ".join(level.features), ", ".join(missing)
        raise ArgumentError(f"the feature level {name!r} needs a CPU with {required}; this one lacks {lacking}")
    text = ",".join(f"+{f}" for f in level.features)
    tiles = set(TILES) <= set(level.features)
    return X86Generator(level.cpu, text, level.tune, level.features, level.simd_bytes, level.registers, tiles)


def made_for(level: str) -> str:
    """Return the level that "host" stands for."""
    return _host_level() if level == "host" else ""


def _host_level() -> str:
    host = host_features()
    return next((name for name in reversed(levels) if host.issuperset(LEVELS[name].features)), levels[0])


def check(features: Sequence[str]) -> None:
    """Raise FormatError when this machine lacks one of the features that an object was compiled for."""
    missing = sorted(set(features) - host_features())
    if missing:
        raise FormatError(f"compiled for a CPU with {', '.join(missing)}, which this machine does not have; recompile")
