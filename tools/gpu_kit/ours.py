"""hlo_disc itself on this machine: is what its programs compute right, is memory given back, how long do they take?"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import cases
import numpy as np
from gpu import Tensor
from kit import Kit, expected, is_wrong, leaves, off, rates, timed

STREAMS, CALLS = 4, 10
_here = threading.local()  # a thread's GPU, whose stream its calls run in


def on_gpu(kit: Kit, name: str, only_check: bool) -> dict[str, Any]:
    """Arguments from the host and from the GPU; calls in several streams at once; then times."""
    from hlo_disc import ral
    from hlo_disc.ral import contexts

    _here.gpu = gpu = kit.gpu()
    contexts.register_stream(Tensor.__module__, lambda: _here.gpu.stream)
    case, executable = cases.CASES[name], kit.load(name)
    rows = executable.program.inputs
    found: dict[str, Any] = {"checked": {}, "times": {}, "skipped": []}
    wrong, before = 0, None
    for sizes in case.checked:
        arrays = cases.inputs(rows, sizes)
        tensors, right = [Tensor(gpu, array) for array in arrays], expected(name, sizes)
        errors = {"host": off(leaves(executable(*arrays)), right)}
        errors["device"] = off([gpu.copy_out(x) for x in leaves(executable(*tensors))], right)
        found["checked"][cases.key(sizes)] = errors
        wrong += any(is_wrong(case, error) for error in errors.values())
        _free(tensors)
        before = ral.device_blocks() if before is None else before
    found["wrong"] = wrong
    found["wrong in streams"] = _in_streams(kit, case, executable, name)
    found["leaked blocks"] = ral.device_blocks() - (before or 0)
    for sizes in [] if kit.emulated or only_check else case.timed:
        if kit.is_late:
            found["skipped"].append(f"{cases.key(sizes)}: no time was left")
            continue
        tensors = [Tensor(gpu, array) for array in cases.inputs(rows, sizes)]
        found["times"][cases.key(sizes)] = rates(case, sizes, timed(lambda: executable(*tensors), gpu.wait))  # noqa: B023
        _free(tensors)
        gpu.wait()
    return found


def _free(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.free()


def _in_streams(kit: Kit, case: cases.Case, executable: Any, name: str) -> int:
    """How many calls were wrong, or failed, of threads that each have a stream."""
    sizes = case.checked[-1]
    arrays, right = cases.inputs(executable.program.inputs, sizes), expected(name, sizes)
    wrong: list[int] = []

    def work() -> None:
        bad = CALLS
        try:
            _here.gpu = gpu = kit.gpu()
            tensors = [Tensor(gpu, array) for array in arrays]
            for _ in range(CALLS):
                bad -= not is_wrong(case, off([gpu.copy_out(x) for x in leaves(executable(*tensors))], right))
            _free(tensors)
            gpu.wait()
        finally:
            wrong.append(bad)

    threads = [threading.Thread(target=work) for _ in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(wrong)


def on_cpu(kit: Kit, name: str) -> dict[str, Any]:
    """The same program compiled for CPUs, on 1, 2, 4, 8 and 16 threads."""
    case, found = cases.CASES[name], {"threads": {}, "skipped": [], "wrong": 0}  # type: ignore[var-annotated]
    most = len(os.sched_getaffinity(0))
    for threads in (1, 2, 4, 8, 16):
        if threads > most and not kit.emulated:
            found["skipped"].append(f"{threads} threads: the machine has fewer cores")
            continue
        executable = kit.load(name, threads)
        rows = executable.program.inputs
        for sizes in case.checked:
            results = leaves(executable(*cases.inputs(rows, sizes)))
            found["wrong"] += is_wrong(case, off([np.asarray(x) for x in results], expected(name, sizes)))
        if kit.is_late or kit.emulated:
            found["skipped"].append(f"{threads} threads: {'nothing is timed' if kit.emulated else 'no time was left'}")
            continue
        times = {}
        for sizes in case.timed[:2]:
            arrays = cases.inputs(rows, sizes)
            times[cases.key(sizes)] = timed(lambda: executable(*arrays), lambda: None) * 1e6  # noqa: B023
        found["threads"][threads] = times
    return found


def in_jit(kit: Kit, name: str) -> dict[str, Any]:
    """Called by this machine's `jax.jit`, through XLA's FFI."""
    try:
        import jax
    except ImportError as error:
        return {"skipped": [str(error)]}
    from hlo_disc.ral.contexts.jax import call_in_jit

    platform = jax.devices()[0].platform
    if platform == "cpu" and not kit.emulated:
        return {"skipped": ["JAX sees no GPU"]}
    case, executable = cases.CASES[name], kit.load(name, 0 if kit.emulated else None)
    rows, found = executable.program.inputs, {"platform": platform, "checked": {}, "wrong": 0}
    called = jax.jit(functools.partial(call_in_jit, executable.native, executable.content))
    for sizes in case.checked:
        arrays = [jax.device_put(array) for array in cases.inputs(rows, sizes)]
        error = off([np.asarray(x) for x in called(*arrays)], expected(name, sizes))
        found["checked"][cases.key(sizes)] = error
        found["wrong"] += is_wrong(case, error)
    return found
