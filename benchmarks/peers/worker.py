"""The process of one peer: `python -m benchmarks.peers.worker MODULE NAME`. It answers each line of JSON with a line.

Without a name it prints the peers of the module, with the versions of their packages.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import load
from benchmarks.peers.runner import Call, Runner
from benchmarks.program import named

# Calls that are shorter are timed several at once, and a turn takes about so long; seconds.
SHORT, TURN = 1e-3, 0.1
# Inputs of more bytes are made anew for each turn: a dozen processes would fill the memory with them.
KEPT = 1 << 27


class Worker:
    """The requests of the harness: each is a method."""

    def __init__(self, runner: Runner):
        self._runner = runner
        self._call: Call
        self._inputs: list[Any] | None = []
        self._before = 0

    def load(self, program: str, dtype: str, file: str | None) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of the resident set starts anew
        self._before = _memory("VmRSS")
        self._runner.load(named(program), dtype, Path(file) if file else None)

    def first(self, sizes: dict[str, int], cold: bool) -> dict[str, float]:
        """Compile anew. Return the seconds until the first result, of processor time meanwhile, and of a later call."""
        inputs = self._native(sizes)
        gc.collect()
        cpu, start = time.process_time(), time.perf_counter()
        self._call = self._runner.prepare(cold)
        self._timed(inputs)
        taken, cpu = time.perf_counter() - start, time.process_time() - cpu
        return {"seconds": taken, "cpu": cpu, "steady": min(self._timed(inputs) for _ in range(2))}

    def keep(self, folder: str) -> None:
        self._runner.keep(Path(folder))

    def stages(self) -> dict[str, float]:
        return self._runner.stages()

    def shape(self, sizes: dict[str, int]) -> dict[str, float]:
        """Set the sizes of the next turns. Return the seconds of a first call, and of a later one."""
        arrays = self._runner.program.inputs(**sizes)
        inputs, size = self._runner.native(arrays), sum(x.nbytes for x in arrays)
        del arrays
        first, steady = self._timed(inputs), self._timed(inputs)
        if steady < TURN:
            steady = min(steady, self._timed(inputs))
        self._sizes = sizes
        self._inputs = inputs if size <= KEPT else None
        self._inner = max(1, min(1000, math.ceil(SHORT / steady)))
        self._samples = max(1, round(TURN / (steady * self._inner)))
        return {"seconds": first, "steady": steady}

    def turn(self) -> dict[str, Any]:
        """Time calls. Return the seconds of each sample, and the processor time of this process and of all."""
        inputs = self._native(self._sizes) if self._inputs is None else self._inputs
        busy, cpu, start = load.busy(), time.process_time(), time.perf_counter()
        if self._inner > 1:
            self._timed(inputs)  # wakes threads
        times = [self._timed(inputs, self._inner) for _ in range(self._samples)]
        wall = time.perf_counter() - start
        return {"times": times, "busy": load.busy() - busy, "cpu": time.process_time() - cpu, "wall": wall}

    def result(self, sizes: dict[str, int], path: str) -> None:
        result = self._call(self._native(sizes))
        self._runner.wait(result)
        np.savez(path, *self._runner.numpy(result))

    def stream(self, every: list[dict[str, int]], budget: float) -> dict[str, float]:
        """Compile anew and run all sizes one after the other, for about `budget` seconds, but at least three sizes.

        Return the seconds, those until the first result, and the number of sizes that were run.
        """
        gc.collect()
        start = time.perf_counter()
        self._call = self._runner.prepare(True)
        taken = [time.perf_counter() - start]
        # One after the other: all inputs at once may be more than there is memory for.
        while len(taken) <= len(every) and (len(taken) < 4 or sum(taken) < budget):
            taken.append(self._timed(self._native(every[len(taken) - 1])))
        return {"seconds": sum(taken), "first": sum(taken[:2]), "measured": len(taken) - 1}

    def stats(self) -> dict[str, float]:
        """Return the compilations since the last `prepare`, and the bytes of peak memory above that before loading."""
        return {"compilations": self._runner.compilations(), "peak": _memory("VmHWM") - self._before}

    def _native(self, sizes: dict[str, int]) -> list[Any]:
        return self._runner.native(self._runner.program.inputs(**sizes))

    def _timed(self, inputs: list[Any], count: int = 1) -> float:
        start = time.perf_counter()
        for _ in range(count):
            self._runner.wait(self._call(inputs))
        return (time.perf_counter() - start) / count


def _memory(what: str) -> int:
    """Return a figure of the process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def describe(runners: list[type[Runner]]) -> list[dict[str, Any]]:
    keys = "name about ours dynamic static_form_of reads_file reads_f32 dtypes infers store".split()
    return [
        {**{key: getattr(r, key) for key in keys}, "versions": {p: metadata.version(p) for p in r.packages}}
        for r in runners
    ]


def serve(answer: Callable[[str, dict[str, Any]], Any], replies: Any) -> None:
    for line in sys.stdin:
        what, settings = json.loads(line)
        try:
            reply = {"value": answer(what, settings)}
        except Exception as error:  # the harness says so of the program, and goes on
            traceback.print_exc()
            first = next((text for text in str(error).splitlines() if text.strip()), "")
            reply = {"error": f"{type(error).__name__}: {first.strip()[:200]}"}
        print(json.dumps(reply), file=replies, flush=True)


def main(module: str, name: str = "") -> None:
    # Only answers may go where the harness reads them.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    imported = importlib.import_module(f"benchmarks.peers.runners.{module}")
    if not name:
        print(json.dumps(describe(imported.RUNNERS)), file=replies, flush=True)
        return
    (chosen,) = (c for c in vars(imported).values() if isinstance(c, type) and getattr(c, "name", "") == name)
    worker = Worker(chosen())
    serve(lambda what, settings: getattr(worker, what)(**settings), replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
