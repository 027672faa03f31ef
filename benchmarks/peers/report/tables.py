"""The tables of peers in documents, written from the JSON between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.peers.report.results import (
    Program,
    Results,
    Shape,
    Standing,
    Summary,
    disturbed,
    duration,
    geometric_mean,
    medians,
    memory,
    peer_ratio,
    significant,
    standing,
    stream_seconds,
    summarize,
)

BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
NOTHING = "–"


def write(tables: str, path: Path) -> None:
    """Replace what is between the markers in the file."""
    before, _, after = _parts(path)
    path.write_text(f"{before}\n\n{tables}\n\n{after}", encoding="utf-8")


def _parts(path: Path) -> tuple[str, str, str]:
    text = path.read_text(encoding="utf-8")
    start, end = text.find(BEGIN), text.find(END)
    if start < 0 or end < start:
        raise ValueError(f"{path} has no place for the tables: it needs a line {BEGIN} and after it a line {END}")
    start += len(BEGIN)
    return text[:start], text[start:end], text[end:]


def summary(results: Results) -> str:
    """Return the machine, and a line for each peer."""
    return f"{_machine(results)}\n\n{_peers(results)}"


def render(results: Results) -> str:
    """Return all tables as Markdown."""
    summaries = [(program, summarize(results, program)) for program in results["programs"]]
    return "\n\n".join(
        (
            summary(results),
            _programs(results, summaries),
            _once(results, summaries),
            f"<details><summary>Every shape</summary>\n\n{_shapes(results)}\n\n</details>",
        )
    )


def _machine(results: Results) -> str:
    machine, limits = results["machine"], results["limits"]
    rates = (
        f" {max(measured[f'fma_{dtype}'] for measured in limits) / 1e9:.0f} GFLOP/s in {dtype}"  # type: ignore[literal-required]
        for dtype in ("f32", "bf16")
        if limits
    )
    several, all_ = disturbed(results)
    noise = f" Something else was running during {several} of {all_} timings." if several else ""
    return (
        f"{machine['cores']} cores of {_escaped(machine['cpu'])},{','.join(rates)}; {results['made'][:10]}. Ratios are "
        "theirs over hlo_disc's: above 1 hlo_disc is faster, or uses less memory. Over several shapes they are "
        f"geometric means.{noise}"
    )


def _peers(results: Results) -> str:
    """Return a table of each peer over all programs that it runs."""
    dtypes = list(dict.fromkeys(program["dtype"] for program in results["programs"]))

    def row(peer: str) -> Iterator[str]:
        everywhere = []
        yield _escaped(peer)
        for dtype in dtypes:
            found = [peer_ratio(results, p, peer) for p in results["programs"] if p["dtype"] == dtype]
            ratios = [ratio for ratio in found if ratio is not None]
            everywhere += ratios
            yield f"{_ratio(geometric_mean(ratios))} ({len(ratios)})" if ratios else NOTHING
        yield f"{_ratio(min(everywhere))} to {_ratio(max(everywhere))}" if everywhere else NOTHING
        streams = (_over_ours(results, stream_seconds(program), peer) for program in results["programs"])
        yield _ratio(geometric_mean(streams))

    peers = [peer["name"] for peer in results["peers"] if not peer["ours"] and not peer["absent"]]
    heads = ("peer / hlo_disc", *(f"{dtype} (programs)" for dtype in dtypes), "least to greatest", "stream of shapes")
    return _table(heads, map(row, peers))


def _over_ours(results: Results, figures: dict[str, float], peer: str) -> float | None:
    ours = standing(results, figures).ours
    return figures[peer] / ours.value if peer in figures and ours and ours.value > 0 else None


def _programs(results: Results, summaries: Iterable[tuple[Program, Summary]]) -> str:
    def row(program: Program, summary: Summary) -> tuple[str, ...]:
        return (
            _title(program),
            _times(standing(results, medians(shape)) for shape in program["shapes"]),
            _percent(summary.of_limit),
            _ratio(summary.best),
            f"{_ratio(summary.worst)} {_escaped(summary.worst_peer)}" if summary.worst_peer else NOTHING,
            _ratio(summary.reference),
        )

    heads = ("program", "hlo_disc", "of the limit", "best peer / ours", "worst shape", "jax.jit / ours")
    return _table(heads, (row(*entry) for entry in summaries))


def _once(results: Results, summaries: Iterable[tuple[Program, Summary]]) -> str:
    """Return a table of a program's costs apart from single calls: a stream of shapes, compilation and memory."""

    def row(program: Program, summary: Summary) -> tuple[str, ...]:
        return (
            _title(program),
            *_next_to_best(summary.stream, duration),
            _ratio(summary.stream.reference_ratio),
            *_next_to_best(summary.compile, duration),
            *_next_to_best(summary.memory, memory),
        )

    counts = {program["stream"]["shapes"] for program in results["programs"] if program["stream"]}
    stream = f"{counts.pop()} shapes" if len(counts) == 1 else "stream"
    heads = ("program", stream, "best peer", "jax.jit", "compile", "best peer", "memory", "best peer")
    return _table(heads, (row(*entry) for entry in summaries))


def _next_to_best(found: Standing, text) -> tuple[str, str]:
    best = f"{_ratio(found.ratio)} {_escaped(found.best.name)}" if found.ratio and found.best else NOTHING
    return text(found.ours.value) if found.ours else NOTHING, best


def _shapes(results: Results) -> str:
    def row(program: Program, shape: Shape) -> tuple[str, ...]:
        found = standing(results, medians(shape))
        return (
            _title(program),
            ", ".join(map(str, shape["sizes"].values())),
            duration(found.ours.value) if found.ours else NOTHING,
            _percent(shape["limit"] / found.ours.value if found.ours else None),
            _escaped(found.best.name) if found.best else NOTHING,
            _ratio(found.ratio),
            _ratio(found.reference_ratio),
        )

    heads = ("program", "sizes", "hlo_disc", "of the limit", "best peer", "best peer / ours", "jax.jit / ours")
    return _table(heads, (row(program, shape) for program in results["programs"] for shape in program["shapes"]))


def _title(program: Program) -> str:
    return _escaped(f"{program['name']}, {program['dtype']}")


def _times(standings: Iterable[Standing]) -> str:
    """Join our times. A unit that several successive times share is written once, after the last of them."""
    words = [(duration(found.ours.value) if found.ours else NOTHING).split() for found in standings]
    units = [word[1] if len(word) > 1 else "" for word in words]
    following = [*units[1:], ""]
    return ", ".join(
        word[0] if unit == after else " ".join(word) for word, unit, after in zip(words, units, following, strict=True)
    )


def _ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else significant(ratio, 2 if ratio < 1 else 3)


def _percent(fraction: float | None) -> str:
    return NOTHING if fraction is None else f"{fraction:.0%}"


def _escaped(text: str) -> str:
    """Escape a name for a cell of a Markdown table."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *map(list, rows)))
