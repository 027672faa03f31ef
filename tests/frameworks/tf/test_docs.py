"""The examples of docs/tensorflow.md print what is shown."""

from tests.e2e.test_docs import ROOT, check


def test_examples_print_what_is_shown():
    assert check((ROOT / "docs" / "tensorflow.md").read_text()) == 3
