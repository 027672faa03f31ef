"""Sixty of PyTorch's ops as its own database samples them, next to eager mode; `make torch-ops` runs all.

opinfo_failures.txt lists those that are not ok: `opinfo.py --failures` writes it anew. Only types are drawn from that
were run as a whole.
"""

from __future__ import annotations

import random

import opinfo
import pytest

DTYPES = ["float32"]
COUNT = 60


def _drawn() -> list[tuple[str, str]]:
    failing = opinfo.known_failures()
    known = [x for x in opinfo.cases("*", DTYPES, False) if opinfo.kind_key(*x, False) not in failing]
    return random.Random(0).sample(known, COUNT)


@pytest.mark.parametrize(("name", "dtype"), _drawn())
def test_ops_are_as_in_eager_mode(name, dtype):
    row = opinfo.check(name, dtype, 2, False, kind="unknown")
    assert row["status"] == "ok", row.get("error")
