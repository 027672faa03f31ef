"""Every helper can be imported: some serve commands alone, which no other test runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

HELPERS = sorted(path.stem for path in (Path(__file__).parents[2] / "oracle").glob("*.py"))


@pytest.mark.parametrize("name", HELPERS)
def test_import(name):
    importlib.import_module(name)
