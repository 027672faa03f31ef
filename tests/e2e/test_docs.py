"""What users read is true: examples print what is shown, links lead somewhere, public names are explained.

In a document, a block of `python` is run as a file example.py; those of one document share their names. The block
without a language after it is what it prints. In a block of `console` each line after `$ ` is a command of hlo-disc,
and what follows it is what it prints. `...` stands for anything, as in doctest.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import logging
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc.cli import main

ROOT = Path(__file__).parents[2]
RUN = ("README.md", "docs/guide.md")
LINKED = (*RUN, "docs/architecture.md", "docs/ops.md", "docs/tensorflow.md")
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


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory, and a logger that is as before when the test ends."""
    logger = logging.getLogger("hlo_disc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)


@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
@pytest.mark.parametrize("name", RUN)
def test_examples_print_what_is_shown(name: str, workplace: None) -> None:
    assert check((ROOT / name).read_text()) > 4


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n\n```\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\ntext\n\n```\n1\n```\n",
        "```python\nx = 1\n```\n\n```\n1\n```\n",
        "```console\n$ hlo-disc --version\nhlo-disc, version 0\n```\n",
    ],
    ids=["other output", "no output shown", "output of nothing", "nothing printed", "command"],
)
def test_what_is_not_shown_is_seen(text: str) -> None:
    with pytest.raises(AssertionError, match=r"line \d"):
        check(text)


# ----------------------------------------------------------------------------------------------------------- links


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", document.read_text())):
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target.read_text()))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_somewhere(name: str) -> None:
    assert not broken_links(ROOT / name)


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One, two\n[1](#one-two) [2](#three) [3](b.md) [4](a.md#one-two) [5](a.md#three)\n")
    assert broken_links(document) == ["#three", "b.md", "a.md#three"]


# ---------------------------------------------------------------------------------------------------- public names


def public() -> dict[str, Any]:
    """Public names, and the methods and properties that their classes define."""
    found = {name: getattr(hlo_disc, name) for name in hlo_disc.__all__}
    for name, value in list(found.items()):
        if inspect.isclass(value):
            for member, what in vars(value).items():
                what = inspect.unwrap(getattr(what, "__func__", what))
                if (member == "__call__" or member[0] != "_") and (inspect.isfunction(what) or type(what) is property):
                    found[f"{name}.{member}"] = what
    return found


@pytest.mark.parametrize("name", public())
def test_public_names_are_explained(name: str) -> None:
    value = public()[name]
    text = value.__doc__ or ""
    assert text.strip() and not text.startswith(f"{name}("), "no docstring of its own"
    if type(value) is property or inspect.isclass(value) and issubclass(value, Exception):
        return
    if name not in ("JitFunction", "Lowered"):  # whoever uses hlo_disc makes none
        parameters = {*inspect.signature(value).parameters} - {"self"}
        section = re.search(r"^ *Args:\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
        explained = set(re.findall(r"^ *(\w+): ", section[1], re.MULTILINE)) if section else set()
        assert parameters <= explained


@pytest.mark.parametrize("name", [name for name, value in public().items() if ">>> " in value.__doc__])
def test_examples_of_docstrings(name: str) -> None:
    globs = {"hlo_disc": hlo_disc, "np": np}
    test = doctest.DocTestParser().get_doctest(public()[name].__doc__, globs, name, None, None)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_reference_names_them_all(tmp_path: Path) -> None:
    pdoc = pytest.importorskip("pdoc")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc("hlo_disc", "!hlo_disc.", output_directory=tmp_path)
    page = (tmp_path / "hlo_disc.html").read_text()
    sections = set(re.findall(r'id="([\w.]+)"', page))
    assert {name for name in public() if not name.endswith("__call__")} <= sections
