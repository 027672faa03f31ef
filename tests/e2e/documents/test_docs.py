"""The documents are true: examples print what is shown, and public names are explained."""

from __future__ import annotations

import doctest
import inspect
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import check

import hlo_disc

ROOT = Path(__file__).parents[3]
RUN = ("README.md", "docs/guide.md")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test in an empty directory, with a logger that is restored when the test ends."""
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


# ---------------------------------------------------------------------------------------------------- public names


def public() -> dict[str, Any]:
    """Return public names, and the methods and properties that their classes define."""
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
