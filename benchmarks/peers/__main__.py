"""`python -m benchmarks.peers`, or `make peers`."""

from __future__ import annotations

import fnmatch
import itertools
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.cost import least_work
from benchmarks.peers.harness import Budget, Measurement
from benchmarks.peers.machine import machine
from benchmarks.peers.processes import FOLDER, ROOT, PeerError, Process, described, made, modules
from benchmarks.peers.report import compare, first, page, results, tables
from benchmarks.program import Program, Task, chosen, programs
from hlo_disc.profile import limits

README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "performance.md"
# Bytes of weights of a program that has processes of its own.
LARGE = 1 << 26


def found_peers(
    pattern: str, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], dict[str, str], list[Any]]:
    """Return the peers by name with their descriptions, their modules by name, and the peers that are absent."""
    peers: dict[str, dict[str, Any]] = {}
    where: dict[str, str] = {}
    absent: list[results.Peer] = []
    for module in modules():
        say(f"environment: {module}")
        reason = made(module)
        try:
            found = [] if reason else described(module)
        except PeerError as error:
            reason = str(error)
        if reason:
            absent.append(
                {"name": module, "ours": False, "dynamic": False, "versions": {}, "about": "", "absent": reason}
            )
            continue
        for peer in found:
            if fnmatch.fnmatch(peer["name"], pattern):
                peers[peer["name"]] = peer
                where[peer["name"]] = module
    return peers, where, absent


def weight(program: Program) -> int:
    """Return a program's relative share of the time: a network compiles for longer than an operation."""
    return 3 if program.weights_bytes else 1


def whose_processes(program: Program) -> str:
    """Return the key of a program's processes. Programs of one file share processes, as kernels are short.

    A large program has its own, as a dozen processes keep much of it.
    """
    return program.name if program.weights_bytes >= LARGE else program.fn.__module__


@click.command()
@click.option("--program", "program_pattern", default="*", help="Programs whose name fits, as in 'GPT-2 *'.")
@click.option("--peer", "peer_pattern", default="*", help="Peers whose name fits, as in 'OpenVINO *'.")
@click.option("--dtype", "dtypes", multiple=True, default=("f32", "bf16"), type=click.Choice(["f32", "bf16"]))
@click.option(
    "--minutes",
    default=60.0,
    show_default=True,
    help="Shared by the programs; each takes half a minute to three at least.",
)
@click.option("--json", "target", type=click.Path(path_type=Path), default=FOLDER / "results.json", show_default=True)
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="An earlier JSON, to compare with.")
@click.option("--add", is_flag=True, help="Keep what --json has of other programs: a long run in several.")
@click.option("--readme", is_flag=True, help="Write the tables of README.md and docs/performance.md too.")
@click.option("--render", is_flag=True, help="Measure nothing: write page and tables of --json as it is.")
def main(
    program_pattern: str,
    peer_pattern: str,
    dtypes: tuple[str, ...],
    minutes: float,
    target: Path,
    against: Path | None,
    add: bool,
    readme: bool,
    render: bool,
) -> None:
    """Measure programs with hlo_disc and every peer. Write the figures as JSON, and as one page beside it."""
    console = Console(stderr=True)
    old = results.read(against) if against else None
    if not render:
        earlier = results.read(target) if add and target.exists() else None
        _measure(console, chosen(program_pattern, dtypes), peer_pattern, minutes, target, earlier)
    found = results.read(target)
    shown = target.with_suffix(".html")
    times = target.with_name("cold.json")
    page.write(found, shown, old, first.read(times) if times.exists() else None)
    if old:
        console.print(compare.table(found, old))
    if readme:
        tables.write(tables.summary(found), README)
        tables.write(tables.render(found), PERFORMANCE)
    console.print(f"{target}, {shown}", highlight=False)


def _measure(
    console: Console,
    tasks: list[Task],
    peer_pattern: str,
    minutes: float,
    target: Path,
    earlier: results.Results | None,
) -> None:
    if not tasks:
        raise click.UsageError("no program fits; the programs are " + ", ".join(p.name for p in programs()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with console.status("") as status:
        peers, where, absent = found_peers(peer_pattern, status.update)
        if not peers:
            raise click.UsageError(f"no peer fits {peer_pattern!r}")
        status.update("limits")
        machine_limits, before = _measured("before")
        found = _empty(peers, absent)
        found["limits"].append(before)
        weights = [weight(program) for program, _ in tasks]
        for _, group in itertools.groupby(tasks, key=lambda task: whose_processes(task[0])):
            processes: dict[str, Process] = {}
            for program, dtype in group:
                began = time.monotonic()
                title = f"{program.name}, {dtype}"

                def say(text: str, title: str = title) -> None:
                    status.update(f"{title}: {text}")

                left = weights[len(found["programs"]) :]
                share = (60 * minutes - (began - start)) * left[0] / sum(left)
                budget = Budget.of(max(share, 0.0), len(program.shapes), len(peers))
                work = least_work(program, dtype)
                one = Measurement(program, dtype, peers, where, machine_limits, work, budget, say, processes)
                found["programs"].append(one.run())
                found["seconds"] = time.monotonic() - start
                _write(found, earlier, target)
                _print(console, title, found, time.monotonic() - began)
            for process in processes.values():
                process.close()
        status.update("limits")
        found["limits"].append(_measured("after")[1])
        found["seconds"] = time.monotonic() - start
        _write(found, earlier, target)
    disturbed, count = results.disturbed(found)
    if disturbed:
        console.print(f"other programs had part of the machine in {disturbed} of {count} timings")


def _write(found: results.Results, earlier: results.Results | None, target: Path) -> None:
    """Write the results together with earlier ones, all in the order of `programs`."""
    whole = results.merged(earlier, found) if earlier else found
    place = {(program.name, dtype): number for number, (program, dtype) in enumerate(chosen())}
    whole["programs"].sort(key=lambda one: place.get((one["name"], one["dtype"]), len(place)))
    results.write(whole, target)


def _measured(when: str) -> tuple[limits.Limits, results.Limits]:
    found = limits.measure()
    return found, {"when": when, **found.as_dict(), "fma_bf16": found.rate("bfloat16")}  # type: ignore[typeddict-item]


def _empty(peers: Mapping[str, dict[str, Any]], absent: list[results.Peer]) -> results.Results:
    keys = ("name", "ours", "dynamic", "versions", "about")
    return {
        "format": results.FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.peers", *sys.argv[1:]]),
        "seconds": 0.0,
        "machine": machine(),
        "limits": [],
        "peers": [{**{key: peer[key] for key in keys}, "absent": None} for peer in peers.values()] + absent,  # type: ignore[typeddict-item]
        "programs": [],
    }


def _print(console: Console, title: str, found: results.Results, seconds: float) -> None:
    summary = results.summarize(found, found["programs"][-1])
    best = f"best peer / hlo_disc {summary.best:.2f}" if summary.best else "no peer"
    console.print(f"{title}: {best}, in {seconds:.0f} s", highlight=False)
    for name, reason in found["programs"][-1]["missing"].items():
        console.print(f"  {name}: {reason}", highlight=False, markup=False)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.peers")
