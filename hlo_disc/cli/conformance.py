"""`hlo-disc conformance`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from hlo_disc import pipeline, ral
from hlo_disc.cli.files import (
    THREADS,
    check_dump,
    check_output,
    check_seconds,
    err,
    writing,
)


@click.command()
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--filter", "filters", multiple=True, metavar="GLOB", help="Only cases whose name or path fits.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; by default one a core.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds that a case may take.")
@click.option("--target", default="cpu", show_default=True, help="The kind of machine to compile for.")
@click.option("--threads", default=1, show_default=True, type=THREADS, help="Threads of each run.")
@click.option("--reopen", is_flag=True, help="Make the inputs' dims symbols wherever the sizes of the rest follow.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results to this file as JUnit XML.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file as JSON.")
@click.option("--dump", default="", metavar="DIR", help="Write what each stage makes into DIR, a directory a case.")
def conformance(
    paths: Sequence[Path],
    filters: Sequence[str],
    jobs: int | None,
    timeout: float,
    target: str,
    threads: int,
    reopen: bool,
    junit: Path | None,
    json_file: Path | None,
    dump: str,
) -> int:
    """Run the StableHLO modules in DIR as conformance cases.

    A module that holds its own checks (custom calls check.expect_eq and its like) must pass them; any other is run at
    several sizes, from one compilation, and compared with XLA. The exit code is 1 when a case fails.
    """
    from hlo_disc.conformance import command, report
    from hlo_disc.conformance.run import Settings

    check_output("--junit", junit)
    check_output("--json", json_file)
    check_dump(dump)
    check_seconds("--timeout", timeout)
    tasks = command.find(paths, filters)
    options = pipeline.merge(None, {"target": target, "threads": threads, "dump": dump})
    settings = Settings(threads=threads, reopen=reopen, dump=dump, target=options.target)
    results = command.conformance(tasks, settings, jobs or ral.usable_cores(), timeout, Console(), err)
    if junit:
        with writing(junit):
            report.write_junit(results, junit)
    if json_file:
        with writing(json_file):
            report.write_json(results, json_file)
    return int(any(map(report.has_failed, results)))
