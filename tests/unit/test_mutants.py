"""The faults of `make mutants` can be planted: a change that moves what they change moves them too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parents[1] / "mutants" / "run.py"


def test_every_fragment_occurs_once():
    done = subprocess.run([sys.executable, str(RUNNER), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
