"""`hlo-disc compile` and `hlo-disc explain`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from hlo_disc import sources
from hlo_disc.cli.files import (
    check_module,
    check_output,
    compiled_for,
    err,
    how_to_read,
    is_compiled,
    open_for_any_machine,
    program_options,
    refuse,
    writing,
)
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.saved import save
from hlo_disc.errors import ArgumentError
from hlo_disc.explain.explanation import explain_program
from hlo_disc.options import toolchain_settings

if TYPE_CHECKING:
    from hlo_disc.cli.files import Settings


@click.command("compile")
@program_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write; without it, text is printed.")
@click.option(
    "--emit",
    type=click.Choice(["disc", "library", "stablehlo"]),
    default="disc",
    show_default=True,
    help="What to write: an executable, a directory with a C library, or the program as StableHLO text.",
)
@click.option("--name", help="Of a library, what its files and functions are called; by default as FILE.")
@click.option("--level", "levels", multiple=True, help="Features of CPUs that a library has code for, the best first.")
@click.option("--weights-beside", is_flag=True, help="Put the weights of a library into a file of their own.")
def compile_command(
    file: Path,
    output: Path | None,
    emit: str,
    name: str | None,
    levels: Sequence[str],
    weights_beside: bool,
    **settings: Unpack[Settings],
) -> None:
    """Compile FILE to an executable file or a C library, or write it as StableHLO.

    `hlo-disc run` and `hlo_disc.load` take the executable; it needs a CPU with the same features. For machines of
    another kind (--target aarch64) it is not linked here. A library is built by the C++ compiler of this machine, as
    CXX, CXXFLAGS and LDFLAGS say, and runs without Python; with several --level (avx512, avx2) it has code for each,
    and packs weights when it is opened. Both are machine code: whoever runs them trusts who made them.
    """
    if emit != "library":
        check_output("--output", output)
        refuse(
            {"--name": name, "--level": levels, "--weights-beside": weights_beside},
            f"{{}} has no effect on --emit {emit}: it is for libraries",
        )
    if emit == "stablehlo":
        text = _stablehlo(file, settings)
        if output is None:
            click.echo(text, nl=False)
            return
        with writing(output):
            output.write_text(text)
        click.echo(f"{output}: {len(text)} characters of StableHLO")
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'", click.get_current_context())
    if emit == "library":
        _library(file, output, name, levels, weights_beside, settings)
        return
    program = open_for_any_machine(file, **settings)
    with writing(output):
        save(program, output)
    total = sum(program.compile_ms.values())
    click.echo(f"{output}: {output.stat().st_size} bytes, compiled in {total:.0f} ms")
    for line in _signature(program):
        click.echo(f"  {line}")


def _library(
    file: Path, output: Path, name: str | None, levels: Sequence[str], weights_beside: bool, settings: Settings
) -> None:
    from hlo_disc.library.emit import emit, library_name

    called = library_name(re.sub(r"\W", "_", file.stem, flags=re.ASCII) if name is None else name)
    if output.exists() and not output.is_dir():
        raise ArgumentError(f"--output {output}: is a file; give the name of a directory")
    start = time.perf_counter()
    if levels:
        programs = compiled_for(file, levels, **settings)
    else:
        program = open_for_any_machine(file, **settings)
        programs = [(program.target, program)]
    with err.status(f"building lib{called}.so"), writing(output):
        files = emit(programs, output, called, toolchain_settings(), weights_beside)
    click.echo(f"{files[0]}: {files[0].stat().st_size} bytes, made in {time.perf_counter() - start:.1f} s")
    for line in _signature(programs[0][1]):
        click.echo(f"  {line}")


@click.command()
@program_options
@click.option("--full", is_flag=True, help="Show every launch with its work, and the parts of the arena.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page to this file, too.")
def explain(file: Path, full: bool, html: Path | None, **settings: Unpack[Settings]) -> None:
    """Show how FILE is compiled.

    Its signature and guards, the time of the longest stages, and the kernels with their variants. 'hlo-disc profile'
    writes the page with times.
    """
    check_output("--html", html)
    program = open_for_any_machine(file, **settings)
    if html is None:
        click.echo(explain_program(program, full))
        return
    with writing(html):
        text = explain_program(program, full, html)
    click.echo(f"{text}\n{html}: {html.stat().st_size} bytes")


def _stablehlo(file: Path, settings: Settings) -> str:
    """Return the text of a program."""
    without = {"--target": settings["target"], "--threads": settings["threads"], "--dump": settings["dump"]}
    refuse(without, "{} has no effect on StableHLO, for which nothing is compiled")
    if is_compiled(file):
        raise ArgumentError(f"{file} is compiled already, to machine code: give the program that it was made from")
    reading = how_to_read(settings)
    check_module(file, reading)
    return sources.stablehlo(file, **reading)


def _signature(program: Program) -> list[str]:
    return [*map(str, program.inputs), *(f"-> {x}" for x in program.outputs)]
