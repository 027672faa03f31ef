"""`python -m benchmarks`, or `make bench`: hlo_disc next to jax.jit in one process, as a table and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.sections import SECTIONS, Bench, Row, warm_up
from hlo_disc import ral
from hlo_disc.profile import limits


def show(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("case")
    for column in ("hlo_disc", "jax.jit", "value", "of limit", "must be"):
        table.add_column(column, justify="right")
    for row in rows:
        colour = {True: "green", False: "red", None: ""}[row.met]
        value = f"{row.value:.3g}" if row.value < 100 else f"{row.value:.0f}"
        table.add_row(
            row.case,
            figure(row.ours, row.unit),
            figure(row.theirs, row.unit),
            f"[{colour}]{value}[/]" if colour else value,
            f"{row.fraction:.0%}" if row.fraction is not None else "",
            row.bound,
        )
    console.print(table)


def figure(value: float | None, unit: str) -> str:
    if value is None or (not value and not unit):
        return ""
    if unit == "error":
        return f"{value:.1e}"
    return f"{value:.4g} {unit}".rstrip()


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="Run these sections only.")
@click.option("--quick", is_flag=True, help="Fewer shapes and repeats: about 3 minutes instead of 12.")
@click.option(
    "--json", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures to this file."
)
def main(only: tuple[str, ...], quick: bool, target: Path | None) -> None:
    """Compare hlo_disc with jax.jit. "value" is jax.jit's time over hlo_disc's, unless a row says otherwise."""
    console = Console()
    bench = Bench(limits.measure(), quick, 0.4 if quick else 3.0)
    console.print(f"{ral.usable_cores()} cores, {bench.limits}", highlight=False)
    warm_up()
    rows: list[Row] = []
    for name in only or SECTIONS:
        start = time.perf_counter()
        with console.status(name):
            found = list(SECTIONS[name](bench))
        for section in dict.fromkeys(row.section for row in found):
            show(console, section, [row for row in found if row.section == section])
        console.print(f"[dim]{name} took {time.perf_counter() - start:.0f} s[/]", highlight=False)
        rows += found
    missed = [row for row in rows if row.met is False]
    console.print(f"{sum(row.met is not None for row in rows) - len(missed)} figures reached, {len(missed)} missed")
    for row in missed:
        console.print(f"  {row.section}: {row.case}: {row.value:.3g}, must be {row.bound}", highlight=False)
    if target is not None:
        record = {
            "machine": limits.describe(),
            "limits": bench.limits.as_dict(),
            "rows": [row.as_dict() for row in rows],
        }
        target.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
