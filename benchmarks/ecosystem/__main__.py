"""`python -m benchmarks.ecosystem`."""

from __future__ import annotations

import fnmatch
import importlib
import json
import statistics
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import hlo_disc
from benchmarks.ecosystem.program import MOST_COMPILATIONS, Outcome, Program, run

LIBRARIES = ("flax_linen", "flax_nnx", "equinox", "haiku", "keras", "diffrax", "blackjax", "optax", "numpyro")
GEOMETRIC_MEAN = 1.3


def programs(pattern: str) -> list[Program]:
    found = []
    for library in LIBRARIES:
        made = importlib.import_module(f"benchmarks.ecosystem.{library}").PROGRAMS
        found += [program for program in made if fnmatch.fnmatch(program.name, pattern)]
    return found


def show(console: Console, outcomes: list[Outcome]) -> None:
    table = Table("program", "right", *(("fallbacks", "compilations", "jax.jit ÷ hlo_disc", "worst size")))
    for outcome in outcomes:
        ratios = outcome.ratios
        worst = min(ratios, key=ratios.__getitem__) if ratios else 0
        table.add_row(
            outcome.name,
            "no" if outcome.wrong else "yes",
            str(len(outcome.fallbacks)),
            str(len(outcome.compilations)),
            *(f"{outcome.ratio:.2f}", f"{ratios[worst]:.2f} at {worst}") if ratios else ("", ""),
            style="red" if outcome.missed else "",
        )
    console.print(table)
    ratios = [outcome.ratio for outcome in outcomes if outcome.ratios]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        console.print(f"geometric mean {mean:.2f}, must be ≥ {GEOMETRIC_MEAN}; every program ≥ 1", highlight=False)


@click.command()
@click.option("--filter", "pattern", default="*", help="Programs whose name fits, as in 'keras *'.")
@click.option("--seconds", default=0.2, help="How long each program is timed at each size; 0 is not at all.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=Path("build/ecosystem.json"))
def main(pattern: str, seconds: float, target: Path) -> None:
    """Check that programs of JAX's libraries are right, fast, and compiled at most three times without fallbacks."""
    console = Console()
    warnings.simplefilter("ignore", hlo_disc.FallbackWarning)  # the table has them
    outcomes = []
    start = time.monotonic()
    for program in programs(pattern):
        began = time.monotonic()
        outcome = run(program, seconds)
        outcomes.append(outcome)
        console.print(f"{program.name}: {time.monotonic() - began:.1f} s", *outcome.missed, sep="  ", highlight=False)
        for text in filter(None, (outcome.wrong, *outcome.fallbacks)):
            console.print(f"  {text}", highlight=False, markup=False)
        if len(outcome.compilations) > MOST_COMPILATIONS:
            for text in outcome.compilations:
                console.print(f"  compiled: {text}", highlight=False, markup=False)
    if not outcomes:
        raise click.BadParameter(f"no program fits {pattern}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    show(console, outcomes)
    missed = sum(bool(outcome.missed) for outcome in outcomes)
    console.print(f"{len(outcomes)} programs in {time.monotonic() - start:.0f} s, {missed} miss a goal; see {target}")
    sys.exit(bool(missed))


main(prog_name="python -m benchmarks.ecosystem")
