"""The display of objects at a prompt and in a notebook: one line, or a small table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# A model has hundreds of weights: a line shows so many arrays, a table the others.
_SHOWN = 6
_MOST_ROWS = 50


def counted(number: int, noun: str) -> str:
    """Return "1 call", "2 calls"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def signature_text(inputs: Sequence[object], outputs: Sequence[object]) -> str:
    """Return one line: "(x: float32[n], y: float32[n]) -> float32[n]"."""
    results = _listed(outputs)
    return f"({_listed(inputs)}) -> {results if len(outputs) == 1 else f'({results})'}"


def _listed(parts: Sequence[object]) -> str:
    more = len(parts) - _SHOWN
    return ", ".join([*map(str, parts[:_SHOWN]), *([f"and {more} more"] if more > 0 else [])])


def html_table(title: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table of a title and one row a line, escaped."""
    import html

    rows = list(rows)
    more = len(rows) - _MOST_ROWS
    shown = [*rows[:_MOST_ROWS], *([(f"and {more} more",)] if more > 0 else [])]
    lines = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in shown)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"
