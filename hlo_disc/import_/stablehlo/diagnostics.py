"""The errors of MLIR's parser and verifier, as compilers write them: the user's line, the message, the op.

The verifier speaks of an op by its location, and often does not name it. The op is then looked up in the source: at
the position itself, or where the source writes that location, inline or as an alias (`#loc3`).
"""

from __future__ import annotations

import re

from hlo_disc.import_.stablehlo.decode import location_line
from hlo_disc.mlir import ir

_POSITION = re.compile(r":(\d+):(\d+)(?: \(|$)")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$", re.MULTILINE)
_LINK = re.compile(r"#loc\d*\b")
_OP = re.compile(r'(?:^|(?<=[\s"]))[a-z_]+\.[a-zA-Z_][\w.-]*')
_NAMED = re.compile(r"['\"]?\b(?:stablehlo|chlo|vhlo|func)\.\w")
_ADVICE = ". If this is intended, please"  # to a developer of MLIR
_OPENING, _CLOSING = "([{", ")]}"
_SHOWN = 600  # characters of a message, which may quote a word of any length


def describe(error: ir.MLIRError, name: str, source: str) -> str:
    """Format the errors, one on each line.

    name: that of the parsed input, for positions in it. source: its text, "" for bytecode.
    """
    lines = []
    for diagnostic in error.error_diagnostics:
        message = _shortened(diagnostic.message.strip().partition(_ADVICE)[0])
        # A diagnostic's location does not know of which kind it is.
        location = ir.Location.from_attr(diagnostic.location.attr, diagnostic.location.context)
        op = "" if _NAMED.search(message) else _op_at(location, name, source)
        lines.append(f"{_place(location, name)}: {message}{f' (in {op})' if op else ''}")
        # Which dialects there are helps nobody whose file is no MLIR.
        notes = [note.message.strip() for note in diagnostic.notes if "vailable dialects" not in note.message]
        lines += [f"  {_shortened(note)}" for note in notes]
    return "\n".join(lines) or f"{name}: {error}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _place(location: ir.Location, name: str) -> str:
    line = location_line(location)
    if not line or ":0:0" in line:  # bytecode has no positions
        return name
    return line.replace("<text>", name, 1) if line.startswith("<text>") else line


def _op_at(location: ir.Location, name: str, source: str) -> str:
    """Return the name of the op that a diagnostic is about, or ""."""
    line = location_line(location)
    position = _POSITION.search(line)
    if not source or position is None:
        return ""
    file = line[: position.start()]
    if file in ("<text>", name):
        return _enclosing(source, _offset(source, int(position[1]), int(position[2])), location.context)
    return _located(source, f'"{file}":{position[1]}:{position[2]}', location.context)


def _offset(source: str, line: int, column: int) -> int:
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column - 1


def _enclosing(source: str, at: int, context: ir.Context) -> str:
    """Return the op that begins at a position, or else the last one before it whose brackets are still open."""
    begins = _OP.match(source, at + (source[at : at + 1] == '"'))
    if begins and context.is_registered_operation(begins[0]):
        return begins[0]
    names = {m.start(): m[0] for m in _OP.finditer(source, 0, at) if context.is_registered_operation(m[0])}
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (source[i] in _CLOSING) - (source[i] in _OPENING)
        if depth <= 0 and i in names:
            return names[i]
    return ""


def _located(source: str, place: str, context: ir.Context) -> str:
    """Return the first op whose location is this position, or an alias of it."""
    aliases = _ALIAS.findall(source)
    wanted: set[str] = set()
    found = {alias for alias, inside in aliases if place in inside}
    while found:
        wanted |= found
        found = {a for a, inside in aliases if a not in wanted and not wanted.isdisjoint(_LINK.findall(inside))}
    for at in re.finditer(r"^(?!#loc).*?\b(loc\(.*)$", source, re.MULTILINE):
        if place in at[1] or not wanted.isdisjoint(_LINK.findall(at[1])):
            if op := _enclosing(source, at.start(1), context):
                return op
    return ""
