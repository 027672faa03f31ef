"""Random programs for a given time: `python tests/fuzz.py --seconds 60`, or `make fuzz SECONDS=60`.

Every program is compiled once, run at many sizes and compared with the numpy reference. Batches run in worker
processes, so a crash or a hang is a failure like any other. What fails is shrunk and kept as StableHLO text that can be
pasted, with what was wrong at its top; the seed that is printed makes a batch again.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from differential import SIZES, Mismatch, check
from hypothesis import HealthCheck, Phase, given, seed, settings
from op_rows import ROWS
from random_graphs import graphs, single_ops

from hlo_disc.conformance.pool import Task, run_cases
from hlo_disc.conformance.run import Result, Settings, Stage
from hlo_disc.dynamic_hlo.graph import Graph
from hlo_disc.dynamic_hlo.print import to_stablehlo
from hlo_disc.errors import UnsupportedOpError

BATCH = 10
SHRINK_SECONDS = 40


def run_batch(directory: Path, name: str, _: Settings, stage: Stage) -> Result:
    """`BATCH` programs of the kind and seed in `name`, "graph:17" or an op's name in place of "graph"."""
    what, _, number = name.partition(":")
    result = Result(name, "fuzz", what)
    smallest: int | None = None
    numbers: Sequence[int] = range(len(SIZES))
    until = math.inf
    file = directory / f"{name.replace(':', '-')}.mlir"
    strategy = graphs(min_ops=5, max_ops=40) if what == "graph" else single_ops(what)

    @seed(int(number))
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def batch(graph: Graph) -> None:
        nonlocal smallest, numbers, until
        if time.monotonic() > until:
            return  # enough of shrinking
        text = to_stablehlo(graph)
        if smallest is None:
            file.write_text(text)  # stays when the process dies
            result.shapes += 1
        stage("check" if smallest is None else f"shrink ({result.reason})", "fuzz", what)
        try:
            check(graph, 1.0 if what == "graph" else 0.0, numbers)
        except Exception as error:
            if isinstance(error, Mismatch):
                numbers = (error.number,)
            until = min(until, time.monotonic() + SHRINK_SECONDS)
            if smallest is None or len(text) < smallest:
                smallest = len(text)
                result.status = "unsupported" if isinstance(error, UnsupportedOpError) else "failed"
                result.reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                file.write_text(f"// {name}: {result.reason}\n{text}")
            raise

    try:
        batch()
        file.unlink(missing_ok=True)
    except Exception as error:
        if not result.reason:
            result.status, result.reason = "error", f"{type(error).__name__}: {error}"[:400]
    return result


def tasks(directory: Path, names: list[str], first: int, until: float) -> Iterator[Task]:
    """Batches until it is time."""
    for number in range(first, sys.maxsize):
        for name in names:
            if time.monotonic() > until:
                return
            yield directory, f"{name}:{number}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="the first batch's; random by default")
    parser.add_argument("--ops", default="graph", help="sweep these ops, or 'all', in place of random graphs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a batch may take, shrinking included")
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), help="the directory of what fails")
    given_ = parser.parse_args()
    first = random.randrange(10**6) if given_.seed is None else given_.seed
    names = sorted(ROWS) if given_.ops == "all" else given_.ops.split(",")
    given_.failures.mkdir(parents=True, exist_ok=True)
    print(f"seed {first}; failures go to {given_.failures}", flush=True)
    counts: Counter[str] = Counter()
    programs = 0
    until = time.monotonic() + given_.seconds
    batches = tasks(given_.failures, names, first, until)
    for result in run_cases(batches, Settings(), given_.jobs, given_.timeout, run_batch):
        counts[result.status] += 1
        programs += result.shapes
        if result.status != "passed":
            print(f"{result.status:<11} {result.name}: {result.reason}", flush=True)
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(f"{programs} programs in {sum(counts.values())} batches from seed {first}, {len(SIZES)} sizes each: {shown}")
    return int(set(counts) > {"passed"} or not counts)


if __name__ == "__main__":
    sys.exit(main())
