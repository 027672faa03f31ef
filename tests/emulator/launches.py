"""The cost of a launch and of an argument in host code, with a driver that does nothing: `make launches` prints it."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from typing import Any

import emulated
import frameworks
import jax
import numpy as np

import hlo_disc
from hlo_disc import ral

TARGETS = ("emulated-cuda", "emulated-rocm")
LAUNCHES, TIMES, CALLS = 1000, 20, 10_000


def compiled(target: str) -> hlo_disc.Executable:
    """Compile a loop that host code counts, with as many launches as its argument says."""
    return hlo_disc.compile(
        lambda n, x: jax.lax.fori_loop(0, n, lambda _, x: x * 2 + 1, x), "i32[]", "f32[m]", target=target
    )


def idle(run: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function while launches do nothing."""
    emulated.emulator().fake_idle(True)
    try:
        return run(*arguments)
    finally:
        emulated.emulator().fake_idle(False)


def of_a_launch(program: hlo_disc.Executable) -> float:
    """Return the seconds of a launch, the least of a few calls."""
    x = np.ones(8, np.float32)

    def seconds(launches: int) -> float:
        start = time.perf_counter()
        program(np.int32(launches), x)
        return time.perf_counter() - start

    least = [min(seconds(n) for _ in range(TIMES)) for n in (0, LAUNCHES)]
    return (least[1] - least[0]) / LAUNCHES


def of_an_argument(target: str, count: int = 199) -> tuple[float, float]:
    """Return the seconds of a call with so many tensors of the GPU, and each tensor's share, the least of a few."""
    maker = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=target)
    framework = frameworks.Framework(1, frameworks.KINDS[target])
    tensor = maker(framework.put(np.ones(8, np.float32)))

    def seconds(arguments: int) -> float:
        program = hlo_disc.compile(lambda *xs: xs[0] + 1, *["f32[n]"] * arguments, target=target)
        given = [tensor] * arguments
        return min(timeit.repeat(lambda: program(*given), number=100, repeat=TIMES)) / 100

    whole = seconds(count)
    return whole, (whole - seconds(1)) / (count - 1)


def leaked(program: hlo_disc.Executable, calls: int) -> int:
    """Return the blocks of the GPU's memory and the bytes of ours that calls, of several sizes, do not give back."""
    before = ral.device_blocks() + ral.live_bytes()
    for n in range(calls):
        program(np.int32(n % 3), np.ones(n % 7, np.float32))
    return ral.device_blocks() + ral.live_bytes() - before


def main() -> None:
    emulated.register()
    for target in TARGETS:
        program = compiled(target)
        seconds = idle(of_a_launch, program)
        start = time.perf_counter()
        left = idle(leaked, program, CALLS)
        call = (time.perf_counter() - start) / CALLS
        print(
            f"{target}: {seconds * 1e6:.2f} µs a launch; {call * 1e6:.1f} µs a call, {left} leaked by {CALLS} of them"
        )
        whole, each = idle(of_an_argument, target)
        print(f"{target}: {each * 1e6:.2f} µs a tensor of the GPU; {whole * 1e6:.0f} µs a call of 199")


if __name__ == "__main__":
    main()
