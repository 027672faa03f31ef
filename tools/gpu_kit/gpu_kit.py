"""Runs the kit on a machine with a GPU: is what programs compute right, is memory given back, how long do they take?

    python gpu_kit.py

Needs Linux on x86-64, the GPU's driver, Python 3.11 or newer with numpy, ml_dtypes and nanobind, a C++ compiler and
CMake; no network, no compiler of ours, no LLVM. With JAX or PyTorch on the GPU the same functions are timed there; with
compute-sanitizer the kernels run under it. Writes results.json and results.md, a part at a time, and ends within nine
minutes, saying what it did not come to.

Each case runs in a process of its own: an access that a GPU refuses ends it, and the others go on.
"""

from __future__ import annotations

import argparse
import glob
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import table

HERE = Path(__file__).resolve().parent
SECONDS = 520
# The parts in their order: what runs a case (or a peer, all cases), for how long at most.
PARTS = {"gpu": 100, "jit": 60, "jax": 150, "torch": 150, "cpu": 40}
PEERS = ("jax", "torch")
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer
MOST_OF_A_TOOL = 60
_FOUND_BY_TOOL = 9


def build_runtime() -> str:
    """Why the runtime could not be built, "" when it is there."""
    ral = HERE / "src" / "hlo_disc" / "ral"
    if list(ral.glob("_ral*.so")):
        return ""
    build = HERE / "build"
    include, python = HERE / "src" / "include", sys.executable
    settings = [f"-DPython_EXECUTABLE={python}", f"-DXLA_INCLUDE={include}", f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={ral}"]
    commands = [["cmake", "-S", HERE / "src", "-B", build, *settings], ["cmake", "--build", build, "--parallel"]]
    for command in commands:
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=240)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if made.returncode:
            return (made.stdout + made.stderr)[-2000:]
    return ""


def alone(part: str, name: str, until: float, driver: str | None, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """A part's answer for a case, from a process of its own; what went wrong where it fails.

    before: a command that runs the process.
    """
    seconds = until - time.time()
    if seconds < 5:
        return {"skipped": ["no time was left"]}
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.json"
        command = [*before, sys.executable, __file__, "--part", part, "--of", name, "--out", out]
        command += ["--until", str(time.time() + seconds - 5), *(["--driver", driver] if driver else [])]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        why = ""
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
        except subprocess.TimeoutExpired:
            why = f"it was ended after {seconds:.0f} s"
        else:
            if made.returncode:
                text = made.stdout + made.stderr if before else made.stderr
                why = text[-1500:] or f"it ended with {made.returncode}"
        found = json.loads(out.read_text()) if out.exists() else {}
        return {**found, "failed": why} if why else found


def sanitized(names: list[str], until: float, driver: str | None) -> dict[str, Any]:
    """What compute-sanitizer finds of the kernels."""
    places = [shutil.which("compute-sanitizer"), *sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))]
    if not any(places):
        return {"all": {"skipped": ["there is no compute-sanitizer"]}}
    path = next(filter(None, places))
    found = {}
    for tool in TOOLS:
        for name in names:
            before = (path, "--tool", tool, "--error-exitcode", str(_FOUND_BY_TOOL))
            made = alone("check", name, min(until, time.time() + MOST_OF_A_TOOL), driver, before)
            kept = ("wrong", "skipped", "failed")
            found[f"{tool}, {name}"] = {key: made[key] for key in kept if made.get(key)}
    return found


def machine() -> dict[str, str]:
    about = {"python": platform.python_version(), "machine": platform.platform(), "cores": str(os.cpu_count())}
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        about["gpu"] = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        about["gpu"] = f"nvidia-smi does not say: {error}"
    for package in ("numpy", "ml_dtypes", "jax", "jaxlib", "torch"):
        try:
            about[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            about[package] = "not there"
    return about


def run_all(driver: str | None) -> int:
    start = time.time()
    until = start + SECONDS
    manifest = json.loads((HERE / "manifest.json").read_text())
    results: dict[str, Any] = {"machine": machine(), **{part: {} for part in PARTS}, "sanitizer": {}, "not run": []}

    def write() -> None:
        (HERE / "results.json").write_text(json.dumps(results, indent=1))
        (HERE / "results.md").write_text(table(results))

    if why := build_runtime():
        results["not run"].append(f"everything, for the runtime could not be built: {why}")
    else:
        results["built after, s"] = time.time() - start
        for part, most in PARTS.items():
            package = {"jit": "jax"}.get(part, part)
            if results["machine"].get(package) == "not there":
                results["not run"].append(f"{part}: {package} is not there")
                continue
            end = min(until, time.time() + most) if part in PEERS else until
            for name in [part] if part in PEERS else manifest["cpu" if part == "cpu" else "cases"]:
                results[part][name] = alone(part, name, min(end, time.time() + most), driver)
                write()
        results["sanitizer"] = sanitized([x for x in manifest["cases"] if x in manifest["kernels"]], until, driver)
    write()
    print(table(results))
    return int(bool(results["not run"] and not results["gpu"]) or any(map(_is_bad, _own(results))))


def _own(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What is said of our programs."""
    return [case for part in ("gpu", "jit", "cpu", "sanitizer") for case in results[part].values()]


def _is_bad(case: dict[str, Any]) -> bool:
    return any(case.get(key) for key in ("failed", "wrong", "wrong in streams", "leaked blocks"))


def run_part(part: str, name: str, out: Path, driver: str | None, until: float) -> None:
    import kit
    import ours
    import peers

    read = kit.Kit.read(driver, until)

    def save(found: dict[str, Any]) -> None:
        out.write_text(json.dumps(found))

    if part in PEERS:
        peers.run(read, part, save)
    elif part in ("gpu", "check"):
        save(ours.on_gpu(read, name, only_check=part == "check"))
    else:
        save({"jit": ours.in_jit, "cpu": ours.on_cpu}[part](read, name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", help="a library in place of the driver: then nothing is timed")
    for hidden in ("--part", "--of"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.out:
        return run_all(options.driver)
    run_part(options.part, options.of, options.out, options.driver, options.until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
