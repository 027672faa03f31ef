"""The command `hlo-disc conformance`: find the cases, run them, show a progress bar, report."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hlo_disc.conformance import report
from hlo_disc.conformance.pool import Task, run_cases
from hlo_disc.conformance.run import Result, Settings
from hlo_disc.errors import ArgumentError

_SUFFIXES = (".mlir", ".vhlo", ".mlirbc", ".stablehlo")


def find(paths: Sequence[Path], filters: Sequence[str]) -> list[Task]:
    """Find the cases in files and directories whose name, or path below the directory, matches one of the patterns.

    Raises ArgumentError when there is none.
    """
    tasks: list[Task] = []
    for root in paths:
        if not root.exists():
            raise ArgumentError(f"{root}: no such file or directory; give the directory that holds the cases")
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in _SUFFIXES)
        for file in files:
            name = file.name if file == root else str(file.relative_to(root))
            if not filters or any(_fits(name, pattern) for pattern in filters):
                tasks.append((file, name))
    if not tasks:
        shown = f" that fits {' or '.join(filters)}" if filters else ""
        raise ArgumentError(f"{', '.join(map(str, paths))}: no module ({', '.join(_SUFFIXES)}){shown}")
    return tasks


def _fits(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatch(text, pattern) for text in (name, Path(name).name, Path(name).stem))


def conformance(
    tasks: Sequence[Task], settings: Settings, jobs: int, timeout: float, console: Console, err: Console
) -> list[Result]:
    """Run the cases with a progress bar on `err` and the report on `console`."""
    results: list[Result] = []
    start = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        for result in run_cases(tasks, settings, min(jobs, len(tasks)), timeout):
            results.append(result)
            failed = sum(map(report.has_failed, results))
            progress.update(bar, advance=1, description=f"{failed} failed, last {result.name[:40]}")
    report.show(results, time.perf_counter() - start, console)
    return results
