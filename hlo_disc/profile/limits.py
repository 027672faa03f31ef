"""The limits of the machine, measured on all cores: multiply-adds, bytes read and bytes copied a second."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

from hlo_disc.frozen import frozen
from hlo_disc.profile import x86_loops
from hlo_disc.ral import usable_cores

SIZES = tuple(1 << power for power in (20, 22, 24, 26, 28))
_TURNS, _BUDGET = 5, 0.1  # at least so many, for so many seconds; the best counts
_LINE = 64  # bytes of a line of the caches
_SECONDS = 0.005  # of a turn, where its work can be chosen
_SMALL = 0x39803980  # 2^-12 twice as bf16, about as much as f32: sums of squares stay finite


@frozen
class Limits:
    """The limits of the machine, which bound every program.

    fma_f32, fma_bf16: operations a second (a multiply-add is two); None where the machine multiplies no bf16.
    read, copy: bytes a second, read only and read and written, by the bytes that are gone over again and again.
    """

    fma_f32: float
    fma_bf16: float | None
    read: dict[int, float]
    copy: dict[int, float]

    def seconds(self, operations: float, size: float, dtype: str = "float32") -> float:
        """Return the least time for operations on numbers of a type and for bytes moved; the larger of both counts."""
        return max(operations / self.rate(dtype), size / self.bandwidth(size))

    def rate(self, dtype: str = "float32") -> float:
        """Return operations a second; infinite for types whose rate was not measured."""
        if dtype == "bfloat16":
            return max(self.fma_bf16 or 0.0, self.fma_f32)
        return self.fma_f32 if np.dtype(dtype).itemsize >= 4 and np.dtype(dtype).kind in "fc" else math.inf

    def bandwidth(self, size: float) -> float:
        """Return bytes a second at the nearest size that was measured."""
        nearest = min(self.read, key=lambda total: abs(math.log(total / max(size, 1.0))))
        return max(self.read[nearest], self.copy[nearest])

    def __str__(self) -> str:
        """Return GFLOP/s, and GB/s by size, in words."""

        def rates(found: dict[int, float]) -> str:
            return ", ".join(f"{rate / 1e9:.0f} ({size >> 20} MB)" for size, rate in found.items())

        bf16 = f", {self.fma_bf16 / 1e9:.0f} in bf16" if self.fma_bf16 else ""
        return f"{self.fma_f32 / 1e9:.0f} GFLOP/s{bf16}, read GB/s {rates(self.read)}, copy GB/s {rates(self.copy)}"

    def as_dict(self) -> dict[str, object]:
        """Return the fields by name, as numbers, None and dicts."""
        return asdict(self)


def measure() -> Limits:
    """Measure the best of several rounds on all cores, in about two seconds. Raises DeviceError if it cannot."""
    x86_loops.check()
    f32, bf16, read = x86_loops.f32(), x86_loops.bf16(), x86_loops.read()
    with ThreadPoolExecutor(usable_cores()) as pool:  # threads may use what the process has asked for when they begin
        return Limits(
            _operations(pool, f32),
            _operations(pool, bf16) if bf16 else None,
            {size: _read(pool, read, size) for size in SIZES},
            {size: _copied(pool, size) for size in SIZES},
        )


def _operations(pool: ThreadPoolExecutor, loop: x86_loops.Loop) -> float:
    data = np.full(256, _SMALL, np.uint32)

    def taken(count: int) -> float:
        return _elapsed(pool, lambda _: loop.run(data.ctypes.data, data.nbytes, count))

    count = 10_000
    while min(taken(count) for _ in range(_TURNS)) < _SECONDS:
        count *= 2
    return usable_cores() * loop.work * count / _best(lambda: taken(count))


def _read(pool: ThreadPoolExecutor, loop: x86_loops.Loop, total: int) -> float:
    size = total // usable_cores() // loop.work * loop.work
    turns = _repeats(total) * size // loop.work
    arrays = [_aligned(size) for _ in range(usable_cores())]
    best = _best(lambda: _elapsed(pool, lambda core: loop.run(arrays[core].ctypes.data, size, turns)))
    return usable_cores() * loop.work * turns / best


def _aligned(size: int) -> np.ndarray:
    """Return an array of zeros, already written, that begins at a cache line."""
    room = np.empty(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    room.fill(0)
    return room[start : start + size]


def _copied(pool: ThreadPoolExecutor, total: int) -> float:
    size = total // (2 * usable_cores())
    pairs = [(np.ones(size, np.uint8), np.zeros(size, np.uint8)) for _ in range(usable_cores())]

    def work(core: int) -> None:
        source, target = pairs[core]
        for _ in range(_repeats(total)):
            np.copyto(target, source)

    return _repeats(total) * 2.0 * size * usable_cores() / _best(lambda: _elapsed(pool, work))


def _repeats(total: int) -> int:
    return max(1, (64 << 20) // total)


def _best(taken: Callable[[], float]) -> float:
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _TURNS or time.perf_counter() - start < _BUDGET:
        times.append(taken())
    return min(times)


def _elapsed(pool: ThreadPoolExecutor, work: Callable[[int], object]) -> float:
    start = time.perf_counter()
    list(pool.map(work, range(usable_cores())))
    return time.perf_counter() - start


def describe() -> dict[str, str | int]:
    """Describe the machine and the versions, for the JSON file."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "llvmlite", "numpy")}
    return {
        "cpu": model,
        "cores": usable_cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }
