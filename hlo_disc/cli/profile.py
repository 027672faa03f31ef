"""`hlo-disc profile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from hlo_disc.cli.files import check_output, check_seconds, err, open_program, program_options, writing
from hlo_disc.cli.inputs import input_options, inputs_of

if TYPE_CHECKING:
    from hlo_disc.cli.files import Settings


@click.command()
@program_options
@input_options
@click.option("--seconds", default=1.0, show_default=True, help="How long to run it.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write all calls to this file, for ui.perfetto.dev.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page of 'hlo-disc explain', with times.")
def profile(
    file: Path,
    inputs: Sequence[str],
    sizes: Sequence[str],
    seed: int,
    seconds: float,
    trace: Path | None,
    html: Path | None,
    **settings: Unpack[Settings],
) -> None:
    """Show the time of each kernel of FILE.

    FILE runs on arrays or random inputs, as with 'hlo-disc run'. The rest of the time is the host's: it takes inputs,
    plans memory, launches kernels, and computes what is too little for a kernel.
    """
    check_output("--trace", trace)
    check_output("--html", html)
    check_seconds("--seconds", seconds)
    executable = open_program(file, **settings)
    filled, _ = inputs_of(executable, inputs, sizes, seed)
    with err.status("running"):
        found = executable.profile(*filled, seconds=seconds)
    click.echo(str(found))
    if html:
        with writing(html):
            executable.explain(html=html, profile=found)
        click.echo(f"{html}: {html.stat().st_size} bytes")
    if trace:
        with writing(trace):
            found.save(trace)
        click.echo(f"{trace}: {len(found.calls)} calls, for https://ui.perfetto.dev or chrome://tracing")
