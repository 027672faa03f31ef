"""What a run of the surface table shows: shares by module, and the rows behind what is missing, with the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hlo_disc.conformance.run import Result
from surface.run import Outcome

FEW = 2  # compilations: one for the first sizes, one for all


def is_wrong(result: Result) -> bool:
    return result.status != "passed"


def falls_back(result: Result) -> bool:
    return not isinstance(result, Outcome) or bool(result.fallback)


def compiles_often(result: Result) -> bool:
    return not isinstance(result, Outcome) or result.compilations > FEW


def _compilations(result: Result) -> str:
    if not isinstance(result, Outcome):
        return result.reason
    return f"{result.compilations}, asked {'; '.join(result.numbers or result.asked) or 'nothing'}"


# A column: what it is the share of, which results miss it, and why.
Column = tuple[str, Callable[[Result], bool], Callable[[Result], str]]
COLUMNS: Sequence[Column] = (
    ("right", is_wrong, lambda result: result.reason),
    ("without fallback", falls_back, lambda result: getattr(result, "fallback", result.reason)),
    (f"at most {FEW} compilations", compiles_often, _compilations),
)


def show(results: Iterable[Result], console: Console | None = None) -> None:
    """The table by module, and for each column a line for each row that misses it."""
    console = console or Console(width=160)
    modules: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        modules[result.name.rpartition(".")[0]].append(result)
    everything = [result for rows in modules.values() for result in rows]
    for title, misses, why in COLUMNS:
        missing = [result for result in everything if misses(result)]
        console.print(f"\nnot {title}: {len(missing)}")
        for result in missing:
            console.print(Text(f"  {result.name} ({getattr(result, 'call', '')}): {why(result)}"), soft_wrap=True)
    shown = Table("module", "rows", *(title for title, _, _ in COLUMNS))
    for module, rows in sorted(modules.items()):
        shown.add_row(module, str(len(rows)), *_shares(rows))
    shown.add_section()
    shown.add_row("all", str(len(everything)), *_shares(everything))
    console.print(shown)


def _shares(rows: Sequence[Result]) -> list[str]:
    return [f"{100 * (1 - sum(map(misses, rows)) / len(rows)):.1f} %" for _, misses, _ in COLUMNS]
