"""`hlo-disc run` and `hlo-disc bench`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from hlo_disc.benchmark import bench as measure
from hlo_disc.benchmark.result import WIDTH
from hlo_disc.cli.files import (
    check_output,
    check_seconds,
    checked,
    err,
    open_program,
    program_options,
    writing,
)
from hlo_disc.cli.inputs import input_options, inputs_of, sizes_of

if TYPE_CHECKING:
    from hlo_disc.cli.files import Settings


@click.command()
@program_options
@input_options
@click.option("--out", type=click.Path(path_type=Path), help="Write the results to this .npz, as out0, out1 …")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Run this many times.")
def run(
    file: Path,
    inputs: Sequence[str],
    sizes: Sequence[str],
    seed: int,
    out: Path | None,
    repeat: int,
    **settings: Unpack[Settings],
) -> None:
    """Run FILE on arrays or random inputs.

    Inputs come from files (--input); the others are random, of the sizes given with --dim.
    """
    check_output("--out", out)
    executable = open_program(file, **settings)
    filled, dims = inputs_of(executable, inputs, sizes, seed)
    times = []
    results: tuple[np.ndarray, ...] = ()
    for _ in range(repeat):
        start = time.perf_counter()
        results = executable.native(*filled)
        times.append(time.perf_counter() - start)
    _show(results)
    shown = ", ".join(f"{name}={size}" for name, size in dims.items())
    best = f", best {min(times) * 1e3:.3f} ms of {repeat}" if repeat > 1 else ""
    click.echo(f"{shown + ': ' if shown else ''}{sorted(times)[repeat // 2] * 1e3:.3f} ms{best}")
    if out:
        # npz has no bfloat16 and its like.
        saved: dict[str, Any] = {
            f"out{i}": r if r.dtype.isbuiltin == 1 else r.astype(np.float32) for i, r in enumerate(results)
        }
        with writing(out), out.open("wb") as stream:
            np.savez(stream, **saved)


@click.command()
@program_options
@click.option(
    "--dim", "sizes", multiple=True, metavar="NAME=SIZE,…", help="Sizes of a dim; a row for each combination."
)
@click.option("--seconds", default=5.0, show_default=True, help="Time for each combination of sizes.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the random inputs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to this file as JSON.")
def bench(
    file: Path, sizes: Sequence[str], seconds: float, seed: int, json_file: Path | None, **settings: Unpack[Settings]
) -> None:
    """Time FILE against jax.jit and the machine's limit.

    It is compiled once and run on random inputs at all sizes; jax.jit compiles for each. The limit is the least time
    that the machine takes for the products of matrices and the bytes of inputs and results.
    """
    check_output("--json", json_file)
    check_seconds("--seconds", seconds)
    options, reading = checked(file, settings)
    with err.status("") as status:
        found = measure(
            file,
            sizes=sizes_of(sizes),
            **reading,
            seconds=seconds,
            seed=seed,
            report=status.update,
            options=options,
        )
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(found)
    if json_file:
        with writing(json_file):
            json_file.write_text(json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n")


def _show(results: Sequence[np.ndarray]) -> None:
    table = Table("result", "dtype", "shape", "min", "mean", "max")
    for i, result in enumerate(results):
        wide = result.astype(np.float64) if result.dtype.kind != "c" else np.abs(result)
        with np.errstate(all="ignore"):
            numbers = [f"{f(wide):.6g}" for f in (np.min, np.mean, np.max)] if wide.size else ["", "", ""]
        table.add_row(f"out{i}", str(result.dtype), str(result.shape), *numbers)
    Console().print(table)
