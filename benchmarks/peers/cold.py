"""`python -m benchmarks.peers.cold`, or `make cold`: the time from the call to the first result, in fresh processes.

Imports, weights and inputs come before and do not count. Each program runs with an empty store of compiled code, and,
where a peer has a store, once more with one that another process has filled. Only peers whose environments exist take
part. With `--second` it is the second program of each process: a peer's first compilation imports what it needs, and
does not count.
"""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.harness import PATIENCE
from benchmarks.peers.machine import machine
from benchmarks.peers.processes import FOLDER, PeerError, Process, described, environment, modules, readable
from benchmarks.peers.report import first, page, results
from benchmarks.peers.report.first import Cold, First, Times
from benchmarks.program import Task, chosen, named

Peers = Mapping[str, dict[str, Any]]
# The programs that a process compiles before its second one: the first of these that differs from it.
SMALL = ("softmax", "matmul")


def here(pattern: str, only_ours: bool) -> dict[str, dict[str, Any]]:
    """Return the peers whose environments exist, by name, each with the `module` of its runner."""
    there = [module for module in modules() if (environment(module) / "installed").exists()]
    found = ({**peer, "module": module} for module in there for peer in described(module))
    return {
        peer["name"]: peer
        for peer in found
        if fnmatch.fnmatch(peer["name"], pattern) and (peer["ours"] or not only_ours)
    }


def measure(task: Task, peers: Peers, repeat: int, say: Callable[[str], None], second: bool = False) -> first.Program:
    """Measure one program, as the second of its processes if `second`.

    The peers take turns, so that other processes disturb all of them alike.
    """
    program, dtype = task
    found: dict[str, list[First]] = {}
    full: dict[str, list[First]] = {}
    missing: dict[str, str] = {}
    with TemporaryDirectory() as name:
        stores = {peer: Path(name) / str(number) for number, peer in enumerate(peers) if peers[peer]["store"]}
        for turn in range(repeat):
            for peer in [peer for peer in peers if peer not in missing]:
                say(f"{program.name}, {dtype}: {peer}, {turn + 1} of {repeat}")
                try:
                    store = stores.get(peer)
                    if turn == 0:  # fills the store, and Python compiles its files
                        once(task, peers[peer], store)
                    found.setdefault(peer, []).append(once(task, peers[peer], None, second))
                    if store:
                        full.setdefault(peer, []).append(once(task, peers[peer], store, second))
                except PeerError as error:
                    missing[peer] = str(error)
    whole = {peer: times for peer, times in found.items() if peer not in missing}
    return {
        "name": program.name,
        "dtype": dtype,
        "sizes": dict(program.shapes[0]),
        "peers": {p: Times(empty=middle(t), full=middle(full[p]) if p in full else None) for p, t in whole.items()},
        "missing": missing,
    }


def once(task: Task, peer: Mapping[str, Any], store: Path | None, second: bool = False) -> First:
    """Run a process until the first result of a program. second: after a small program. Raises PeerError."""
    small = named(SMALL[task[0].name == SMALL[0]])
    tasks = [(small, "f32"), task] if second else [task]
    files = [readable(*each, peer) for each in tasks]
    process = Process(peer["module"], peer["name"])
    try:
        if store:
            process.ask("keep", PATIENCE, folder=str(store))
        for (program, dtype), file in zip(tasks, files, strict=True):
            process.ask("load", PATIENCE, program=program.name, dtype=dtype, file=str(file[0]) if file else None)
            taken = process.ask("first", 2 * PATIENCE, sizes=dict(program.shapes[0]), cold=store is None)
        return {"seconds": taken["seconds"], "cpu": taken["cpu"], "stages": process.ask("stages", PATIENCE)}
    finally:
        process.close()


def middle(times: Sequence[First]) -> First:
    """Return the median of each figure."""
    names = dict.fromkeys(name for one in times for name in one["stages"])
    return {
        "seconds": statistics.median(one["seconds"] for one in times),
        "cpu": statistics.median(one["cpu"] for one in times),
        "stages": {name: statistics.median(one["stages"].get(name, 0.0) for one in times) for name in names},
    }


def merged(earlier: Cold | None, later: Cold) -> Cold:
    """Merge two runs, in the order of `programs`. A program that both have is the later run's."""
    order = [(program.name, dtype) for program, dtype in chosen()]
    both = {(one["name"], one["dtype"]): one for cold in (earlier, later) if cold for one in cold["programs"]}
    ours = dict.fromkeys(name for cold in (earlier, later) if cold for name in cold["ours"])
    return {**later, "ours": list(ours), "programs": [both[task] for task in order if task in both]}


def shown(cold: Cold) -> Table:
    """Return a table: a row for each program with the peers' times by an empty and a full store, then the ratios."""
    names = list(dict.fromkeys(peer for program in cold["programs"] for peer in program["peers"]))
    table = Table("program", *(f"{name}\n(CPU), stored" for name in names), title="until the first result")
    for program in cold["programs"]:
        cells = (cell(program["peers"].get(name)) for name in names)
        table.add_row(f"{program['name']}, {program['dtype']}", *cells)
    table.add_section()
    for what in ("seconds", "cpu"):
        ratios = (first.over_reference(cold, name, what) for name in names)
        texts = ("–" if ratio is None else results.significant(ratio) for ratio in ratios)
        table.add_row(f"over {results.REFERENCE}'s {what}", *texts)
    return table


def cell(times: Times | None) -> str:
    if times is None:
        return "–"
    empty, full = times["empty"], times["full"]
    stored = results.duration(full["seconds"]) if full else "–"
    return f"{results.duration(empty['seconds'])} ({results.duration(empty['cpu'])}), {stored}"


@click.command()
@click.option("--filter", "pattern", default="*", help="Programs whose name fits, as in 'GPT-2 *'.")
@click.option("--peer", "peer_pattern", default="*", help="Peers whose name fits, as in 'OpenVINO *'.")
@click.option("--only-ours", is_flag=True, help="hlo_disc alone.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1), help="Processes for each figure.")
@click.option("--second", is_flag=True, help="Time the second program of each process, not its first.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="cold.json or second.json by default.")
@click.option("--add", is_flag=True, help="Keep what --json has of other programs.")
def main(
    pattern: str, peer_pattern: str, only_ours: bool, repeat: int, second: bool, target: Path | None, add: bool
) -> None:
    """Time programs from the call to the first result. Write the figures as JSON, for the page of `make peers`."""
    console = Console()
    FOLDER.mkdir(parents=True, exist_ok=True)
    target = target or FOLDER / ("second.json" if second else "cold.json")
    tasks, peers = chosen(pattern), here(peer_pattern, only_ours)
    if not tasks or not peers:
        raise click.UsageError(
            f"no program fits {pattern!r}" if peers else f"no peer that is here fits {peer_pattern!r}"
        )
    earlier = first.read(target) if add and target.exists() else None
    found: Cold = {
        "format": first.FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "processes": repeat,
        "ours": [name for name, peer in peers.items() if peer["ours"]],
        "programs": [],
    }
    with console.status("") as status:
        for task in tasks:
            found["programs"].append(measure(task, peers, repeat, status.update, second))
            results.write(merged(earlier, found), target)
    console.print(shown(merged(earlier, found)))
    for program in found["programs"]:
        for name, reason in program["missing"].items():
            console.print(f"{program['name']}, {program['dtype']}: {name} {reason}", highlight=False, markup=False)
    beside = target.with_name("results.json")
    if beside.exists() and not second:
        page.write(results.read(beside), beside.with_suffix(".html"), cold=merged(earlier, found))
    console.print(str(target), highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.peers.cold")
