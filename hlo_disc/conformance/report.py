"""The reports of a conformance run: a table for each op, failures with reasons, times; JUnit XML; JSON."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hlo_disc.conformance.run import SHAPES, STATUSES, Result

_SHOWN = 240  # characters of a reason; the files have all
_GOOD = ("passed", "skipped")


def has_failed(result: Result) -> bool:
    return result.status not in _GOOD


def show(results: Sequence[Result], wall: float, console: Console) -> None:
    """Show the summary for each op, the failures by cause, times and totals."""
    for result in sorted(filter(has_failed, results), key=lambda r: (r.status, r.name)):
        console.print(Text(f"{result.status:<11} {result.name}: {result.reason[:_SHOWN]}"), soft_wrap=True)
    console.print(_by_op(results))
    _causes(results, console)
    _opened(results, console)
    _few_shapes(results, console)
    _times(results, wall, console)
    console.print(f"{total(results)} in {wall:.1f} s", soft_wrap=True)


def total(results: Iterable[Result]) -> str:
    """Return one line: how many of each status, for each kind of case."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        kinds[result.kind or "unread"][result.status] += 1
    parts = []
    for kind, counts in sorted(kinds.items()):
        shown = ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])
        parts.append(f"{kind}: {shown} of {sum(counts.values())}")
    return "; ".join(parts)


def _by_op(results: Sequence[Result]) -> Table:
    ops: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        ops[result.op or "?"][result.status] += 1
    columns = [s for s in STATUSES if any(counts[s] for counts in ops.values())]
    table = Table("op", *columns)
    for op, counts in sorted(ops.items()):
        table.add_row(op, *(str(counts[s]) if counts[s] else "" for s in columns))
    return table


# "op : (types) -> types at line: reason", as UnsupportedOpError says it.
_OP = re.compile(r"(\S+) : \(.*?\) -> \(.*?\)(?: at \S+(?: \([^)]*\))?)?: (.*)$")


def cause(result: Result) -> str:
    """Return the reason without the parts that belong to one case: file, sizes, values, positions."""
    text = _OP.sub(r"\1: \2", result.reason)
    text = re.sub(rf"\S*(?:{re.escape(result.name)}|\.mlir)(?::\d+)*", "FILE", text)
    text = re.sub(r"tensor<[^>]*>+", "tensor", text)
    return re.sub(r"-?\b\d[\w.+-]*", "#", text)[:140]


def _causes(results: Sequence[Result], console: Console) -> None:
    causes: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.status != "passed":
            causes[f"{result.status}: {cause(result)}"].append(result.name)
    for text, names in sorted(causes.items(), key=lambda item: -len(item[1])):
        shown = f"{names[0]}, …" if len(names) > 1 else names[0]
        console.print(Text(f"{len(names):5} {text} ({shown})"), soft_wrap=True)


def _opened(results: Sequence[Result], console: Console) -> None:
    opened = [r for r in results if r.opened]
    if opened:
        passed = sum(r.status == "passed" for r in opened)
        candidates = sum(bool(r.opened) or r.reason.startswith("not re-opened") for r in results)
        console.print(f"re-opened {len(opened)} of {candidates}, of which {passed} passed")


def _few_shapes(results: Sequence[Result], console: Console) -> None:
    few = [r for r in results if r.kind == "differential" and r.status == "passed" and r.shapes < SHAPES]
    if few:
        shown = ", ".join(f"{r.name} ({r.shapes})" for r in few)
        console.print(f"passed at fewer than {SHAPES} shapes: {shown}", soft_wrap=True)


def _times(results: Sequence[Result], wall: float, console: Console) -> None:
    seconds: dict[str, float] = defaultdict(float)
    for result in results:
        for stage, spent in result.seconds.items():
            seconds[stage] += spent
    shown = sorted(seconds.items(), key=lambda item: (item[0].partition(":")[0], item[0]))
    console.print("seconds in workers: " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in shown), soft_wrap=True)


def write_junit(results: Sequence[Result], path: Path) -> None:
    """Write the results in JUnit's XML form."""
    suite = ElementTree.Element(
        "testsuite",
        name="conformance",
        tests=str(len(results)),
        failures=str(sum(r.status == "failed" for r in results)),
        errors=str(sum(has_failed(r) and r.status != "failed" for r in results)),
        skipped=str(sum(r.status == "skipped" for r in results)),
    )
    for r in results:
        own = sum(spent for stage, spent in r.seconds.items() if ":" not in stage)
        case = ElementTree.SubElement(suite, "testcase", classname=r.kind or "unread", name=r.name, time=f"{own:.3f}")
        if r.status != "passed":
            tag = {"skipped": "skipped", "failed": "failure"}.get(r.status, "error")
            ElementTree.SubElement(case, tag, type=r.status, message=_printable(r.reason))
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """Remove control characters, which XML does not have."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write all results as a JSON list."""
    path.write_text(json.dumps([vars(r) for r in results], indent=1) + "\n")
