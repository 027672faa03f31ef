"""A comparison of this checkout with another one, each in its own process, in turns: what a change costs or gains.

    python -m benchmarks.against ../before        # a checkout that has been set up (make demo)

Ratios are this checkout's time over the other's, the median of pairs of turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from benchmarks.peers.harness import PATIENCE
from benchmarks.peers.processes import FOLDER, ROOT, PeerError, Process, environment
from benchmarks.program import Program, named
from benchmarks.programs.kernels import MEMORY_BOUND

MODELS = ("BERT-base", "GPT-2 prefill", "GPT-2 decode")
LIMITS = {"compile": 1.05, "steady": 1 / 0.98, "kernels": 1 / 0.98}
CALL_LIMIT = 0.4  # µs

Times = tuple[list[float], list[float]]  # seconds: this checkout's and the other's


def started(checkout: Path) -> Process:
    """Start the process of a checkout. Its modules of benchmarks are this checkout's, those of hlo_disc its own."""
    python = environment("jax", checkout) / "bin" / "python"
    if not python.exists():
        raise click.ClickException(f"{checkout} has no .venv: run `make demo` there first")
    command = [str(python), "-c", "import hlo_disc; print(hlo_disc.__file__)"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    if checkout.resolve() not in Path(shown).parents:
        raise click.ClickException(f"{python} imports hlo_disc from {shown}: run `make demo` in {checkout}")
    return Process("jax", "hlo_disc (JAX)", checkout)


def pairs(sides: tuple[Process, Process], count: int, seconds: Callable[[Process], float]) -> Times:
    """Ask both sides `count` times in turns, and alternate which is asked first. One round before does not count."""
    found: Times = ([], [])
    for number in range(count + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            taken = seconds(sides[side])
            if number:
                found[side].append(taken)
    return found


def compiling(program: Program) -> Callable[[Process], float]:
    def ask(process: Process) -> float:
        found = process.ask("first", PATIENCE, sizes=dict(program.shapes[0]), cold=False)
        return found["seconds"] - found["steady"]

    return ask


def turn(process: Process) -> float:
    return statistics.median(process.ask("turn", PATIENCE)["times"])


def measure(
    sides: tuple[Process, Process], count: int, only: tuple[str, ...]
) -> Iterator[tuple[str, str, list[float], list[float]]]:
    models, add = [named(name) for name in MODELS], named("x + 1")
    for what, programs in (("steady", models), ("kernels", MEMORY_BOUND), ("call", [add])):
        compiles = what == "steady" and "compile" in only
        for program in programs if compiles or what in only else ():
            for process in sides:
                process.ask("load", PATIENCE, program=program.name, dtype="f32", file=None)
            times = pairs(sides, count if compiles else 0, compiling(program))
            if compiles:
                yield "compile", program.name, *times
            for sizes in program.shapes if what in only else ():
                for process in sides:
                    process.ask("shape", PATIENCE, sizes=dict(sizes))
                yield what, f"{program.name} {tuple(sizes.values())}", *pairs(sides, count, turn)


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--pairs", "count", default=15, show_default=True, help="Turns of each side.")
@click.option("--only", multiple=True, type=click.Choice([*LIMITS, "call"]), help="Measure these only.")
def main(checkout: Path, count: int, only: tuple[str, ...]) -> None:
    """Compare this checkout's times with those of CHECKOUT."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["HLO_DISC_DEFER_KERNELS"] = "0"  # else one side's thread compiles while the other side is timed
    sides = started(ROOT), started(checkout)
    start = time.perf_counter()
    ratios: dict[str, list[float]] = {}
    try:
        for what, name, mine, other in measure(sides, count, only or (*LIMITS, "call")):
            ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
            ratios.setdefault(what, []).append(ratio)
            a, b = statistics.median(mine), statistics.median(other)
            print(f"{what:8} {name:34} {1e3 * a:10.4f} ms {1e3 * b:10.4f} ms  {ratio:.3f}", flush=True)
            if what == "call":
                more = 1e6 * statistics.median(a - b for a, b in zip(mine, other, strict=True))
                print(f"call     {more:+.2f} µs, must be at most +{CALL_LIMIT}")
    except PeerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        for process in sides:
            process.close()
    for what, limit in LIMITS.items():
        if what in ratios:
            mean, worst = statistics.geometric_mean(ratios[what]), max(ratios[what])
            print(f"{what}: geometric mean {mean:.3f}, worst {worst:.3f}; <= {limit:.3f}")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.against")
