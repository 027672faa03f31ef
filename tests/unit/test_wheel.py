"""The files that `make wheel` puts into a wheel, and what it looks for there."""

from __future__ import annotations

import zipfile
from pathlib import Path

import click
import pytest

from hlo_disc.cache.directory import BUILD
from tools import wheel as tool

RECORD = "hlo_disc-0.1.0.dist-info/RECORD"
FILES = ("licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES.txt", f"hlo_disc/{BUILD}", "hlo_disc/ral/_ral.so")


@pytest.fixture
def wheel(tmp_path) -> Path:
    path = tmp_path / "hlo_disc-0.1.0-py3-none-any.whl"
    rows = [f"{name},{tool.recorded(name.encode())},{len(name)}" for name in FILES]
    with zipfile.ZipFile(path, "w") as made:
        for name in FILES:
            made.writestr(name, name)
        made.writestr(RECORD, "\n".join([*rows, f"{RECORD},,", ""]))
    return path


def test_kernels_are_added_and_recorded(wheel):
    with pytest.raises(click.ClickException, match=f"has no {tool.KERNELS}"):
        tool.check_contents(wheel)
    tool.add(wheel, tool.KERNELS, b"kernels" * 1000)
    tool.check_contents(wheel)
    with zipfile.ZipFile(wheel) as content:
        assert content.read(tool.KERNELS) == b"kernels" * 1000
        assert {*content.namelist()} == {*FILES, RECORD, tool.KERNELS}


def test_a_record_that_is_not_true_is_refused(wheel):
    tool.add(wheel, tool.KERNELS, b"kernels")
    with zipfile.ZipFile(wheel, "a") as content:
        content.writestr("hlo_disc/more.py", "")
    with pytest.raises(click.ClickException, match="is not true of .*more.py"):
        tool.check_contents(wheel)


def test_too_many_kernels_are_refused(wheel, monkeypatch):
    monkeypatch.setattr(tool, "MOST_KERNELS", 4)
    tool.add(wheel, tool.KERNELS, b"kernels")
    with pytest.raises(click.ClickException, match="more than 4"):
        tool.check_contents(wheel)
