"""Sixty of PyTorch's ops as its own database samples them, next to eager mode; `make torch-ops` runs all.

opinfo_failures.txt lists those that are not ok: `opinfo.py --failures` writes it anew for the cases that it runs.
"""

from __future__ import annotations

import opinfo
import pytest

DTYPES = ["float32"]
COUNT = 60


def _drawn() -> list[tuple[str, str]]:
    failing = opinfo.known_failures()
    order = opinfo.shuffled(list(opinfo.cases("*", DTYPES, False)))
    return [x for x in order if opinfo.kind_key(*x, False) not in failing][:COUNT]


@pytest.mark.parametrize(("name", "dtype"), _drawn())
def test_ops_are_as_in_eager_mode(name, dtype):
    row = opinfo.check(name, dtype, 2, False, kind="unknown")
    assert row["status"] == "ok", row.get("error")
