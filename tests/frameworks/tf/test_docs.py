"""The examples of docs/tensorflow.md print what is shown."""

from __future__ import annotations

from pathlib import Path

from documents import check

DOCUMENT = Path(__file__).parents[3] / "docs" / "tensorflow.md"


def test_examples_print_what_is_shown() -> None:
    assert check(DOCUMENT.read_text()) == 5
