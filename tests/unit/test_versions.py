"""The versions of Python and of dependencies: pyproject.toml says the same of them in several places."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from hlo_disc import mlir

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]


def required(texts) -> dict[str, Requirement]:
    return {requirement.name: requirement for requirement in map(Requirement, texts)}


RANGES = required(PROJECT["dependencies"])


@pytest.mark.parametrize("name", RANGES)
def test_lowest_are_the_lower_bounds(name):
    pins = [p for p in map(Requirement, PROJECT["optional-dependencies"]["lowest"]) if p.name == name]
    (lower,) = (s.version for s in RANGES[name].specifier if s.operator == ">=")
    assert min(Version(s.version) for pin in pins for s in pin.specifier) == Version(lower)
    for python in ("3.11", "3.12", "3.13"):
        assert len([p for p in pins if p.marker is None or p.marker.evaluate({"python_version": python})]) == 1


def test_what_builds_is_what_runs():
    assert required(SETTINGS["build-system"]["requires"])["jaxlib"].specifier == RANGES["jaxlib"].specifier
    assert RANGES["jax"].specifier == RANGES["jaxlib"].specifier


def test_a_free_threaded_python_is_refused(tmp_path):
    """A Python that says of itself that it has no interpreter lock is refused, as a free-threaded one would be."""
    (tmp_path / "sitecustomize.py").write_text("import sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n")
    cmake = [Path(sysconfig.get_path("scripts")) / "cmake", "-S", ROOT, "-B", tmp_path / "build"]
    done = subprocess.run(
        [*cmake, f"-DPython_EXECUTABLE={sys.executable}"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "is a free-threaded Python, on which hlo_disc does not run" in " ".join(done.stderr.split())


def test_modules_have_the_same_text_with_each_jaxlib():
    """Names of functions stand before or behind regions, and the dims of gpu are printed in two ways."""
    before = b"""
"gpu.func"() <{function_type = () -> (), sym_name = "one"}> ({ "gpu.block_id"() <{d = #gpu.dim<x>}> }) {gpu.kernel}
"gpu.func"() <{function_type = () -> (), sym_name = "two"}> ({ "gpu.return"() }) {gpu.kernel}"""
    behind = b"""
"gpu.func"() <{function_type = () -> ()}> ({ "gpu.block_id"() <{d = #gpu<dim x>}> }) {gpu.kernel, sym_name = "one"}
"gpu.func"() <{function_type = () -> ()}> ({ "gpu.return"() }) {gpu.kernel, sym_name = "two"}"""
    exchanged = before.replace(b"one", b"x").replace(b"two", b"one").replace(b'x"', b'two"')
    texts = [identity_of(text) for text in (before, behind, exchanged)]
    assert texts[0] == texts[1] != texts[2]


def identity_of(text: bytes) -> bytes:
    return mlir.identity(SimpleNamespace(operation=SimpleNamespace(get_asm=lambda **_: text)))
