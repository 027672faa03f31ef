"""The pages of docs/internals: their examples are what the stages make now, and what they name is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import internals

ROOT = Path(__file__).parents[3]
PARTS = ["The problem", "The picture", "The example", "How it works", "Files", "To change it"]
NAMED = re.compile(r"`((?:hlo_disc|tests|tools|docs)/[\w./]+)`")


def text(page: str) -> str:
    return (internals.DIRECTORY / page).read_text()


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return internals.blocks()


@pytest.mark.parametrize("page", internals.PAGES)
def test_the_examples_are_current(page: str, made: dict[str, str]) -> None:
    assert text(page) == internals.filled(text(page), made), "run python tools/internals.py"


def test_every_example_is_shown_once(made: dict[str, str]) -> None:
    shown = [name for page in internals.PAGES for _, name, _ in internals.BLOCK.findall(text(page))]
    assert sorted(shown) == sorted(made)


def test_another_example_is_seen() -> None:
    page = "<!-- made by tools/internals.py: one -->\nold\n<!-- end -->\nand\n"
    assert internals.filled(page, {"one": "new"}) == page.replace("old", "new")
    with pytest.raises(KeyError):
        internals.filled(page, {})


@pytest.mark.parametrize("page", internals.PAGES)
def test_a_page_has_all_parts(page: str) -> None:
    parts = re.split(r"^## (.*)$", text(page), flags=re.MULTILINE)[1:]
    assert parts[::2] == PARTS and all(part.strip() for part in parts[1::2])
    example = parts[parts.index("The example") + 1]
    assert internals.BLOCK.search(example)


@pytest.mark.parametrize("page", internals.PAGES)
def test_a_page_is_a_screen_or_two(page: str) -> None:
    lines = text(page).split("\n")
    assert 60 <= len(lines) <= 131 and max(map(len, lines)) <= 130


@pytest.mark.parametrize("page", internals.PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    named = NAMED.findall(text(page))
    assert len(named) > 4 and not [name for name in named if not (ROOT / name).exists()]
    files = text(page).split("## Files\n")[1].split("## ")[0]
    assert all(NAMED.search(line) for line in re.findall(r"^- (?:.*\n  )*.*$", files, re.MULTILINE))


@pytest.mark.parametrize("page", internals.PAGES)
def test_values_that_a_page_names_are_in_its_examples(page: str) -> None:
    shown = " ".join(found[0] for found in internals.BLOCK.finditer(text(page)))
    named = re.findall(r"`(%[\w.]+)`", internals.BLOCK.sub("", text(page)))
    kernels = re.findall(r"\b(k\d_\w+)", text(page))
    values = set(re.findall(r"%[\w.]+|\bk\d_\w+", shown))
    assert {*named, *kernels} <= values


def test_pages_lead_to_the_next_one() -> None:
    for page, following in zip(internals.PAGES, internals.PAGES[1:], strict=False):
        title = text(following).split("\n")[0].removeprefix("# ").split(":")[0]
        assert re.search(rf"^Next: \[{re.escape(title)}\]\({re.escape(following)}\)$", text(page), re.MULTILINE)
    assert sorted(path.name for path in internals.DIRECTORY.iterdir()) == sorted(internals.PAGES)
