"""Random programs for a given time: `python tests/oracle/fuzz.py --seconds 60`, or `make fuzz SECONDS=60`.

Every program is compiled once, run at many sizes and compared with the numpy reference. Batches run in worker
processes, so a crash or a hang is a failure like any other. What fails is shrunk and kept as StableHLO text that can be
pasted, with what was wrong at its top; the seed that is printed makes a batch again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import emulated
import remote
from batches import batches_until
from comparison.differential import SIZES
from graphs.random_graphs import graphs, single_ops
from graphs.shrink import failure, shrink
from hypothesis import HealthCheck, Phase, given, seed, settings
from op_rows import ROWS

from hlo_disc.conformance.pool import run_cases
from hlo_disc.conformance.report import cause
from hlo_disc.conformance.run import Result, Settings, Stage
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.errors import UnsupportedOpError

emulated.register()  # worker processes import this file, too
if os.environ.get("HLO_DISC_TARGET") == remote.TARGET:
    remote.register()

BATCH = 10
SHRINK_SECONDS = 40
SHOWN = 3  # of failures with the same cause


def run_batch(directory: Path, name: str, settings_: Settings, stage: Stage) -> Result:
    """`BATCH` programs of the kind and seed in `name`, "graph:17" or an op's name in place of "graph"."""
    with_xla = settings_.dump == "xla"
    what, _, number = name.partition(":")
    result = Result(name, "fuzz", what)
    file = directory / f"{name.replace(':', '-')}.mlir"
    strategy = graphs(min_ops=5, max_ops=40) if what == "graph" else single_ops(what)

    @seed(int(number))
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(strategy)
    def batch(graph: Graph) -> None:
        if result.reason:
            return
        file.write_text(to_stablehlo(graph))  # stays when the process dies
        result.shapes += 1
        stage("check", "fuzz", what)
        error = failure(graph, with_xla=with_xla)
        if error is not None:
            stage(f"shrink ({describe(error)})", "fuzz", what)
            graph, error = shrink(graph, error, time.monotonic() + SHRINK_SECONDS, with_xla)
            result.status = "unsupported" if isinstance(error, UnsupportedOpError) else "failed"
            result.reason = describe(error)
            file.write_text(f"// {name}: {result.reason}\n{to_stablehlo(graph)}")

    try:
        batch()
    except Exception as error:
        result.status, result.reason = "error", describe(error)
    if not result.reason:
        file.unlink(missing_ok=True)
    return result


def describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="the first batch's; random by default")
    parser.add_argument("--ops", default="graph", help="sweep these ops, or 'all', in place of random graphs")
    parser.add_argument("--target", default="cpu", help="compile for it: cpu, emulated-{cuda,ptx,rocm}, aarch64")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a batch may take, shrinking included")
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), help="the directory of what fails")
    parser.add_argument("--xla", action="store_true", help="hold XLA's results against the reference too")
    given_ = parser.parse_args()
    os.environ["HLO_DISC_TARGET"] = given_.target
    first = random.randrange(10**6) if given_.seed is None else given_.seed
    names = sorted(ROWS) if given_.ops == "all" else given_.ops.split(",")
    given_.failures.mkdir(parents=True, exist_ok=True)
    print(f"seed {first}; failures go to {given_.failures}", flush=True)
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    programs = 0
    until = time.monotonic() + given_.seconds
    batches = batches_until(given_.failures, names, first, until)
    for result in run_cases(
        batches, Settings(dump="xla" if given_.xla else ""), given_.jobs, given_.timeout, run_batch
    ):
        counts[result.status] += 1
        programs += result.shapes
        if result.status != "passed":
            causes[cause(result)] += 1
            if causes[cause(result)] <= SHOWN:
                print(f"{result.status:<11} {result.name}: {result.reason}", flush=True)
    for reason, count in causes.most_common():
        print(f"{count:5} {reason}")
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(f"{programs} programs in {sum(counts.values())} batches from seed {first}, {len(SIZES)} sizes each: {shown}")
    return int(set(counts) > {"passed"} or not counts)


if __name__ == "__main__":
    sys.exit(main())
