"""`hlo-disc cache list | size | clear`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hlo_disc import pipeline
from hlo_disc.benchmark.result import WIDTH
from hlo_disc.cache import programs
from hlo_disc.cache.directory import Entry, entries
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.options import Options


@click.group("cache")
def cache_commands() -> None:
    """List, measure or delete the compiled programs and kernels on disk, in the directory that HLO_DISC_CACHE names."""


@cache_commands.command("list")
def cache_list() -> None:
    """Show the programs, the last used first: when that was, their size, and what they compute."""
    place, found = _entries()
    table = Table("used", "bytes", "program", "file")
    for entry in sorted((x for x in found if not x.is_kernel), key=lambda entry: -entry.used):
        try:
            shown = programs.described(entry)
        except (FormatError, OSError) as error:
            shown = f"not readable: {error}"
        when = datetime.fromtimestamp(entry.used).isoformat(" ", "seconds")
        table.add_row(when, f"{entry.size:,}", escape(shown), entry.path.name[:12])
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)
    click.echo(f"{_counted(found)} in {place}")


@cache_commands.command("size")
def cache_size() -> None:
    """Show how many bytes the entries have, and how many they may have."""
    place, found = _entries()
    most = Options.from_env().cache_bytes
    click.echo(f"{sum(entry.size for entry in found):,} of {most:,} bytes, {_counted(found)} in {place}")


@cache_commands.command("clear")
def cache_clear() -> None:
    """Delete all programs and kernels."""
    place, found = _entries()
    for entry in found:
        entry.path.unlink(missing_ok=True)
    click.echo(f"deleted {_counted(found)}, {sum(entry.size for entry in found):,} bytes, in {place}")


def _entries() -> tuple[Path, list[Entry]]:
    """Return the cache that the environment's options name, and its entries."""
    place = pipeline.merge(None, {"dump": ""}).cache_directory
    if place is None:
        raise ArgumentError("there is no cache: HLO_DISC_CACHE is empty")
    return place, list(entries(place))


def _counted(found: list[Entry]) -> str:
    kernels = sum(entry.is_kernel for entry in found)
    return f"{len(found) - kernels} programs and {kernels} kernels"
