"""The measurement of a program with all peers: each in its process, in turns and rounds, one at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import load
from benchmarks.peers.processes import FOLDER, PeerError, Process, readable
from benchmarks.peers.report.results import Compile, Shape, StreamTime, Timing
from benchmarks.peers.report.results import Program as Found
from benchmarks.program import Program
from hlo_disc import ral
from hlo_disc.benchmark.cost import Work
from hlo_disc.benchmark.run import error
from hlo_disc.profile import limits

# Relative errors from which on a result is wrong, and not of lower precision.
WRONG = {"f32": 0.02, "bf16": 0.5}
ROUNDS, LEAST_ROUNDS = 7, 3
# A peer that compiles for longer does not compile again with warm caches; seconds.
WARM = 4.0
# The part of the time for all turns after which a slow peer has no more.
MOST = 0.25
# A peer that should compile once may take so many times as long: some compile a batch of 1 separately.
SERVING = 4
# No answer may take longer; seconds.
PATIENCE = 60.0


@dataclass(frozen=True)
class Budget:
    """The seconds that peers may take for a program. Beyond them, further shapes are left out.

    turns: for all turns of all peers at a shape. There are at least three rounds and at most ROUNDS; a peer that has
    taken MOST of this time gets no more turns. compiling: for the shapes that are timed; the first does not count where
    one compilation should serve all. The static form of a peer is left out if the dynamic one took longer than this.
    stream, dynamic_stream: for the stream of a peer that compiles for each shape, and of one that compiles once.
    """

    turns: float = 8.0
    compiling: float = 8.0
    stream: float = 8.0
    dynamic_stream: float = 16.0

    @staticmethod
    def of(seconds: float, shapes: int, peers: int) -> Budget:
        """Return a budget with which a program takes about `seconds`: a quarter for turns, about as much for streams.

        The rest is for exports, compilations and starts of processes. Every part has a least value, as even a short run
        must measure enough.
        """
        stream = max(0.2 * seconds / peers, 1.5)
        return Budget(max(0.25 * seconds / shapes, 3.0), max(2 * stream, 8.0), stream, 2 * stream)


@dataclass
class Measurement:
    """The measurement of one program in one dtype.

    peers: their descriptions from `worker.describe`, by name. modules: the modules of their runners, by name.
    """

    program: Program
    dtype: str
    peers: Mapping[str, dict[str, Any]]
    modules: Mapping[str, str]
    limits: limits.Limits
    work: Callable[[Mapping[str, int]], Work]
    budget: Budget
    say: Callable[[str], None]
    processes: dict[str, Process]
    missing: dict[str, str] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    def run(self) -> Found:
        files = self._load()
        want = self._reference()
        compiled: dict[str, Compile] = {}
        for name in self._present():
            if found := self._attempt(name, self._compile, compiled):
                compiled[name] = found
        shapes = [self._shape(sizes, compiled) for sizes in self.program.shapes]
        errors = {n: e for n in self._present() if (e := self._attempt(n, self._error, want)) is not None}
        for name, off in errors.items():
            if off > WRONG[self.dtype]:
                self.missing[name] = f"gives a wrong result: its error is {off:.2g}"
                for shape in shapes:
                    shape["times"].pop(name, None)
                del compiled[name]
        memory = {}
        for name in self._present():
            stats = self._attempt(name, self._stats)
            if stats:
                memory[name] = stats["peak"]
                compiled[name]["compilations"] = stats["compilations"]
        for name, (_, seconds) in files.items():
            if name in compiled:
                compiled[name]["export"] = seconds
        every = self.program.stream_sizes()
        medians = {n: [s["times"][n]["median"] for s in shapes if n in s["times"]] for n in self._present()}
        usual = {name: statistics.fmean(found) for name, found in medians.items() if found}
        stream = {n: t for n in usual if (t := self._attempt(n, self._stream, every, compiled[n], usual))}
        return {
            "name": self.program.name,
            "dtype": self.dtype,
            "about": self.program.about,
            "dims": list(self.program.shapes[0]),
            "weights_bytes": self.program.weights_bytes / (2 if self.dtype == "bf16" else 1),
            "shapes": shapes,
            "stream": {"shapes": len(every), "times": stream},
            "compile": compiled,
            "memory": memory,
            "accuracy": {"sizes": dict(self.program.shapes[0]), "errors": errors},
            "missing": self.missing | {name: self._why_left_out(name) for name in self.left_out},
        }

    def _why_left_out(self, name: str) -> str:
        count = len(self.program.shapes)
        return f"{self.left_out[name]} of {count} shapes: it had compiled for {self.spent[name]:.0f} s for others"

    def _present(self) -> list[str]:
        return [name for name in self.peers if name in self.processes and name not in self.missing]

    def _attempt(self, name: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a peer's step, or None if it fails; then the peer is left out of this program."""
        self.say(f"{step.__name__.strip('_')}: {name}")
        try:
            return step(name, *arguments)
        except PeerError as error:
            self._failed(name, error)
            return None

    def _failed(self, name: str, error: PeerError) -> None:
        self.missing[name] = str(error)
        if name in self.processes:
            self.processes.pop(name).close()

    def _load(self) -> dict[str, tuple[Path, float]]:
        """Start the processes, and load the program in all of them at once. Return the files that peers read."""
        files = {}
        self.say("export")
        for name, peer in self.peers.items():
            try:
                if found := readable(self.program, self.dtype, peer):
                    files[name] = found
            except PeerError as error:
                self.missing[name] = str(error)
        self.say("load")
        asked = [name for name in self.peers if name not in self.missing]
        for name in asked:
            if name not in self.processes:
                self.processes[name] = Process(self.modules[name], name)
            file = str(files[name][0]) if name in files else None
            try:
                self.processes[name].begin("load", program=self.program.name, dtype=self.dtype, file=file)
            except PeerError as error:
                self._failed(name, error)
        for name in asked:
            if name in self._present():
                self._attempt(name, self._loaded)
        return files

    def _loaded(self, name: str) -> None:
        self.processes[name].answer(PATIENCE)

    def _reference(self) -> list[np.ndarray]:
        process = Process("jax", "reference")
        process.ask("load", PATIENCE, program=self.program.name, dtype="f64", file=None)
        process.ask("first", PATIENCE, sizes=dict(self.program.shapes[0]), cold=True)
        result = self._result(process)
        process.close()
        return result

    def _result(self, process: Process) -> list[np.ndarray]:
        path = FOLDER / "result.npz"
        process.ask("result", PATIENCE, sizes=dict(self.program.shapes[0]), path=str(path))
        with np.load(path) as found:
            results = [found[key] for key in found.files]
        path.unlink()
        return results

    def _error(self, name: str, want: Sequence[np.ndarray]) -> float:
        """Return the largest error over all results, each relative to its largest value."""
        got = self._result(self.processes[name])
        if [x.shape for x in got] != [x.shape for x in want]:
            raise PeerError(f"gives shapes {[x.shape for x in got]} instead of {[x.shape for x in want]}")
        return error(got, want)

    def _compile(self, name: str, before: Mapping[str, Compile]) -> Compile:
        """Time the compilations of a peer, cold and warm. before: the times of the peers that have already compiled."""
        sizes = dict(self.program.shapes[0])
        other = self.peers[name]["static_form_of"]
        if other in before and before[other]["cold"] > self.budget.compiling:
            raise PeerError(f"left out, as {other} compiled for {before[other]['cold']:.0f} s")
        cold = self.processes[name].ask("first", PATIENCE, sizes=sizes, cold=True)
        seconds = cold["seconds"] - cold["steady"]
        self.spent[name] = 0.0 if self._serves(name) else seconds
        warm = None
        if seconds < WARM:
            again = self.processes[name].ask("first", PATIENCE, sizes=sizes, cold=False)
            warm = max(again["seconds"] - again["steady"], 0.0)
        return {"cold": max(seconds, 0.0), "warm": warm, "export": None, "compilations": 1}

    def _shape(self, sizes: Mapping[str, int], compiled: Mapping[str, Compile]) -> Shape:
        work = self.work(sizes)
        return {
            "sizes": dict(sizes),
            "flops": work.total,
            "bytes": work.bytes,
            "limit": work.seconds(self.limits),
            "times": dict(self._times(sizes, compiled)),
        }

    def _times(self, sizes: Mapping[str, int], compiled: Mapping[str, Compile]) -> Iterator[tuple[str, Timing]]:
        taken: dict[str, list[float]] = {}
        disturbed = dict.fromkeys(self.peers, 0)
        for name in self._present():
            most = self.budget.compiling * (SERVING if self._serves(name) else 1)
            if self.spent[name] > most and sizes != self.program.shapes[0]:
                self.left_out[name] = self.left_out.get(name, 0) + 1
                continue
            found = self._attempt(name, self._ready, sizes)
            if found is not None:
                taken[name] = []
        start = time.monotonic()
        for number in range(ROUNDS):
            if number >= LEAST_ROUNDS and time.monotonic() - start > self.budget.turns:
                break
            for name in [name for name in taken if name not in self.missing]:
                if sum(taken[name]) > MOST * self.budget.turns:
                    continue
                turn = self._attempt(name, self._turn)
                if turn:
                    taken[name] += turn["times"]
                    disturbed[name] += load.disturbed(turn["busy"], turn["cpu"], turn["wall"], ral.usable_cores())
        for name, times in taken.items():
            if times and name not in self.missing:
                yield name, timing(times, disturbed[name])

    def _turn(self, name: str) -> Any:
        return self.processes[name].ask("turn", PATIENCE)

    def _stats(self, name: str) -> Any:
        return self.processes[name].ask("stats", PATIENCE)

    def _serves(self, name: str) -> bool:
        """Return whether one compilation of the peer serves all shapes."""
        return bool(self.peers[name]["dynamic"])

    def _ready(self, name: str, sizes: Mapping[str, int]) -> float:
        found = self.processes[name].ask("shape", PATIENCE, sizes=dict(sizes))
        self.spent[name] += max(found["seconds"] - found["steady"], 0.0)
        return found["steady"]

    def _stream(
        self, name: str, every: Sequence[Mapping[str, int]], compiled: Compile, usual: Mapping[str, float]
    ) -> StreamTime:
        """Time the stream of a peer. If it compiles for longer than the budget, estimate the time from that.

        The estimate also takes its `usual` time at other shapes, where one compilation serves all shapes.
        """
        cold, count = compiled["cold"], len(every)
        budget = self.budget.dynamic_stream if self._serves(name) else self.budget.stream
        if cold > budget:
            return {"seconds": cold + count * usual[name] if self._serves(name) else count * cold, "measured": 0}
        found = self.processes[name].ask("stream", PATIENCE, every=list(map(dict, every)), budget=budget)
        first, measured = found["first"], found["measured"]
        if not self._serves(name):
            return {"seconds": found["seconds"] * count / measured, "measured": measured}
        later = (found["seconds"] - first) / (measured - 1) if measured > 1 else usual[name]
        return {"seconds": first + later * (count - 1), "measured": measured}


def timing(times: Sequence[float], disturbed: int) -> Timing:
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (median,) * 3
    spread = (high - low) / median
    return {"calls": len(times), "min": min(times), "median": median, "spread": spread, "disturbed": disturbed}
