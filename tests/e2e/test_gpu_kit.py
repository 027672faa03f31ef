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
DRIVER = emulated.Emulated(emulated.NVIDIA).driver[1]
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
        build.build(directory, "emulated-cuda", ["copy", "softmax", "dot bf16"])
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


def run(kit: Path, *arguments: str, path: str = "") -> tuple[int, dict, str]:
    environment = {**os.environ, "PYTHONPATH": str(kit / "blocked"), "PATH": f"{path}:{os.environ['PATH']}"}
    made = subprocess.run(
        [sys.executable, kit / "gpu_kit.py", *arguments], capture_output=True, text=True, env=environment
    )
    assert made.returncode in (0, 1), made.stderr
    return made.returncode, json.loads((kit / "results.json").read_text()), made.stdout


def test_all_is_right_and_nothing_is_left(kit):
    code, results, text = run(kit, "--driver", DRIVER)
    assert code == 0
    for name, sizes in (("copy", 7), ("softmax", 7), ("dot bf16", 5)):
        case = results["gpu"][name]
        assert len(case["checked"]) == sizes
        assert case["wrong"] == case["wrong in streams"] == case["leaked blocks"] == 0
        assert not case["times"] and f"- {name}: {sizes} sizes, 0 wrong" in text
    assert results["cpu"]["softmax"]["wrong"] == 0 and len(results["cpu"]["softmax"]["skipped"]) == 5
    assert "not run, or failed, and why:" in text


def test_what_is_wrong_is_seen(kit, tmp_path):
    other = shutil.copytree(kit, tmp_path / "kit")
    expected = dict(np.load(other / "programs" / "softmax.npz"))
    for sizes in ("m=3, n=127", "m=1, n=8192"):  # the last one is called in streams
        expected[f"{sizes}:0"] = expected[f"{sizes}:0"] * np.float32(1.001)
    np.savez(other / "programs" / "softmax.npz", **expected)
    code, results, text = run(other, "--driver", DRIVER)
    assert code == 1 and results["gpu"]["softmax"]["wrong"] == 2 and results["gpu"]["copy"]["wrong"] == 0
    assert "- softmax: 7 sizes, 2 wrong, at most 0.001 off, 40 wrong in streams" in text
    assert results["cpu"]["softmax"]["wrong"] == 2 * 5


def test_a_driver_that_is_not_there_is_said(kit, tmp_path):
    other = shutil.copytree(kit, tmp_path / "kit")
    code, results, text = run(other, "--driver", "libno_such_driver.so")
    assert code == 1 and "no driver" in results["gpu"]["copy"]["failed"]
    assert "- gpu, copy: " in text


def test_what_a_sanitizer_finds_is_told(kit, tmp_path):
    """One of a test's own, which runs programs and does not like racecheck of softmax."""
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text(
        '#!/bin/sh\ncase "$*" in *racecheck*softmax*) echo hazard; exit 9;; esac\nshift 4; exec "$@"\n'
    )
    sanitizer.chmod(0o755)
    code, results, text = run(kit, "--driver", DRIVER, path=str(tmp_path))
    found = results["sanitizer"]
    assert code == 1 and len(found) == 3 * 3
    assert [name for name, case in found.items() if case] == ["racecheck, softmax"]
    assert "- racecheck, softmax: something was found" in text and "- memcheck, copy: clean" in text
    assert "- sanitizer, racecheck, softmax: hazard" in text


@pytest.mark.parametrize("part, of", [("jax", "jax"), ("jit", "softmax")])
def test_other_compilers_compute_the_same(kit, tmp_path, part, of):
    """JAX on the CPU: its functions, and ours within it."""
    out = tmp_path / "out.json"
    command = [sys.executable, kit / "gpu_kit.py", "--part", part, "--of", of, "--out", out, "--until", "1e10"]
    subprocess.run([*command, "--driver", DRIVER], check=True)
    found = json.loads(out.read_text())
    cases = found["cases"].values() if part == "jax" else [found]
    assert all(case["wrong"] == 0 for case in cases) and not found.get("skipped")
