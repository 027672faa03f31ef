"""A comparison of two runs: what has become faster or slower, apart from changes of the machine itself."""

from __future__ import annotations

from typing import TypedDict

from rich.table import Table

from benchmarks.peers.report.results import (
    Program,
    Results,
    Shape,
    duration,
    geometric_mean,
    medians,
    our_names,
    sizes_text,
    standing,
    verdict,
)

WORDS = {1: "faster", 0: "same", -1: "slower"}
STYLES = {1: "green", 0: "dim", -1: "red"}


class Change(TypedDict):
    """The change of our time at one shape. Ratios are the earlier figure over the later: above 1 is faster."""

    name: str
    dtype: str
    sizes: dict[str, int]
    before: float
    after: float
    ratio: float
    limit: float | None  # of the machine's limit for this shape
    peers: float | None  # geometric mean over the peers that both runs have
    net: float  # the ratio without what peers have in common with it; without the limit's where there are no peers
    verdict: int


def changes(now: Results, then: Results) -> list[Change]:
    """Return the change at every shape that both runs have timed, the largest loss first."""
    earlier = {_key(program, shape): shape for program in then["programs"] for shape in program["shapes"]}
    found = (
        _change(now, then, program, shape, earlier[key])
        for program in now["programs"]
        for shape in program["shapes"]
        if (key := _key(program, shape)) in earlier
    )
    return sorted((change for change in found if change), key=lambda change: change["net"])


def _key(program: Program, shape: Shape) -> tuple[str, str, str]:
    return program["name"], program["dtype"], sizes_text(shape["sizes"])


def _change(now: Results, then: Results, program: Program, after: Shape, before: Shape) -> Change | None:
    times, earlier = medians(after), medians(before)
    ours, previous = standing(now, times).ours, standing(then, earlier).ours
    if not ours or not previous:
        return None
    ratio = previous.value / ours.value
    # The limits of a shape tell of the machine only if both runs count the same work.
    counted_alike = (after["flops"], after["bytes"]) == (before["flops"], before["bytes"])
    limit = before["limit"] / after["limit"] if counted_alike and before["limit"] and after["limit"] else None
    others = (set(times) & set(earlier)) - our_names(now) - our_names(then)
    peers = geometric_mean(earlier[name] / times[name] for name in others)
    net = ratio / (peers or limit or 1.0)
    return Change(
        name=program["name"],
        dtype=program["dtype"],
        sizes=after["sizes"],
        before=previous.value,
        after=ours.value,
        ratio=ratio,
        limit=limit,
        peers=peers,
        net=net,
        verdict=verdict(net),
    )


def table(now: Results, then: Results) -> Table:
    """Return a table of our times. Changes that the peers' ratio, or else the machine's limit, explain are not ours."""
    found = changes(now, then)
    counts = {word: sum(change["verdict"] == sign for change in found) for sign, word in WORDS.items()}
    title = f"{then['made']} to {now['made']}: " + ", ".join(f"{count} {word}" for word, count in counts.items())
    shown = Table(title=title, title_justify="left")
    for column in ("program", "dtype", "sizes"):
        shown.add_column(column)
    for column in ("then", "now", "then / now", "limit's", "peers'", "net"):
        shown.add_column(column, justify="right")
    shown.add_column("")
    for change in found:
        sign = change["verdict"]
        shown.add_row(
            change["name"],
            change["dtype"],
            sizes_text(change["sizes"]),
            duration(change["before"]),
            duration(change["after"]),
            *(_ratio(change[column]) for column in ("ratio", "limit", "peers", "net")),  # type: ignore[literal-required]
            f"[{STYLES[sign]}]{WORDS[sign]}[/]",
        )
    return shown


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
