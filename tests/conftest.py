"""Options and fixtures that all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files instead of comparing with them"
    )
    parser.addoption("--native", type=Path, metavar="DIR", help="test the native module that was built in DIR")


def pytest_configure(config: pytest.Config) -> None:
    if directory := config.getoption("--native"):
        sys.meta_path.insert(0, _NativeFinder(directory / f"_ral{EXTENSION_SUFFIXES[0]}"))


class _NativeFinder:
    """Finds the native module in one given file, before the installed one."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            raise pytest.UsageError(f"--native: there is no {file}")
        self.file = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.file) if name == "hlo_disc.ral._ral" else None


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--update-golden")


@pytest.fixture
def no_leak() -> Iterator[None]:
    """Checks that everything the runtime handed out during the test has come back."""
    from gc import collect

    from hlo_disc.ral import live_bytes

    collect()
    before = live_bytes()
    yield
    collect()
    assert live_bytes() == before
