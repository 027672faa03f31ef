"""A profile: times by kernel as a table, and by launch as a trace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from hlo_disc.display.notebook import counted, html_table
from hlo_disc.frozen import frozen
from hlo_disc.profile.limits import Limits

_ROWS, _WHAT = 25, 60  # of a table, and characters of its last column


class Work(NamedTuple):
    """The work of a launch: operations on numbers, bytes, and the type of the factors, "" for no matrix products."""

    operations: int
    bytes: int
    factors: str


@frozen
class LaunchTime:
    """One launch of a call.

    Args:
        kernel: as `explain` calls it; of a library call its op.
        number: which of `explain(full=True)`'s launches it is; None where that is not known, as in loops.
        ops: the user's ops that it computes.
        place: the user's line of most of them, as "model.py:12:3 (function)".
        blocks: of the kernel.
        seconds: the median over all calls.
        work: what it does; None where sizes depend on data, or the launch is not known.
    """

    kernel: str
    number: int | None
    ops: str
    place: str
    blocks: int
    seconds: float
    work: Work | None


@frozen
class KernelTime:
    """A kernel, in one call.

    Args:
        kernel: as `explain` calls it.
        launches: how many.
        seconds: of all of them.
        share: of the time of the call.
        operations: on numbers, of all launches; None where that is not known.
        bytes: read and written, each once; None likewise.
        least: the seconds that the machine needs for these at least; None likewise.
        ops: the user's ops that it computes.
        place: the user's line of most of them.
    """

    kernel: str
    launches: int
    seconds: float
    share: float
    operations: int | None
    bytes: int | None
    least: float | None
    ops: str
    place: str


@frozen
class Profile:
    """The times of a program's launches; printed, they are a table, in a notebook too.

    Args:
        name: the program's.
        dims: the size of each dim.
        host: seconds of a call that are no launch's, the median: taking arguments and giving results, planning memory,
            launching, and ops that the host computes itself, for they are too few for a kernel.
        launches: of a call, in order.
        calls: of each that was measured, when it began and ended, and a pair of the same for each of its launches, in
            nanoseconds.
        threads: that a launch may use.
        limits: what the machine can do at most; None where that cannot be measured.
    """

    name: str
    dims: Mapping[str, int]
    host: float
    launches: tuple[LaunchTime, ...]
    calls: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    threads: int
    limits: Limits | None

    @property
    def seconds(self) -> float:
        """The time of a call: the sum of the medians of its launches and of the host."""
        return self.host + sum(launch.seconds for launch in self.launches)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """The time of each kernel, the longest first."""
        by_name: dict[str, list[LaunchTime]] = {}
        for launch in self.launches:
            by_name.setdefault(launch.kernel, []).append(launch)
        rows = [self._row(name, launches) for name, launches in by_name.items()]
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def _row(self, name: str, launches: list[LaunchTime]) -> KernelTime:
        seconds, first = sum(x.seconds for x in launches), launches[0]
        works = [x.work for x in launches]
        known = [x for x in works if x is not None]
        operations = moved = least = None
        if len(known) == len(works):
            operations, moved = sum(x.operations for x in known), sum(x.bytes for x in known)
            if self.limits:
                least = sum(self.limits.seconds(x.operations, x.bytes, x.factors or "float32") for x in known)
        return KernelTime(
            name, len(launches), seconds, seconds / self.seconds, operations, moved, least, first.ops, first.place
        )

    def __str__(self) -> str:
        rows = [list(self._columns), *self._table()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._columns))]
        lines = [self._title()]
        for row in rows:
            cells = [x.rjust(w) if i < 6 else x.ljust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    _columns = ("share", "time", "launches", "of limit", "GFLOP/s", "GB/s", "kernel", "what it computes")

    def _table(self) -> Iterator[list[str]]:
        rows = self.kernels
        shown = rows if len(rows) <= _ROWS else rows[: _ROWS - 1]
        for row in shown:
            what = ": ".join(filter(None, (short_place(row.place), row.ops)))
            yield [
                f"{row.share:.1%}",
                _time(row.seconds),
                str(row.launches),
                f"{row.least / row.seconds:.0%}" if row.least is not None and row.seconds else "",
                _rate(row.operations, row.seconds),
                _rate(row.bytes, row.seconds),
                row.kernel,
                what if len(what) <= _WHAT else what[: _WHAT - 1] + "…",
            ]
        if len(shown) < len(rows):
            others = rows[len(shown) :]
            taken = sum(row.seconds for row in others)
            launches = str(sum(row.launches for row in others))
            yield [f"{taken / self.seconds:.1%}", _time(taken), launches, "", "", "", f"{len(others)} others", ""]
        yield [f"{self.host / self.seconds:.1%}", _time(self.host), "", "", "", "", "the host", "all that is no launch"]

    def _title(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.dims.items())
        launches = f"{len(self.launches)} launch{'es' * (len(self.launches) != 1)}"
        return (
            f"{self.name}{f' at {sizes}' if sizes else ''}: {_time(self.seconds)} a call, medians of "
            f"{len(self.calls)}; {launches} on {counted(self.threads, 'thread')}"
        )

    def _repr_html_(self) -> str:
        return html_table(self._title(), [self._columns, *self._table()])

    def as_dict(self) -> dict[str, object]:
        """Everything but the single calls, in dicts and lists, as JSON has it."""
        return {
            "name": self.name,
            "dims": dict(self.dims),
            "seconds": self.seconds,
            "host": self.host,
            "calls": len(self.calls),
            "threads": self.threads,
            "limits": self.limits and self.limits.as_dict(),
            "kernels": [asdict(row) for row in self.kernels],
            "launches": [{**asdict(x), "work": x.work and x.work._asdict()} for x in self.launches],
        }

    def trace(self) -> dict[str, object]:
        """All calls as Chrome's trace events, which https://ui.perfetto.dev and chrome://tracing show.

        Events are named by the user's ops and lines; times are microseconds.
        """
        begin = self.calls[0][0]
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "hlo_disc"}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": self.name}},
        ]

        def event(name: str, kind: str, start: int, end: int, args: dict[str, object]) -> None:
            shared = {"ph": "X", "pid": 1, "tid": 1, "ts": (start - begin) / 1e3, "dur": (end - start) / 1e3}
            events.append({"name": name, "cat": kind, **shared, "args": args})

        details = [_details(launch) for launch in self.launches]
        for number, (start, end, times) in enumerate(self.calls):
            event(f"call {number}", "call", start, end, dict(self.dims))
            for (name, args), (first, last) in zip(details, times, strict=True):
                event(name, "kernel", first, last, args)
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"program": self._title()}}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `trace` as JSON.

        Args:
            path: the file, which is replaced.

        Raises:
            OSError: it cannot be written.
        """
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file, ensure_ascii=False)


def short_place(place: str) -> str:
    """Shorten a user's line to "model.py:12 (layer)", without directories, columns and inner functions."""
    found = re.fullmatch(r"(.*?):(\d+):\d+(.*)", place)
    if not found:
        return place
    function = re.sub(r"\.<locals>.*\)", ")", found[3])
    return f"{os.path.basename(found[1])}:{found[2]}{function}"


def _details(launch: LaunchTime) -> tuple[str, dict[str, object]]:
    """Return the name of a launch in a trace, and the details that are shown of it."""
    place = short_place(launch.place)
    args: dict[str, Any] = {"kernel": launch.kernel, "ops": launch.ops, "line": launch.place, "blocks": launch.blocks}
    if launch.number is not None:
        args["launch"] = launch.number
    if launch.work:
        args |= {"operations": launch.work.operations, "bytes": launch.work.bytes}
    return f"{launch.ops} {place}".strip(), args


def _time(seconds: float) -> str:
    """Format as "12.3 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _rate(amount: int | None, seconds: float) -> str:
    """Format as billions a second."""
    return f"{amount / seconds / 1e9:.3g}" if amount and seconds else ""
