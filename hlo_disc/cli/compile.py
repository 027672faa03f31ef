"""`hlo-disc compile` and `hlo-disc explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hlo_disc import sources
from hlo_disc.cli.files import (
    check_bytecode,
    check_output,
    is_compiled,
    open_for_any_machine,
    program_options,
    refuse,
    writing,
)
from hlo_disc.cli.group import main
from hlo_disc.cli.inputs import pairs
from hlo_disc.errors import ArgumentError
from hlo_disc.executable import explain_program
from hlo_disc.program import Program, save


@main.command("compile")
@program_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write; without it, text is printed.")
@click.option(
    "--emit",
    type=click.Choice(["disc", "stablehlo"]),
    default="disc",
    show_default=True,
    help="What to write: an executable, or the program as StableHLO text.",
)
def compile_command(file: Path, output: Path | None, emit: str, **settings: Any) -> None:
    """Compile FILE to an executable file, or write it as StableHLO.

    `hlo-disc run` and `hlo_disc.load` take the executable; it needs a CPU with the same features. For machines of
    another kind (--target aarch64) it is not linked here.
    """
    check_output("--output", output)
    if emit == "stablehlo":
        text = _stablehlo(file, **settings)
        if output is None:
            click.echo(text, nl=False)
            return
        with writing(output):
            output.write_text(text)
        click.echo(f"{output}: {len(text)} characters of StableHLO")
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'", click.get_current_context())
    program = open_for_any_machine(file, **settings)
    with writing(output):
        save(program, output)
    total = sum(program.compile_ms.values())
    click.echo(f"{output}: {output.stat().st_size} bytes, compiled in {total:.0f} ms")
    for line in _signature(program):
        click.echo(f"  {line}")


@main.command()
@program_options
def explain(file: Path, **settings: Any) -> None:
    """Show how FILE is compiled.

    Its signature and guards, the time of each stage, the kernels with their variants, and the memory plan.
    """
    click.echo(explain_program(open_for_any_machine(file, **settings)))


def _stablehlo(
    file: Path,
    dims: Sequence[str],
    constraints: Sequence[str],
    target: str | None,
    threads: int | None,
    dump: str | None,
) -> str:
    """The text of a program."""
    without = {"--target": target, "--threads": threads, "--dump": dump}
    refuse(without, "{} has no effect on StableHLO, for which nothing is compiled")
    if is_compiled(file):
        raise ArgumentError(f"{file} is compiled already, to machine code: give the program that it was made from")
    shapes = pairs("--dims", dims, "NAME=SHAPE")
    check_bytecode(file, shapes, constraints)
    return sources.stablehlo(file, dims=shapes, constraints=constraints)


def _signature(program: Program) -> list[str]:
    return [*map(str, program.inputs), *(f"-> {x}" for x in program.outputs)]
