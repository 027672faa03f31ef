"""The faults of `make mutants` can be planted, a change that moves what they change moves them too; what finds one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import child
import pytest

RUNNER = Path(__file__).parents[2] / "mutants" / "run.py"
LISTED = """
import touched
found = touched.chosen({"cache/programs.py", "stitch/hostflow/flow.py", "ral/core/threads/team.cc"}, 12345)
print(len({m.area for m in found}) == len(found), 1 < len(found) <= touched.MOST, *{m.file for m in found})
print(touched.chosen({"explain/page.css"}, 7), touched.chosen(set(), 7))
"""
# In this order they run; the last of them would fail, and does not.
FILES = {
    "a": "import hlo_disc.broken",
    "b": """
import pytest
@pytest.fixture
def made(): assert 0
def test_setup(made): pass
def test_import(): import hlo_disc.broken
def test_passes(): pass
""",
    "c": """
import pytest
@pytest.fixture
def left(): yield; assert not "left behind"
def test_teardown(left): pass
def test_after_it(): assert 0
""",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(RUNNER.parent)
    return importlib.import_module("run")


def test_every_fragment_occurs_once():
    child.python(RUNNER, "--check")


def test_a_few_are_of_the_files_that_a_change_touches():
    first, second = child.python("-c", LISTED, cwd=RUNNER.parent).splitlines()
    assert first.split()[:2] == ["True", "True"] and "ral/core/threads/team.cc" not in first
    assert second == "[] []"


def test_what_is_noted_of_tests(run, tmp_path):
    package = tmp_path / "hlo_disc"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "broken.py").write_text("1 / 0")
    (tmp_path / "sitecustomize.py").write_text(run.SITE)
    files = [tmp_path / f"test_{name}.py" for name in FILES]
    for file, text in zip(files, FILES.values(), strict=True):
        file.write_text(text)
    where = run.environment_of("unit/oracle/test_mutants.py")
    status, notes = run.noted(where, [str(file) for file in files], 300, package, ["--rootdir", str(tmp_path)])
    noted = ["collection: test_a.py", "setup: test_b.py::test_setup", "import: test_b.py::test_import"]
    assert [str(note) for note in notes] == [*noted, "test: test_c.py::test_teardown"]
    assert str(run.outcome_of(status, notes)) == "test: test_c.py::test_teardown"


@pytest.mark.parametrize(
    ("status", "notes", "outcome"),
    [
        (0, [], "survived"),
        (1, [("setup", "x"), ("test", "y")], "test: y"),
        (None, [("test", "y")], "test: y"),
        (None, [("setup", "x")], "time ran out"),
        (1, [], "time ran out"),
        (-11, [("collection", "x")], "the process died: status -11"),
        (139, [], "the process died: status 139"),
        (1, [("setup", "x"), ("import", "y")], "setup: x"),
        (2, [("collection", "x")], "collection: x"),
        (4, [], "collection"),
    ],
)
def test_only_a_test_that_fails_finds_a_fault(run, status, notes, outcome):
    found = run.outcome_of(status, [run.Outcome(*note) for note in notes])
    assert str(found) == outcome
    mutant = run.Mutant("area", 1, "a.py", "old", "new", (), "")
    assert bool(run.Verdict(mutant, found, 0.0).fault) == (not outcome.startswith(("test", "the process died")))


def test_a_test_runs_where_its_framework_is(run):
    names = [run.environment_of(f"{folder}/test_a.py").name for folder in ("frameworks/pytorch", "frameworks/tf")]
    assert names == [".venv-torch", ".venv-tensorflow"]
    assert run.environment_of("e2e/jit/test_jit.py") == Path(sys.prefix)
