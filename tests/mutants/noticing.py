"""The lines that pytest writes for `run.py`, one for each failure: its phase, and its test.

A fault is noticed when a test says so, while it runs or when it looks at what it leaves behind; then nothing more need
run. A fault may also let a file not be collected, a fixture not be made or the package not be imported. It then breaks
everything, whatever the tests look at. That shows nothing about them, and the others run on.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

REPORT, PACKAGE = "MUTANT_REPORT", "MUTANT_PACKAGE"
TEST, SETUP, COLLECTION, IMPORT = "test", "setup", "collection", "import"


def _note(phase: str, node: str) -> None:
    with open(os.environ[REPORT], "a") as report:
        report.write(f"{phase} {node}\n")


def _is_import(call: pytest.CallInfo) -> bool:
    """Return whether what failed runs when a module of the package is imported."""
    frames = call.excinfo.traceback if call.excinfo else ()
    package = Path(os.environ[PACKAGE])
    return any(frame.name == "<module>" and package in Path(frame.path).parents for frame in frames)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        broken = _is_import(call)
        phase = IMPORT if broken else SETUP if call.when == "setup" else TEST
        _note(phase, item.nodeid)
        if phase == TEST:
            item.session.shouldfail = "the fault is noticed"
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _note(COLLECTION, report.nodeid)
