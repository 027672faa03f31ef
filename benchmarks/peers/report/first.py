"""The results of `make cold`: their JSON file, and the parts of hlo_disc's time to the first result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from benchmarks.peers.report.results import REFERENCE, FormatError, Machine, geometric_mean

FORMAT = 1
# The parts of a compilation, each a sum of stages. The rest is the call itself.
PARTS = {
    "trace and read": ("read",),
    "store": ("cache",),
    "rewrite": ("verify input", "rewrite", "complex", "target", "normalise", "verify"),
    "fuse and schedule": ("fuse", "schedule", "memory"),
    "kernels": ("kernels",),
    "host flow": ("host flow",),
    "LLVM": ("codegen",),
    "link": ("load",),
}
REST = "first run"


class First(TypedDict):
    """The medians over processes, in seconds. cpu: of all processors. stages: parts of the wall time, if reported."""

    seconds: float
    cpu: float
    stages: dict[str, float]


class Times(TypedDict):
    empty: First
    full: First | None  # of a peer that has no store


class Program(TypedDict):
    name: str
    dtype: str
    sizes: dict[str, int]
    peers: dict[str, Times]
    missing: dict[str, str]


class Cold(TypedDict):
    format: int
    made: str
    machine: Machine
    processes: int  # of which medians are
    ours: list[str]
    programs: list[Program]


def read(path: Path) -> Cold:
    """Read a file of results. Raises FormatError."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f"{path} has no times to the first result in format {FORMAT}")
    return found  # type: ignore[return-value]


def parts(first: First) -> dict[str, float]:
    """Return the seconds of each part; {} for a peer that does not report them."""
    stages = first["stages"]
    if not stages:
        return {}
    found = {part: sum(stages.get(name, 0.0) for name in names) for part, names in PARTS.items()}
    return {**found, REST: max(first["seconds"] - sum(stages.values()), 0.0)}


def over_reference(cold: Cold, peer: str, what: str) -> float | None:
    """Return the ratio of a peer's "seconds" or "cpu" to `jax.jit`'s, both with an empty store.

    It is the geometric mean over the programs.
    """
    both = [one["peers"] for one in cold["programs"] if {peer, REFERENCE} <= one["peers"].keys()]
    return geometric_mean(_figure(peers[peer], what) / _figure(peers[REFERENCE], what) for peers in both)


def _figure(times: Times, what: str) -> float:
    values: Mapping[str, float] = times["empty"]  # type: ignore[assignment]
    return values[what]
