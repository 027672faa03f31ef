"""Every helper can be imported: some serve commands alone, which no other test runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[2] / "oracle"
HELPERS = sorted(
    ".".join(path.relative_to(ORACLE).with_suffix("").parts)
    for path in [*ORACLE.glob("*.py"), *ORACLE.glob("*/*.py")]
    if path.stem not in ("__init__", "__main__")
)


@pytest.mark.parametrize("name", HELPERS)
def test_import(name):
    importlib.import_module(name)
