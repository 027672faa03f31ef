"""The machine on which the figures are measured."""

from __future__ import annotations

import os
import platform

import llvmlite.binding as llvm

from benchmarks.peers.report.results import Machine
from hlo_disc import ral
from hlo_disc.profile import limits

FEATURES = ("avx2", "avx512f", "avx512bf16", "amx-bf16")


def machine() -> Machine:
    features = llvm.get_host_cpu_features()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": str(limits.describe()["cpu"]),
        "cores": ral.usable_cores(),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "features": [name for name in FEATURES if features.get(name)],
    }
