"""The result of a benchmark, as numbers and as a table."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hlo_disc.frozen import frozen

WIDTH = 100  # of the table, in characters

if TYPE_CHECKING:
    from rich.console import RenderableType


@frozen
class Timing:
    """The seconds of a call: the median and the least of many calls, and those of the first call, which may compile."""

    median: float
    least: float
    first: float


@frozen
class Row:
    """A program at one size of each dim.

    Args:
        dims: the size of each dim.
        ours: hlo_disc's time.
        theirs: that of `jax.jit`; None where there is no program for it.
        operations: multiplications and additions of matrix products and convolutions.
        bytes: of arguments, constants and results, of what is only gathered from those gathered.
        limit: the least seconds that the machine takes for these operations and bytes.
        partial: what else there is to do that was not counted, "" where nothing is known.
        error: the largest difference between the two results, by the largest value of XLA's; None without XLA's.
        wrong: what differs by more than rounding explains, "" where nothing does.
    """

    dims: Mapping[str, int]
    ours: Timing
    theirs: Timing | None
    operations: int
    bytes: int
    limit: float
    partial: str
    error: float | None
    wrong: str

    @property
    def ratio(self) -> float | None:
        """The speedup of hlo_disc over `jax.jit`, by medians; None without times of `jax.jit`."""
        return self.theirs.median / self.ours.median if self.theirs else None

    @property
    def fraction(self) -> float:
        """The fraction of the machine's limit that is reached."""
        return self.limit / self.ours.median

    @property
    def flops(self) -> float:
        """Operations a second."""
        return self.operations / self.ours.median

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.ours.median

    def as_dict(self) -> dict[str, object]:
        """All numbers by name, None for those that are infinite or no numbers."""
        derived = {name: getattr(self, name) for name in ("ratio", "fraction", "flops", "bandwidth")}
        found = {**asdict(self), **derived}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}


@frozen
class Benchmark:
    """The result of `hlo_disc.bench`; printed, it is a table.

    Args:
        name: what was measured.
        rows: one for all sizes together.
        compiling: seconds that hlo_disc took before the first call, once for all rows; 0 for a function, of which the
            first call compiles, and for a compiled file.
        limits: of the machine: operations a second in f32 and bf16, bytes read and copied a second by their number.
        machine: its CPU and cores, and the versions.
        notes: remarks on how to read the numbers.
    """

    name: str
    rows: tuple[Row, ...]
    compiling: float
    limits: Mapping[str, Any]
    machine: Mapping[str, Any]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Everything in dicts and lists, as JSON has it."""
        named = {name: getattr(self, name) for name in ("name", "machine", "limits", "compiling", "notes")}
        return {**named, "rows": [row.as_dict() for row in self.rows]}

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=WIDTH).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich__(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        short = min(row.ours.least for row in self.rows) < 1e-3
        unit, per_second = ("µs", 1e6) if short else ("ms", 1e3)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
        dims = list(self.rows[0].dims)
        columns = (*dims, "hlo_disc", "least", "jax.jit", "least", "ratio", "of limit", "GFLOP/s", "GB/s", "error")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(str(row.dims[name]) for name in dims), *_cells(row, per_second))
        below = self._first_calls(), self._limits(), *self.notes
        return Group(f"{self.name}: {unit} a call", table, *map(Text, below))

    def _first_calls(self) -> str:
        ours = self.compiling + sum(row.ours.first for row in self.rows)
        theirs = [row.theirs.first for row in self.rows if row.theirs]
        compared = f", jax.jit {sum(theirs):.2f} s" if theirs else ""
        return f"compiling and first calls: hlo_disc {ours:.2f} s{compared}"

    def _limits(self) -> str:
        f32, bf16 = self.limits["fma_f32"], self.limits["fma_bf16"]
        rates = [*self.limits["read"].values(), *self.limits["copy"].values()]
        products = f"{f32 / 1e9:.0f} GFLOP/s" + (f" ({bf16 / 1e9:.0f} in bf16)" if bf16 else "")
        return (
            f"limit: {self.machine['cores']} cores, {products}, {min(rates) / 1e9:.0f} to {max(rates) / 1e9:.0f} GB/s"
        )


def _cells(row: Row, per_second: float) -> list[str]:
    def times(timing: Timing | None) -> list[str]:
        return [_figure(timing.median * per_second), _figure(timing.least * per_second)] if timing else ["", ""]

    error = "" if row.error is None else f"{row.error:.0e}" if row.error else "0"
    return [
        *times(row.ours),
        *times(row.theirs),
        f"{row.ratio:.2f}" if row.ratio else "",
        f"{row.fraction:.0%}",
        _figure(row.flops / 1e9),
        _figure(row.bandwidth / 1e9),
        f"[red]{error}[/]" if row.wrong else error,
    ]


def _figure(number: float) -> str:
    """Three digits: 0.0123, 1.23, 123."""
    return f"{number:.0f}" if number >= 100 or not number else f"{number:.3g}"
