"""The report of a run of the surface table: shares by module, and the rows behind what is missing, by cause."""

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


def _asking_lines(result: Result) -> str:
    """Return the lines that asked for sizes that became numbers, or without any those that asked something else."""
    if not isinstance(result, Outcome):
        return result.reason
    special = [text for text in result.asked if " != " not in text]  # != holds for all sizes but one
    lines = dict.fromkeys(text.rpartition(" (")[2].rstrip(")") for text in result.numbers or special or result.asked)
    return f"{'a number for' if result.numbers else 'a question of'} {'; '.join(lines) or 'nobody'}"


# A column: what it is the share of, which results miss it, and why.
Column = tuple[str, Callable[[Result], bool], Callable[[Result], str]]
COLUMNS: Sequence[Column] = (
    ("right", is_wrong, lambda result: result.reason),
    ("without fallback", falls_back, lambda result: getattr(result, "fallback", result.reason)),
    (f"at most {FEW} compilations", compiles_often, _asking_lines),
)


def show(results: Iterable[Result], console: Console | None = None) -> None:
    """The table by module, and for each column the rows that miss it, the most frequent cause first."""
    console = console or Console(width=160)
    modules: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        modules[result.name.rpartition(".")[0]].append(result)
    everything = [result for rows in modules.values() for result in rows]
    for title, misses, why in COLUMNS:
        causes: dict[str, list[Result]] = defaultdict(list)
        for result in filter(misses, everything):
            causes[why(result)].append(result)
        console.print(f"\nnot {title}: {sum(map(len, causes.values()))}")
        for cause, missing in sorted(causes.items(), key=lambda item: -len(item[1])):
            console.print(Text(f"{len(missing):5} {cause}"), soft_wrap=True)
            for result in missing:
                console.print(Text(f"        {result.name}  {getattr(result, 'call', '')}"), soft_wrap=True)
    shown = Table("module", "rows", *(title for title, _, _ in COLUMNS))
    for module, rows in sorted(modules.items()):
        shown.add_row(module, str(len(rows)), *_shares(rows))
    shown.add_section()
    shown.add_row("all", str(len(everything)), *_shares(everything))
    console.print(shown)
    functions: dict[str, list[Result]] = defaultdict(list)
    for result in everything:
        functions[result.name.partition(":")[0]].append(result)
    shares = (
        f"{_share(any(map(misses, rows)) for rows in functions.values())} {title}" for title, misses, _ in COLUMNS
    )
    console.print(f"{len(functions)} functions, in all their rows: {', '.join(shares)}")


def _shares(rows: Sequence[Result]) -> list[str]:
    return [_share(map(misses, rows)) for _, misses, _ in COLUMNS]


def _share(missing: Iterable[bool]) -> str:
    """Return the percentage of rows that miss nothing."""
    found = list(missing)
    return f"{100 * (1 - sum(found) / len(found)):.1f} %"
