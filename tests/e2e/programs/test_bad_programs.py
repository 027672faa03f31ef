"""A bad program for each op family: a clear error that names the op and the user's line, and no abort.

The programs are in `bad_programs/*.txt`, one family a file. A program is

    // op | what is wrong | words of the error
    (arguments of main)
    text, whose last op is the wrong one

and may end with further functions after a line `---`. Those of `calls.txt` leave sizes open, and their first line ends
with the arguments of a call at which they disagree: a tuple is the shape of an array of ones, a list its elements.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import CallError, CompileError, HloDiscError, ShapeError

DIRECTORY = Path(__file__).parent / "bad_programs"
LINE = "model.py:12:3"
# What the parser itself refuses has no location yet: there it is the line of the text.
PLACE = re.compile(rf"{LINE}|<text>:\d+")


@dataclass(frozen=True)
class Bad:
    """op: as the error names it. words: of the error. call: what a call passes, as Python text."""

    op: str
    what: str
    words: str
    call: str
    text: str


def programs(path: Path) -> list[Bad]:
    found = []
    for part in re.split(r"^// ", path.read_text(), flags=re.MULTILINE)[1:]:
        head, arguments, rest = part.rstrip().split("\n", 2)
        body, _, functions = rest.partition("\n---\n")
        op, what, words, call = (*(x.strip() for x in head.split("|")), "", "")[:4]
        text = f'func.func @main{arguments} {{\n{body} loc("model.py":12:3)\nreturn\n}}\n{functions}'
        found.append(Bad(op, what, words, call, text))
    return found


STATIC = [
    pytest.param(bad, id=f"{path.stem}-{bad.op}-{bad.what}")
    for path in sorted(DIRECTORY.glob("*.txt"))
    if path.stem != "calls"
    for bad in programs(path)
]
CALLS = [pytest.param(bad, id=f"{bad.op}-{bad.what}") for bad in programs(DIRECTORY / "calls.txt")]


@pytest.mark.parametrize("bad", STATIC)
def test_refused(bad: Bad) -> None:
    with pytest.raises(HloDiscError) as error:
        hlo_disc.compile(bad.text)
    assert not isinstance(error.value, CompileError)  # it is the program's fault
    message = str(error.value)
    assert bad.op in message and bad.words in message and PLACE.search(message), message
    assert message.count(f"{bad.op} : ") <= 1  # in whichever regions it is


@pytest.mark.parametrize("bad", CALLS)
def test_call(bad: Bad) -> None:
    executable = hlo_disc.compile(bad.text)
    dtypes = [x.dtype for x in executable.program.inputs]
    given = ast.literal_eval(bad.call)
    arguments = [np.array(x, t) if isinstance(x, list) else np.ones(x, t) for x, t in zip(given, dtypes, strict=True)]
    with pytest.raises((ShapeError, CallError)) as error:
        executable(*arguments)
    message = str(error.value)
    assert bad.op in message and bad.words in message and LINE in message, message


# Only the location tells the verifier's message what op it is about.
REVERSED = '%r = "stablehlo.reverse"(%a) {dimensions = array<i64: 1>} : (tensor<2xf32>) -> tensor<2xf32>'


@pytest.mark.parametrize(
    "location, aliases",
    [
        ('loc("model.py":12:3)', ""),
        ('loc(callsite("reverse"("model.py":12:3) at "main.py":1:2))', ""),
        ("loc(#loc2)", '#loc1 = loc("model.py":12:3)\n#loc2 = loc("reverse"(#loc1))\n'),
    ],
)
def test_the_op_is_found_by_its_location(location: str, aliases: str) -> None:
    sine = "%s = stablehlo.sine %a : tensor<2xf32> loc(unknown)"
    text = f"func.func @main(%a: tensor<2xf32>) {{\n{sine}\n{REVERSED} {location}\nreturn\n}}\n{aliases}"
    with pytest.raises(HloDiscError, match=rf"^{LINE}.*: all dimensions should be .*\(in stablehlo.reverse\)$"):
        hlo_disc.compile(text)


def test_a_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(f"func.func @main(%a: tensor<2xf32>) {{\n{REVERSED}\nreturn\n}}")
    with pytest.raises(HloDiscError, match=rf"^{path}:2:6: all dimensions should be .*\(in stablehlo.reverse\)$"):
        hlo_disc.compile(path)


def test_every_family_has_programs() -> None:
    assert len({param.id.split("-")[0] for param in STATIC}) == 8 and len(STATIC) > 250 and len(CALLS) > 40
