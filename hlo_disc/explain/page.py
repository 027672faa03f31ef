"""A compiled program as one HTML page that loads nothing from a network: the template, and its data.

Weights are never in it. The user's lines are read when the page is written, if their files exist.
"""

from __future__ import annotations

import json
import linecache
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, TypeVar

from hlo_disc.compiled.account import Launch, parse
from hlo_disc.compiled.program import GuardRow, Program
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.explain.text import main_ops, ops_text

T = TypeVar("T")

# Lines around one of the user's, the most characters of one, and the most lines of all files.
_AROUND, _CHARACTERS, _LINES = 2, 160, 2000
_PLACE = re.compile(r"(.*?):(\d+):\d+(?: \((.*)\))?")
# What the page calls the operators of a Dim.
_SIGNS = {"add": "+", "mul": "*", "floordiv": "/", "mod": "%", "min": "min", "max": "max"}


def page(programs: Sequence[Program], profile: Mapping[str, object] | None = None) -> str:
    """Return the page as text.

    profile: `Profile.as_dict` of a program of this name. Programs without an account are left out.
    """
    data = {"programs": [_program(p) for p in programs if p.account], "profile": profile}
    return filled((resources.files("hlo_disc.explain") / "page.html").read_text(encoding="utf-8"), data)


def filled(template: str, data: object) -> str:
    """Return a page: a template with this package's files in the places of their names, and the data as JSON."""
    # JSON that ends no script element, whatever its strings are.
    embedded = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    before, _, after = template.partition("{{data}}")
    before, after = (re.sub(r"\{\{([\w.]+)\}\}", _text_of, part) for part in (before, after))
    return before + embedded + after


def _text_of(place: re.Match[str]) -> str:
    return (resources.files("hlo_disc.explain") / place[1]).read_text(encoding="utf-8")


def write(
    path: str | os.PathLike[str], programs: Sequence[Program], profile: Mapping[str, object] | None = None
) -> None:
    """Write the page. Raises OSError."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(programs, profile))


def _itself(x: T) -> T:
    return x


def _operator(sign: str) -> Callable[[object, object], list[object]]:
    return lambda a, b: [sign, a, b]


_OPERATORS = {name: _operator(sign) for name, sign in _SIGNS.items()}


class _Sizes:
    """The expressions of sizes, each once, in the page's form: a number, a symbol, or [operator, left, right]."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.symbols: dict[str, None] = {}
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.found))
        if number == len(self.found):
            dim = Dim.parse(text)
            self.found.append(dim.lower(_itself, _itself, _OPERATORS))
            self.symbols.update(dict.fromkeys(sorted(s for s in dim.symbols if not s.startswith("%"))))
        return number


def _program(program: Program) -> dict[str, object]:
    p, account, sizes = program, parse(program.account), _Sizes()
    raw = {f"%{i}.{axis}": sizes(d) for i, x in enumerate(p.inputs) for axis, d in enumerate(x.shape)}
    reasons: dict[int, list[Any]] = {}
    for split in account.splits:
        reasons.setdefault(split.launch, []).append([split.op, split.place, split.reason])
    files, places = _sources(account.places)
    return {
        "name": account.name,
        "source": p.source,
        "target": p.target,
        "features": p.features,
        "inputs": list(map(str, p.inputs)),
        "outputs": list(map(str, p.outputs)),
        "guards": [_condition(x, p, sizes) for x in p.guards],
        "asked": [_condition(x, p, sizes) for x in p.asked],
        "raw": raw,
        "code": len(p.object),
        "constants": [len(p.constants), p.weights],
        "packs": len(p.packs),
        "kernels": len(account.kernels),
        "compile": [[name, ms] for name, ms in p.compile_ms.items()],
        "launches": [_launch(launch, reasons.get(i, []), sizes) for i, launch in enumerate(account.launches)],
        "unplaced": reasons.get(-1, []),
        "flow": account.flow,
        "slots": [
            [sizes(slot.bytes), slot.late, [[x.type, sizes(x.bytes), x.first, x.last] for x in slot.values]]
            for slot in account.slots
        ],
        "files": files,
        "places": places,
        "sizes": sizes.found,
        "symbols": list(sizes.symbols),
        "largest": _largest(p.guards),
    }


def _condition(guard: GuardRow, program: Program, sizes: _Sizes) -> dict[str, object]:
    """Return a condition's text, with the sizes of arguments by their names, and the two sizes that it compares."""

    def named(text: str) -> str:
        return re.sub(r"%(\d+)\.(\d+)", lambda m: f"{program.inputs[int(m[1])].name}.shape[{m[2]}]", text)

    text = f"{named(guard.lhs)} {guard.relation} {named(guard.rhs)}"
    return {"text": text, "test": [sizes(guard.lhs), guard.relation, sizes(guard.rhs)], "message": guard.message}


def _largest(guards: Iterable[GuardRow]) -> dict[str, int]:
    """Return the largest size of each dim that has one."""
    found = {}
    for x in guards:
        if x.rhs.isdigit() and x.relation in ("<=", "<") and re.fullmatch(r"\w+", x.lhs):
            found[x.lhs] = int(x.rhs) - (x.relation == "<")
    return found


def _launch(launch: Launch, reasons: list[list[object]], sizes: _Sizes) -> dict[str, object]:
    by_place: dict[int, list[Any]] = {}
    for op in launch.ops:
        by_place.setdefault(op[1], []).append(op)
    forms = [
        [form.kernel, [[sizes(x.size), x.relation, x.bound, str(x)] for x in form.when], form.packed, form.declines]
        for form in launch.forms
    ]
    return {
        "forms": forms,
        "writes": launch.writes,
        "ops": main_ops(launch.ops),
        "lines": [[place, ops_text(ops)] for place, ops in by_place.items()],
        "bytes": sizes(launch.bytes),
        "operations": sizes(launch.operations),
        "at": launch.at,
        "reasons": reasons,
    }


def _sources(places: Sequence[str]) -> tuple[Sequence[object], Sequence[object]]:
    """Return the files with the user's lines, and for each location its file, line and function; -1 if it is no line.

    A file is its name and some lines with their numbers. The lines have text if the file can be read.
    """
    numbers: dict[str, int] = {}
    wanted: list[set[int]] = []
    found: list[Any] = []
    for place in places:
        match = _PLACE.fullmatch(place)
        if not match:
            found.append([-1, 0, place])
            continue
        file = numbers.setdefault(match[1], len(wanted))
        if file == len(wanted):
            wanted.append(set())
        wanted[file].add(int(match[2]))
        found.append([file, int(match[2]), match[3] or ""])
    left = _LINES
    files = []
    for name, lines in zip(numbers, wanted, strict=True):
        shown = _excerpt(name, lines)[:left]
        left -= len(shown)
        files.append([name, shown])
    return files, found


def _excerpt(name: str, lines: set[int]) -> list[object]:
    """Return these lines of a file and some around them, with numbers; only the lines if there is no such file."""
    try:
        text = linecache.getlines(name)
    except (OSError, ValueError, MemoryError):
        text = []
    if not text:
        return [[number, ""] for number in sorted(lines)]
    near = {n for line in lines for n in range(line - _AROUND, line + _AROUND + 1) if 1 <= n <= len(text)}
    return [[n, text[n - 1].rstrip()[:_CHARACTERS] if n <= len(text) else ""] for n in sorted(near | lines)]
