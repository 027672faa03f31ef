"""The kit for a machine with a GPU, run on the emulator's driver and without JAX, jaxlib and llvmlite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import emulated
import numpy as np
import pytest

from hlo_disc.ral import _ral
from hlo_disc.targets import registry

TOOLS = Path(__file__).parents[2] / "tools" / "gpu_kit"
BLOCKED = "import sys\nfor name in ('jax', 'jaxlib', 'llvmlite'):\n    sys.modules[name] = None\n"


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> Path:
    """With the runtime of this environment, which takes a minute to build."""
    directory = tmp_path_factory.mktemp("kit") / "kit"
    path, before, targets = list(sys.path), set(sys.modules), dict(registry._TARGETS)
    try:
        emulated.register()
        spec = spec_from_file_location("gpu_kit_build", TOOLS / "build.py")
        build = module_from_spec(spec)
        spec.loader.exec_module(build)
        build.build(directory, "emulated-cuda", ["copy", "softmax"])
    finally:
        sys.path[:] = path
        registry._TARGETS.clear()
        registry._TARGETS.update(targets)
        for name in {"cases", "models"} & (set(sys.modules) - before):
            del sys.modules[name]
    shutil.copy(_ral.__file__, directory / "src" / "hlo_disc" / "ral")
    (directory / "blocked").mkdir()
    (directory / "blocked" / "sitecustomize.py").write_text(BLOCKED)
    return directory


def run(kit: Path, *arguments: str) -> tuple[int, dict, str]:
    environment = {**os.environ, "PYTHONPATH": str(kit / "blocked")}
    made = subprocess.run(
        [sys.executable, kit / "gpu_kit.py", *arguments], capture_output=True, text=True, env=environment
    )
    assert made.returncode in (0, 1), made.stderr
    return made.returncode, json.loads((kit / "results.json").read_text()), made.stdout


def test_all_is_right_and_nothing_is_left(kit):
    code, results, text = run(kit, "--driver", emulated.Emulated(emulated.NVIDIA).driver[1])
    assert code == 0
    for name in ("copy", "softmax"):
        case = results["cases"][name]
        assert len(case["checked"]) == 7 and case["wrong"] == case["leaked blocks"] == 0
        assert not case["times"] and f"- {name}: 7 sizes, 0 wrong" in text
    assert "not run, and why:" in text


def test_what_is_wrong_is_seen(kit, tmp_path):
    other = shutil.copytree(kit, tmp_path / "kit")
    expected = dict(np.load(other / "programs" / "softmax.npz"))
    expected["m=3, n=127"] = expected["m=3, n=127"] * np.float32(1.001)
    np.savez(other / "programs" / "softmax.npz", **expected)
    code, results, text = run(other, "--driver", emulated.Emulated(emulated.NVIDIA).driver[1])
    assert code == 1 and results["cases"]["softmax"]["wrong"] == 1 and results["cases"]["copy"]["wrong"] == 0
    assert "- softmax: 7 sizes, 1 wrong, at most 0.001 off" in text


def test_a_driver_that_is_not_there_is_said(kit, tmp_path):
    other = shutil.copytree(kit, tmp_path / "kit")
    code, results, text = run(other, "--driver", "libno_such_driver.so")
    assert code == 1 and "no driver" in results["cases"]["copy"]["failed"]
    assert "- cases, copy: " in text
