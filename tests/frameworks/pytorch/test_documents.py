"""The examples of docs/pytorch.md print what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from documents import check

DOCUMENT = Path(__file__).parents[3] / "docs" / "pytorch.md"


@pytest.mark.filterwarnings("ignore")
def test_examples_print_what_is_shown(tmp_path, monkeypatch):
    import hlo_disc.torch.reports

    monkeypatch.chdir(tmp_path)
    hlo_disc.torch.reports._compilations.clear()
    torch._dynamo.reset()
    assert check(DOCUMENT.read_text()) > 3
