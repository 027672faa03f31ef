"""Several devices and several processes, each test in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "data_parallel.py"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_two_devices() -> None:
    told = run(HERE / "on_devices.py").stdout
    assert "jit of shard_map: 2 compilations" in told and "pmap: 2 compilations" in told
    assert "step, shard_map: 6 compilations" in told and "step, unchecked: 2 compilations" in told
    assert "it talks to other devices inside of a scan" in told
    assert "it would compute dot_general before it talks to other devices and again after it" in told
    assert "it is differentiated where some of its arrays are the same on all devices" in told
    assert "JAX spreads it over the devices of a mesh" in told
    assert "\n1 compilation for one device" in told
    assert "an array is spread over several devices" in told


def test_processes_train_like_one() -> None:
    alone = run(EXAMPLE, "--steps", 41)
    both = run(EXAMPLE, "--steps", 41, "--processes", 2, "--devices", 2)
    losses = [
        [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("step")]
        for done in (alone, both)
    ]
    assert len(losses[0]) == 3 and max(abs(a - b) for a, b in zip(*losses, strict=True)) <= 2e-4
    assert both.stderr.count("compiled 1 program and 1 backward") == 2
