"""NVIDIA's GPU of this machine, as what `pytest --target` names.

"cuda" is the target as users have it. "small-cuda" spreads little over few blocks, so that the blocks of small programs
have several items, too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import replace

TARGETS = ("cuda", "small-cuda")
_ENDS = 3  # the exit status of a process whose GPU is lost to it


def register() -> None:
    """The targets; JAX, with which results are compared, is the CPU's."""
    import jax

    from hlo_disc.targets import registry
    from hlo_disc.targets.gpu.cuda import NVIDIA
    from hlo_disc.targets.gpu.vendor import Gpu

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32
    small = replace(NVIDIA, device=replace(NVIDIA.device, at_once=1 << 10))
    registry.register("small-cuda", lambda: Gpu(small, registry.find("cpu")))


@functools.cache
def _driver() -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The driver, and the context that the runtime uses, too."""
    driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    for error in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    ):
        assert error == 0, error
    return driver, context


def is_there() -> bool:
    try:
        _driver()
    except (OSError, AssertionError):
        return False
    return True


def synchronize() -> int:
    """Waits for all that the GPU has to do. The driver's number for what went wrong, 0 for nothing."""
    driver, context = _driver()
    error = driver.cuCtxPushCurrent_v2(context)
    error = error or driver.cuCtxSynchronize()
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    return error


def check(test: str) -> None:
    """Ends the process where a kernel did what a GPU refuses: nothing later would run on this context."""
    if error := synchronize():
        print(f"{test}: the GPU says {error}", file=sys.__stderr__, flush=True)
        os._exit(_ENDS)
