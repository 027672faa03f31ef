"""A run on a GPU, rehearsed: kernels that end their process, hang or are wrong cost no other test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAMS = """
import os, time
import pytest

@pytest.mark.parametrize("number", range(4))
def test_right(number):
    assert number >= 0

def test_ends_its_process():
    os.abort()

def test_hangs():
    time.sleep(600)

def test_wrong():
    assert 2 == 3
"""


def test_what_goes_wrong_costs_no_other_test(tmp_path):
    (words,) = re.findall(r"^ON_HARDWARE := \$\(HARDWARE\) (.*)", (ROOT / "Makefile").read_text(), re.M)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["faulthandler_timeout"] > 0 and settings["faulthandler_exit_on_timeout"]
    (tmp_path / "test_programs.py").write_text(PROGRAMS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 3\nfaulthandler_exit_on_timeout = true\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    command = [sys.executable, *words.replace("-n auto", "-n 2").split(), "-rA", "test_programs.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    outcomes = {name: outcome for outcome, name in re.findall(r"^(PASSED|FAILED) \S+::(\S+)", run.stdout, re.M)}
    assert outcomes == {
        **{f"test_right[{k}]": "PASSED" for k in range(4)},
        **dict.fromkeys(("test_ends_its_process", "test_hangs", "test_wrong"), "FAILED"),
    }, run.stdout
    assert run.returncode == 1
