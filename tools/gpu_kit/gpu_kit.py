"""Runs the kit on a machine with a GPU: is what programs compute right, is memory given back, how long do they take?

    python gpu_kit.py

Needs Linux on x86-64, the GPU's driver, Python 3.11 or newer with numpy, ml_dtypes and nanobind, a C++ compiler and
CMake; no network, no compiler of ours, no LLVM. With JAX on the GPU the same functions are timed by `jax.jit`. Writes
results.json and results.md, a case at a time, and ends within nine minutes, saying what it did not come to.

Each case runs in a process of its own: an access that a GPU refuses ends it, and the others go on.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SECONDS = 520
MOST_OF_A_CASE = 150
_FLOOR = 1e-6  # how far anything may be off, where all results are as good as 0
_DLPACK = {"cuda": 2, "hip": 10}
_CALLS = {
    "cuda": {"create": "cuStreamCreate", "wait": "cuStreamSynchronize", "allocate": "cuMemAllocAsync",
             "free": "cuMemFreeAsync", "to": "cuMemcpyHtoDAsync_v2", "from": "cuMemcpyDtoHAsync_v2"},
    "hip": {"create": "hipStreamCreateWithFlags", "wait": "hipStreamSynchronize", "allocate": "hipMallocAsync",
            "free": "hipFreeAsync", "to": "hipMemcpyHtoDAsync", "from": "hipMemcpyDtoHAsync"},
}  # fmt: skip


class Raw(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]  # fmt: skip


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Gpu:
    """The first GPU's memory and a stream, by the driver alone."""

    def __init__(self, kind: str, library: str):
        self.kind, self._driver = kind, ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        if kind == "cuda":
            self._check("cuInit", ctypes.c_uint(0))
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._check("cuCtxPushCurrent_v2", context)
        stream = ctypes.c_void_p()
        self._call("create", ctypes.byref(stream), ctypes.c_uint(1))
        self.stream = stream.value or 0

    def _check(self, name: str, *args: Any) -> None:
        if error := getattr(self._driver, name)(*args):
            raise RuntimeError(f"{name}: error {error}")

    def _call(self, name: str, *args: Any) -> None:
        self._check(_CALLS[self.kind][name], *args)

    def wait(self) -> None:
        self._call("wait", ctypes.c_void_p(self.stream))

    def allocate(self, size: int) -> int:
        address = ctypes.c_size_t()
        self._call("allocate", ctypes.byref(address), ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(self.stream))
        return address.value

    def free(self, address: int) -> None:
        self._call("free", ctypes.c_size_t(address), ctypes.c_void_p(self.stream))

    def copy_in(self, address: int, array: np.ndarray) -> None:
        at, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._call("to", ctypes.c_size_t(address), at, size, ctypes.c_void_p(self.stream))
        self.wait()

    def copy_out(self, result: Any) -> np.ndarray:
        """Of a tensor on the GPU that the runtime made."""
        capsule = result.__dlpack__(stream=self.stream)
        raw = Raw.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor"))
        made = np.empty(result.shape, result.dtype)
        at, size = ctypes.c_void_p(made.ctypes.data), ctypes.c_size_t(made.nbytes)
        if made.size:
            self._call("from", at, ctypes.c_size_t(raw.data), size, ctypes.c_void_p(self.stream))
        self.wait()
        return made


class Tensor:
    """An array in the GPU's memory."""

    def __init__(self, gpu: Gpu, array: np.ndarray):
        self.gpu, self.address = gpu, gpu.allocate(array.nbytes)
        gpu.copy_in(self.address, np.ascontiguousarray(array))
        code = {"f": 2, "i": 0}[array.dtype.kind]
        self._shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self._raw = Raw(
            self.address, _DLPACK[gpu.kind], 0, array.ndim, code, 8 * array.dtype.itemsize, 1, self._shape,
            None, 0, None, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(),
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK[self.gpu.kind], 0

    def __dlpack__(self, stream: int | None = None) -> object:
        return _api.PyCapsule_New(ctypes.addressof(self._raw), b"dltensor", None)

    def free(self) -> None:
        self.gpu.free(self.address)


class Linked:
    """A `Target` for programs whose host code is a shared library already."""

    levels = ()

    def __init__(self, driver: tuple[str, ...]):
        self.driver = driver

    def generator(self, level: str) -> Any:
        raise RuntimeError("the kit compiles nothing")

    def kernels(self, object_: bytes) -> list[str]:
        return []

    def check(self, features: tuple[str, ...]) -> None:
        """The host code asks for no more than AVX2, which /proc/cpuinfo names as compilers do."""
        flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
        if "avx2" not in flags:
            raise RuntimeError("this machine's CPU has no AVX2")

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Any:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(object_)
            file.flush()
            library = ctypes.CDLL(file.name)
        for name, address in symbols.items():
            ctypes.c_size_t.in_dll(library, f"{name}__to").value = address
        return _Library(library)


class _Library:
    def __init__(self, library: ctypes.CDLL):
        self._library = library

    def address(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(name) from None


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


def timed(run: Callable[[], Any], wait: Callable[[], None], seconds: float = 0.3) -> float:
    """Seconds of a run, the best of three series, each waited for once. What it gives lives until the next one."""
    kept = run()
    wait()
    start = time.perf_counter()
    kept = run()
    wait()
    count = max(1, min(1000, int(seconds / 3 / max(time.perf_counter() - start, 1e-6))))
    series = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            kept = run()
        wait()
        series.append((time.perf_counter() - start) / count)
    del kept
    return min(series)


def off(result: np.ndarray, right: np.ndarray) -> float:
    """The largest difference over the largest number; infinite for other shapes, types or numbers that are none."""
    if result.shape != right.shape or result.dtype != right.dtype:
        return float("inf")
    if not right.size:
        return 0.0
    wide = result.astype(np.float64), right.astype(np.float64)
    if not np.isfinite(wide[0]).all():
        return float("inf")
    return float(np.abs(wide[0] - wide[1]).max() / max(np.abs(wide[1]).max(), _FLOOR))


def rates(case: Any, sizes: Any, seconds: float) -> dict[str, float]:
    made = {"us": seconds * 1e6}
    if moved := case.moved(sizes):
        made["GB/s"] = moved / seconds / 1e9
    if flops := case.flops(sizes):
        made["GFLOP/s"] = flops / seconds / 1e9
    return made


def run_case(name: str, driver: tuple[str, ...], target: str, deadline: float, emulated: bool) -> dict[str, Any]:
    """Checks and times a program."""
    sys.path[:0] = [str(HERE / "src")]
    import cases

    import hlo_disc
    from hlo_disc import ral
    from hlo_disc.ral import contexts
    from hlo_disc.targets import registry

    registry.register(target, lambda: Linked(driver))
    library = next(filter(_loads, driver[1:]), None)
    if library is None:
        return {"failed": f"there is no driver: none of {', '.join(driver[1:])} can be loaded"}
    gpu = Gpu(driver[0], library)
    contexts.register_stream(Tensor.__module__, lambda: gpu.stream)
    case, executable = cases.CASES[name], hlo_disc.load(HERE / "programs" / f"{name}.disc")
    rows = executable.program.inputs
    found: dict[str, Any] = {"checked": {}, "times": {}, "skipped": []}
    right = np.load(HERE / "programs" / f"{name}.npz")
    wrong, before = 0, None
    for sizes in case.checked:
        arrays = cases.inputs(rows, sizes)
        tensors = [Tensor(gpu, array) for array in arrays]
        expected = right[cases.key(sizes)]
        errors = {"host": off(np.asarray(executable(*arrays)), expected)}
        errors["device"] = off(gpu.copy_out(executable(*tensors)), expected)
        found["checked"][cases.key(sizes)] = errors
        wrong += any(not error <= max(case.most, _FLOOR) for error in errors.values())
        for tensor in tensors:
            tensor.free()
        before = ral.device_blocks() if before is None else before
    found["wrong"] = wrong
    found["leaked blocks"] = ral.device_blocks() - (before or 0)
    for sizes in [] if emulated else case.timed:
        if time.time() > deadline:
            found["skipped"].append(f"{cases.key(sizes)}: no time was left")
            continue
        tensors = [Tensor(gpu, array) for array in cases.inputs(rows, sizes)]
        found["times"][cases.key(sizes)] = rates(case, sizes, timed(lambda: executable(*tensors), gpu.wait))  # noqa: B023
        for tensor in tensors:
            tensor.free()
        gpu.wait()
    return found


def run_jax(name: str, deadline: float) -> dict[str, Any]:
    """The same functions by this machine's `jax.jit`."""
    sys.path[:0] = [str(HERE / "src")]
    import cases
    import jax

    from hlo_disc.program import read

    device = jax.devices()[0]
    if device.platform == "cpu":
        return {"skipped": ["JAX sees no GPU"]}
    case, rows = cases.CASES[name], read(HERE / "programs" / f"{name}.disc").inputs
    found: dict[str, Any] = {"times": {}, "skipped": [], "version": jax.__version__}
    function = jax.jit(case.function)
    for sizes in case.timed:
        if time.time() > deadline:
            found["skipped"].append(f"{cases.key(sizes)}: no time was left")
            continue
        arrays: list[Any] = [jax.device_put(array) for array in cases.inputs(rows, sizes)]
        if name in ("bert", "gpt2"):
            make, integers = (cases.models.bert_params, 2) if name == "bert" else (cases.models.gpt2_params, 1)
            tree = jax.tree.structure(jax.eval_shape(make))
            arrays = [jax.tree.unflatten(tree, arrays[:-integers]), *arrays[-integers:]]
        last: list[Any] = []

        def run(arrays: list[Any] = arrays, last: list[Any] = last) -> None:
            last[:] = [function(*arrays)]

        found["times"][cases.key(sizes)] = rates(case, sizes, timed(run, lambda: jax.block_until_ready(last)))  # noqa: B023
    return found


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _alone(mode: str, name: str, deadline: float, driver: str | None) -> dict[str, Any]:
    """A case in a process of its own; what went wrong where it fails."""
    seconds = min(MOST_OF_A_CASE, deadline - time.time())
    if seconds < 5:
        return {"skipped": ["no time was left"]}
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.json"
        command = [sys.executable, __file__, mode, name, "--out", out, "--until", str(time.time() + seconds - 5)]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        try:
            made = subprocess.run(
                [*command, *(["--driver", driver] if driver else [])],
                capture_output=True, text=True, timeout=seconds, env=environment,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"failed": f"it was ended after {seconds:.0f} s"}
        if out.exists():
            return json.loads(out.read_text())
        return {"failed": (made.stderr or made.stdout)[-1500:] or f"it ended with {made.returncode}"}


def machine() -> dict[str, str]:
    about = {"python": platform.python_version(), "machine": platform.platform()}
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


def table(results: dict[str, Any]) -> str:
    lines = [f"{name}: {text}" for name, text in results["machine"].items()]
    lines += [
        "",
        "| program | sizes | µs | GB/s | GFLOP/s | of the copy | jax.jit, µs |",
        "|---|---|---|---|---|---|---|",
    ]
    copy = max((t["GB/s"] for t in results["cases"].get("copy", {}).get("times", {}).values()), default=0)
    for name, case in results["cases"].items():
        for sizes, t in case.get("times", {}).items():
            there = results["jax"].get(name, {}).get("times", {}).get(sizes, {}).get("us")
            cells = [f"{t[unit]:.4g}" if unit in t else "" for unit in ("us", "GB/s", "GFLOP/s")]
            share = f"{t['GB/s'] / copy:.0%}" if copy and "GB/s" in t else ""
            lines.append(f"| {name} | {sizes} | {' | '.join(cells)} | {share} | {there and f'{there:.4g}' or ''} |")
    lines += ["", "What was checked:", ""]
    for name, case in results["cases"].items():
        worst = max((e for errors in case.get("checked", {}).values() for e in errors.values()), default=0)
        verdict = f"{len(case['checked'])} sizes, {case['wrong']} wrong, at most {worst:.2g} off, " \
            f"{case['leaked blocks']} blocks leaked" if "checked" in case else "not run"  # fmt: skip
        lines.append(f"- {name}: {verdict}")
    lines += ["", "What was not run, and why:", ""]
    for part in ("cases", "jax"):
        for name, case in results[part].items():
            lines += [f"- {part}, {name}: {why}" for why in [*case.get("skipped", []), case.get("failed")] if why]
    return "\n".join([*lines, *(f"- {why}" for why in results["not run"]), ""])


def run_all(driver: str | None) -> int:
    deadline = time.time() + SECONDS
    manifest = json.loads((HERE / "manifest.json").read_text())
    results: dict[str, Any] = {"machine": machine(), "cases": {}, "jax": {}, "not run": []}

    def write() -> None:
        (HERE / "results.json").write_text(json.dumps(results, indent=1))
        (HERE / "results.md").write_text(table(results))

    if why := build_runtime():
        results["not run"].append(f"everything, for the runtime could not be built: {why}")
    else:
        results["built after, s"] = time.time() + SECONDS - deadline
        for part, mode in (("cases", "--case"), ("jax", "--jax")):
            if part == "jax" and results["machine"]["jax"] == "not there":
                results["not run"].append("jax.jit: there is no JAX")
                continue
            for name in manifest["cases"]:
                results[part][name] = _alone(mode, name, deadline, driver)
                write()
    write()
    print(table(results))
    return int(any("failed" in c or c.get("wrong") or c.get("leaked blocks") for c in results["cases"].values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", help="a library in place of the driver: then nothing is timed")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--jax", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.out:
        return run_all(options.driver)
    if options.jax:
        made = run_jax(options.jax, options.until)
    else:
        manifest = json.loads((HERE / "manifest.json").read_text())
        names = [options.driver] if options.driver else manifest["driver"][1:]
        driver = (manifest["driver"][0], *names)
        made = run_case(options.case, driver, manifest["target"], options.until, bool(options.driver))
    options.out.write_text(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
