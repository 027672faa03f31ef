"""The faults of `make mutants` can be planted: a change that moves what they change moves them too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parents[1] / "mutants" / "run.py"
LISTED = """
import touched
found = touched.chosen({"cache.py", "stitch/hostflow/flow.py", "ral/core/team.cc"}, 12345)
print(len({m.area for m in found}) == len(found), 1 < len(found) <= touched.MOST, *{m.file for m in found})
print(touched.chosen({"explain/page.css"}, 7), touched.chosen(set(), 7))
"""


def test_every_fragment_occurs_once():
    done = subprocess.run([sys.executable, str(RUNNER), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_are_of_the_files_that_a_change_touches():
    done = subprocess.run([sys.executable, "-c", LISTED], cwd=RUNNER.parent, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first.split()[:2] == ["True", "True"] and "ral/core/team.cc" not in first, done.stderr
    assert second == "[] []"
