"""Calls at random sizes from many threads, with guards that break all the time: `make soak CALLS=200000`.

The functions ask about sizes, so that calls go from program to program, and compile while others run. Every result is
compared with jax.jit's. Memory is what the process has after the first fifth of the calls, when all is compiled, and at
the end.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import hlo_disc
from hlo_disc import ral

SIZES = (0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 64, 100, 257)
FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    lambda x: x * {1: 10.0, 2: 20.0}.get(x.shape[0], 1.0),
    lambda x: x.sum() if x.shape[0] % 2 else x + 1,
    lambda x: x[: x.shape[0] // 2] if x.shape[0] > 16 else jnp.cumsum(x),
    lambda x: x.reshape(-1, 4).sum(0) if x.shape[0] % 4 == 0 else x[::-1],
    lambda x: x + jnp.arange(x.shape[0]) / max(x.shape[0], 1),
    lambda x: jnp.stack([x, x * 2]) if 2 < x.shape[0] < 32 else jnp.tanh(x),
)


class Soaked(NamedTuple):
    """The result of a soak.

    wrong: a line each. programs: how many were compiled. grown: bytes that the process has more than early on. kept:
    bytes of the runtime that nobody gave back.
    """

    wrong: list[str]
    programs: int
    grown: int
    kept: int


def soak(calls: int, threads: int = 8) -> Soaked:
    """Make so many calls. Raises what a call raises."""
    rng = np.random.default_rng(0)
    arrays = {n: rng.normal(size=n).astype(np.float32) for n in SIZES}
    wanted = [{n: np.asarray(jax.jit(f)(x)) for n, x in arrays.items()} for f in FUNCTIONS]
    jitted = [hlo_disc.jit(f) for f in FUNCTIONS]
    wrong: list[str] = []
    failed: list[BaseException] = []

    def work(seed: int, count: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(count):
                k, n = draw.randrange(len(FUNCTIONS)), draw.choice(SIZES)
                got = jitted[k](arrays[n])
                if got.shape != wanted[k][n].shape or not np.allclose(got, wanted[k][n], 1e-5, 1e-5):
                    wrong.append(f"function {k} at size {n}")
        except BaseException as error:  # it is the caller's to see
            failed.append(error)

    def phase(first: int, count: int) -> None:
        workers = [threading.Thread(target=work, args=(first + i, count // threads)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        gc.collect()

    gc.collect()
    before = ral.live_bytes()
    phase(0, calls // 5)
    early = _resident()
    phase(threads, calls - calls // 5)
    if failed:
        raise failed[0]
    programs = sum(f.stats().compilations for f in jitted)
    return Soaked(wrong, programs, _resident() - early, ral.live_bytes() - before)


def jax_answers() -> list[bool]:
    """Return JAX's answers about sizes of its own, which no trace of ours has made."""
    (n,) = export.symbolic_shape("n")
    return [n == 1, n == n, n != 2, n + 1 >= 2, hash(n) == hash(n), isinstance(n, int)]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    calls = parser.parse_args().calls
    before = jax_answers()
    found = soak(calls)
    print(f"{calls} calls, {len(found.wrong)} wrong, {found.programs} programs, {found.grown / 2**20:.1f} MiB grown")
    if found.wrong or found.kept > 0 or jax_answers() != before:
        raise SystemExit(f"wrong: {found.wrong[:5]}; kept: {found.kept} bytes; JAX says {jax_answers()}, not {before}")


if __name__ == "__main__":
    main()
