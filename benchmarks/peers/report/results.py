"""The results of a comparison with peers: their JSON file, and the figures that the page and the tables derive from it.

A peer is one way to run a program; hlo_disc's own ways are peers, too. Times are seconds, sizes of memory bytes. A
mapping by peer may lack some peers: `Program.missing` says why.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

FORMAT = 1
REFERENCE = "jax.jit"
# Ratios that are less than this far from 1 are noise.
NOISE = 0.05
# An error that is more than so many times the best peer's is flagged.
ERROR_BOUND = 2.0


class Machine(TypedDict):
    cpu: str
    cores: int
    memory_gib: float
    system: str
    features: list[str]


class Limits(TypedDict):
    """The machine's limits, measured at one time: operations a second, and bytes a second by the size of the data."""

    when: str
    fma_f32: float
    fma_bf16: float
    read: dict[str, float]
    copy: dict[str, float]


class Peer(TypedDict):
    name: str
    ours: bool
    dynamic: bool  # compiles once for all shapes, or nothing
    versions: dict[str, str]
    about: str
    absent: str | None  # why it is not here at all


class Timing(TypedDict):
    calls: int
    min: float
    median: float
    spread: float  # from the lower to the upper quartile, over the median
    disturbed: int  # turns while something else was running


class Shape(TypedDict):
    sizes: dict[str, int]
    flops: float
    bytes: float
    limit: float  # the least time that the machine allows
    times: dict[str, Timing]


class StreamTime(TypedDict):
    seconds: float
    measured: int  # shapes; of fewer than all the seconds are extrapolated


class Stream(TypedDict):
    shapes: int
    times: dict[str, StreamTime]


class Compile(TypedDict):
    cold: float
    warm: float | None  # once more in the same process, with its caches
    export: float | None  # to make the file that it reads; not part of the others
    compilations: int  # over all shapes that are timed


class Accuracy(TypedDict):
    sizes: dict[str, int]
    errors: dict[str, float]  # relative, against float64


class Program(TypedDict):
    name: str
    dtype: str
    about: str
    dims: list[str]
    weights_bytes: float
    shapes: list[Shape]
    stream: Stream | None
    compile: dict[str, Compile]
    memory: dict[str, float]  # peak, above the process before it loads the program
    accuracy: Accuracy | None
    missing: dict[str, str]


class Results(TypedDict):
    format: int
    made: str
    command: str
    seconds: float
    machine: Machine
    limits: list[Limits]
    peers: list[Peer]
    programs: list[Program]


class FormatError(ValueError):
    """A file has not been written by `write`, or two files are of different machines."""


def read(path: Path) -> Results:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or "format" not in found:
        raise FormatError(f"{path} has no results of benchmarks.peers: there is no 'format' in it")
    if found["format"] != FORMAT:
        raise FormatError(f"{path} has format {found['format']}, and this reads format {FORMAT} alone")
    _check(path, "", found, Results)
    for kind, items in (("peer", Peer), ("program", Program), ("limits", Limits)):
        for number, item in enumerate(found[kind if kind == "limits" else kind + "s"]):
            _check(path, f" of {kind} {number}", item, items)
    return found  # type: ignore[return-value]


def _check(path: Path, where: str, found: Mapping[str, Any], kind: Any) -> None:
    if lacking := sorted(kind.__required_keys__ - set(found)):
        raise FormatError(f"{path} lacks {', '.join(lacking)}{where}")


def write(results: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def merged(earlier: Results, later: Results) -> Results:
    """Merge two runs on one machine. A program or a description of a peer that both have is the later run's.

    Raises FormatError when the machines differ.
    """
    if earlier["machine"] != later["machine"]:
        raise FormatError(f"other results are of another machine: {earlier['machine']} and {later['machine']}")
    peers = {peer["name"]: peer for peer in (*earlier["peers"], *later["peers"])}
    programs = {(one["name"], one["dtype"]): one for one in (*earlier["programs"], *later["programs"])}
    return {
        **later,
        "seconds": earlier["seconds"] + later["seconds"],
        "limits": earlier["limits"] + later["limits"],
        "peers": list(peers.values()),
        "programs": list(programs.values()),
    }


class Entry(NamedTuple):
    """A peer's figure. Less is better: the least of those that are compared is the best."""

    name: str
    value: float


class Standing(NamedTuple):
    """The best figures. ours: of hlo_disc's ways. best: of the other peers. reference: `jax.jit`'s."""

    ours: Entry | None
    best: Entry | None
    reference: Entry | None

    @property
    def ratio(self) -> float | None:
        """The best peer's figure over ours: above 1 ours is better."""
        return quotient(self.best, self.ours)

    @property
    def reference_ratio(self) -> float | None:
        return quotient(self.reference, self.ours)


def quotient(above: Entry | None, below: Entry | None) -> float | None:
    return above.value / below.value if above and below and above.value > 0 and below.value > 0 else None


def our_names(results: Results) -> set[str]:
    return {peer["name"] for peer in results["peers"] if peer["ours"]}


def standing(results: Results, figures: Mapping[str, float]) -> Standing:
    ours = our_names(results)

    def least(names: Iterable[str]) -> Entry | None:
        return min((Entry(name, figures[name]) for name in names), key=lambda entry: entry.value, default=None)

    return Standing(
        least(name for name in figures if name in ours),
        least(name for name in figures if name not in ours),
        least(name for name in figures if name == REFERENCE),
    )


def medians(shape: Shape) -> dict[str, float]:
    return {peer: timing["median"] for peer, timing in shape["times"].items()}


def stream_seconds(program: Program) -> dict[str, float]:
    stream = program["stream"]
    return {peer: time["seconds"] for peer, time in stream["times"].items()} if stream else {}


def cold_seconds(program: Program) -> dict[str, float]:
    return {peer: compiled["cold"] for peer, compiled in program["compile"].items()}


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the ratios that are positive, or None if there are none."""
    found = [ratio for ratio in ratios if ratio is not None and ratio > 0]
    return statistics.geometric_mean(found) if found else None


def peer_ratio(results: Results, program: Program, peer: str) -> float | None:
    """Return the peer's time over ours: the geometric mean over the shapes that both have."""
    standings = ((standing(results, times), times) for times in map(medians, program["shapes"]))
    return geometric_mean(quotient(Entry(peer, times[peer]), s.ours) for s, times in standings if peer in times)


class Summary(NamedTuple):
    """The summary of a program. Ratios are a peer's figure over ours."""

    name: str
    dtype: str
    best: float | None
    worst: float | None
    worst_sizes: dict[str, int] | None
    worst_peer: str | None
    reference: float | None
    of_limit: float | None
    stream: Standing
    compile: Standing
    memory: Standing
    error: float | None  # ours over the best peer's
    flagged: bool


def summarize(results: Results, program: Program) -> Summary:
    at_shapes = [(shape, standing(results, medians(shape))) for shape in program["shapes"]]
    compared = [(s.ratio, shape["sizes"], s.best.name) for shape, s in at_shapes if s.ratio is not None and s.best]
    worst, worst_sizes, worst_peer = min(compared, key=lambda found: found[0], default=(None, None, None))
    error, flagged = _error(results, program)
    return Summary(
        program["name"],
        program["dtype"],
        geometric_mean(ratio for ratio, _, _ in compared),
        worst,
        worst_sizes,
        worst_peer,
        geometric_mean(s.reference_ratio for _, s in at_shapes),
        geometric_mean(shape["limit"] / s.ours.value for shape, s in at_shapes if s.ours),
        standing(results, stream_seconds(program)),
        standing(results, cold_seconds(program)),
        standing(results, program["memory"]),
        error,
        flagged,
    )


def _error(results: Results, program: Program) -> tuple[float | None, bool]:
    """Return our worst error over the best peer's, and whether it exceeds ERROR_BOUND."""
    errors = program["accuracy"]["errors"] if program["accuracy"] else {}
    names = our_names(results)
    ours = max((error for name, error in errors.items() if name in names), default=None)
    best = min((error for name, error in errors.items() if name not in names), default=None)
    if ours is None or best is None:
        return None, False
    return (ours / best if best else 1.0 if not ours else None), ours > ERROR_BOUND * best


def verdict(ratio: float) -> int:
    """Return 1 where ours is better, -1 where it is worse, 0 where the difference is within the noise."""
    return 0 if abs(ratio - 1) <= NOISE else 1 if ratio > 1 else -1


def disturbed(results: Results) -> tuple[int, int]:
    """Return the number of timings that other processes disturbed, and the number of all timings."""
    timings = [t for program in results["programs"] for shape in program["shapes"] for t in shape["times"].values()]
    return sum(timing["disturbed"] > 0 for timing in timings), len(timings)


def sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def significant(value: float, digits: int = 3) -> str:
    """Format a value to `digits` significant digits, without an exponent, and with all digits before the point."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-12))}f}"


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return f"{significant(seconds / factor)} {unit}"
    return f"{significant(seconds / 1e-9)} ns"


def memory(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{significant(size / factor)} {unit}"
    return f"{significant(size / 2**10)} KiB"
