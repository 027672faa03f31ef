"""Documents whose examples are run: do they print what is shown?

In a document, a block of `python` is run as a file example.py; those of one document share their names. The block
without a language after it is what it prints. In a block of `console` each line after `$ ` is a command of hlo-disc,
and what follows it is what it prints. `...` stands for anything, as in doctest.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from typing import Any, NamedTuple

from click.testing import CliRunner

FENCE = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n*^```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Example(NamedTuple):
    """line: of the document. source: a command where it begins with hlo-disc, Python otherwise."""

    line: int
    source: str
    want: str


def examples(text: str) -> list[Example]:
    """The examples of a document in their order. Raises AssertionError for output that belongs to none."""
    blocks = list(PYTHON.finditer(text))
    ends = {block.end() for block in blocks}
    for block in FENCE.finditer(text):
        assert block[1] or block.end() in ends, f"line {line(text, block.start())}: output of nothing"
    found = [Example(line(text, block.start(1)), block[1], block[2] or "") for block in blocks]
    for session in CONSOLE.finditer(text):
        for command in COMMAND.finditer(text, *session.span(1)):
            found.append(Example(line(text, command.start()), command[1], command[2]))
    return sorted(found)


def line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def output(example: Example, names: dict[str, Any]) -> str:
    if example.source.startswith("hlo-disc "):
        from hlo_disc.cli import main  # here, because `make lint` runs tests of prose, which need no more

        return CliRunner().invoke(main, shlex.split(example.source)[1:]).output
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example.source, "example.py", "exec"), names)
    return printed.getvalue()


def check(text: str) -> int:
    """Run the examples of a document; how many there are. Raises AssertionError for one that prints something else."""
    names: dict[str, Any] = {"__name__": "__main__"}
    checker, count = doctest.OutputChecker(), 0
    for example in examples(text):
        got = output(example, names)
        if not checker.check_output(example.want, got, doctest.ELLIPSIS):
            told = doctest.Example(example.source, example.want)
            flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
            raise AssertionError(f"line {example.line}:\n{checker.output_difference(told, got, flags)}")
        count += 1
    return count
