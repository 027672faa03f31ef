"""What the kit brings: programs, and what they must compute."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cases
import numpy as np
from gpu import Gpu, loads
from linked import Linked

HERE = Path(__file__).resolve().parent
_FLOOR = 1e-6  # how far anything may be off, where all results are as good as 0


@dataclass(frozen=True)
class Kit:
    """target, driver: of the programs, with the names that its library may have. cases: names.

    emulated: whether the driver is none of a GPU: nothing is timed then, and peers run on the CPU.
    until: when a part must have ended, in seconds of `time.time`.
    """

    target: str
    driver: tuple[str, ...]
    cases: tuple[str, ...]
    emulated: bool
    until: float

    @staticmethod
    def read(driver: str | None, until: float) -> Kit:
        """driver: a library in place of the driver's."""
        sys.path[:0] = [str(HERE / "src")]
        from hlo_disc.targets import registry

        about = json.loads((HERE / "manifest.json").read_text())
        kind, *names = about["driver"]
        kit = Kit(about["target"], (kind, *([driver] if driver else names)), tuple(about["cases"]), bool(driver), until)
        registry.register(kit.target, lambda: Linked(kit.driver))
        registry.register("cpu", lambda: Linked(()))
        return kit

    @property
    def is_late(self) -> bool:
        return time.time() > self.until

    def gpu(self) -> Gpu:
        library = next(filter(loads, self.driver[1:]), None)
        if library is None:
            raise SystemExit(f"there is no driver: none of {', '.join(self.driver[1:])} can be loaded")
        return Gpu(self.driver[0], library)

    def load(self, name: str, threads: int | None = None) -> Any:
        """An executable; for the CPU and so many threads where they are given."""
        import hlo_disc

        path = HERE / ("programs" if threads is None else "cpu") / f"{name}.disc"
        return hlo_disc.load(path, hlo_disc.Options(threads=threads or 0))


def expected(name: str, sizes: cases.Sizes) -> list[np.ndarray]:
    """In f32 where they are bf16, which numpy's files cannot hold."""
    found = np.load(HERE / "programs" / f"{name}.npz")
    start = cases.key(sizes) + ":"
    return [found[key] for key in found.files if key.startswith(start)]


def off(results: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """The largest difference over the largest number; infinite for other shapes, or numbers that are none."""
    return max(_off(*pair) for pair in zip(results, right, strict=True))


def _off(result: np.ndarray, right: np.ndarray) -> float:
    if result.shape != right.shape:
        return float("inf")
    if not right.size:
        return 0.0
    wide = result.astype(np.float64), right.astype(np.float64)
    if not np.isfinite(wide[0]).all():
        return float("inf")
    return float(np.abs(wide[0] - wide[1]).max() / max(np.abs(wide[1]).max(), _FLOOR))


def is_wrong(case: cases.Case, error: float) -> bool:
    return not error <= max(case.most, _FLOOR)


def leaves(results: Any) -> list[Any]:
    """Of what a program gives back."""
    if isinstance(results, (list, tuple)):
        return [leaf for x in results for leaf in leaves(x)]
    return [results]


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


def rates(case: cases.Case, sizes: cases.Sizes, seconds: float) -> dict[str, float]:
    made = {"us": seconds * 1e6}
    if moved := case.moved(sizes):
        made["GB/s"] = moved / seconds / 1e9
    if flops := case.flops(sizes):
        made["GFLOP/s"] = flops / seconds / 1e9
    return made
