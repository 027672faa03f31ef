"""Documents are easy to read: sentences are short, and links lead somewhere. `make lint` runs this file by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import FENCE

ROOT = Path(__file__).parents[3]
DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
GENERATED = {"docs/ops.md", "docs/rules.md", "docs/tensorflow_ops.md"}
IN_CELLS = {"docs/glossary.md"}  # documents whose tables have sentences


# ------------------------------------------------------------------------------------------------------- sentences


def sentences(text: str, in_cells: bool = False) -> list[int]:
    """Return the number of words of each sentence, from full stop to full stop. Inline code is one word.

    Sentences are in paragraphs and items of lists, not in headings and code; also in cells of tables, if `in_cells`.
    """
    text = FENCE.sub("", text)
    parts = []
    for part in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text):
        lines = re.sub(r"^ *(?:[-*]|\d+\.) ", "", part).split("\n")
        if not all(line.startswith("    ") for line in lines):
            parts.append(" ".join(line for line in lines if not line.startswith(("|", "#", "<"))))
    if in_cells:
        parts += [cell for row in re.findall(r"^\|.*", text, re.MULTILINE) for cell in re.findall(r"[^|]*[.?!] ", row)]
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", part)) for part in parts)
    counts = (len(sentence.split()) for part in plain for sentence in re.split(r"(?<=[.?!])[)*\"]*\s+", part))
    return [count for count in counts if count > 1]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in GENERATED])
def test_sentences_are_short(name: str) -> None:
    counts = sentences((ROOT / name).read_text(), name in IN_CELLS)
    assert sum(counts) <= 17 * len(counts) and max(counts) <= 40


def test_sentences_are_counted() -> None:
    text = "# No words\n\nOne two `three. four` five; [six\nseven.](x.md) (Eight: nine.) Ten\n\n    no words.\n\n"
    text += "One two:\n- one two three\n  four.\n  - one two\n    three\n1. one *two.*  one two\n\n"
    text += "| a b. c d e. | f g h i | `a` b? |\n"
    assert sentences(text) == [6, 2, 2, 4, 3, 2, 2]
    assert sentences(text, in_cells=True)[7:] == [2, 3, 2]


# ----------------------------------------------------------------------------------------------------------- links


def anchors(text: str) -> set[str]:
    """Return the names that GitHub gives to headings."""
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


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    assert not broken_links(ROOT / name)


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One, two\n[1](#one-two) [2](#three) [3](b.md) [4](a.md#one-two) [5](a.md#three)\n")
    assert broken_links(document) == ["#three", "b.md", "a.md#three"]
