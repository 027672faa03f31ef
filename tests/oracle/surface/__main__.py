"""`make surface`: JAX's public functions through `hlo_disc.jit`, next to `jax.jit`.

Rows run in worker processes, so that a crash or a hang is the failure of one row. The first rows of all functions come
first, and an interrupted run reports what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import sys
import time
from pathlib import Path

from comparison.xla_results import keep_xla_results

keep_xla_results(Path("build/xla").absolute())

from hlo_disc.conformance.pool import run_cases  # noqa: E402
from hlo_disc.conformance.report import write_json  # noqa: E402
from hlo_disc.conformance.run import Settings  # noqa: E402
from surface import ROWS, report, size_values  # noqa: E402
from surface.run import SIZES, run_row  # noqa: E402
from surface.transforms import TRANSFORMS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="surface", description=__doc__)
    parser.add_argument("--filter", default="*", help="rows whose name fits, as in 'jax.numpy.*sum:*'")
    parser.add_argument(
        "--transform", default="", help="what is made of the rows, as in 'vjp' or '*'; else they run as they are"
    )
    parser.add_argument(
        "--numbers",
        action="store_true",
        help="a size in the place of each argument, at sizes where types end",
    )
    parser.add_argument("--sizes", default="", help="in this order")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a row may take")
    parser.add_argument("--json", type=Path, default=Path("build/surface.json"), help="the file of all results")
    given = parser.parse_args()
    names = [name for name in (size_values.ROWS if given.numbers else ROWS) if fnmatch.fnmatch(name, given.filter)]
    if given.transform:
        chosen = [(name, t) for name, t in TRANSFORMS.items() if fnmatch.fnmatch(name, given.transform)]
        names = [f"{t} of {n}" for n in names for t, what in chosen if ROWS[n].has_floats or not what.differentiates]
    if given.numbers:
        names = [f"n in {name}" for name in names]
    tasks = [(Path(), name) for name in sorted(names, key=lambda name: int(name.partition(":")[2]))]
    if not tasks:
        parser.error(f"no row fits {given.filter}")
    sizes = tuple(map(int, given.sizes.split(","))) if given.sizes else size_values.SIZES if given.numbers else SIZES
    run = functools.partial(run_row, sizes=sizes)
    results = []
    start = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        for result in run_cases(tasks, Settings(), min(given.jobs, len(tasks)), given.timeout, run):
            results.append(result)
            if result.status != "passed":
                print(f"{len(results)} of {len(tasks)}: {result.status} {result.name}: {result.reason}", flush=True)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    write_json(results, given.json)
    report.show(results)
    print(f"{len(results)} rows in {time.monotonic() - start:.0f} s; all results are in {given.json}")
    return int(any(map(report.is_wrong, results)))


if __name__ == "__main__":
    sys.exit(main())
