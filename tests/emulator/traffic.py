"""The memory traffic of a GPU's kernels, counted by the emulator (`counts.cc`): `make traffic` prints it.

A program reads its arguments and writes its results at least once. What it does beyond that, and how little it uses of
the sectors that it touches, follows from its schedule, and no machine is needed to see it.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import emulated
import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc

SECTOR = 32


class Counts(ctypes.Structure):
    """The counts of a block of a launch, or, if `block` is -1, of all its blocks together: see `counts.cc`."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("launch", "block")),
        *((name, ctypes.c_int64 * 2) for name in ("sectors", "bytes")),  # loaded, stored
        *((name, ctypes.c_int64) for name in ("requests", "asked", "shared", "conflicts", "barriers")),
    ]


def counted(run: Callable[[], object]) -> list[Counts]:
    """Return the counts of the launches that `run` makes."""
    emulator, count = emulated.emulator(), ctypes.c_int64()
    emulator.simt_counts.restype = ctypes.POINTER(Counts)
    emulator.simt_counting(1)
    try:
        run()
        emulated.check()
        records = emulator.simt_counts(ctypes.byref(count))
        return [Counts.from_buffer_copy(records[k]) for k in range(count.value)]
    finally:
        emulator.simt_counting(0)


@dataclass(frozen=True)
class Traffic:
    """The memory traffic of a call.

    blocks: sectors that blocks touch, over the fewest that hold as many bytes as each block uses. total: bytes of the
    sectors that launches touch, over those of arguments and results. asked: bytes of the sectors that warps ask for,
    each time they do, over the same. conflicts: passes of shared memory beyond the fewest, for each request.
    """

    blocks: float
    total: float
    asked: float
    conflicts: float


def traffic(program: Callable[..., Any], arrays: list[np.ndarray], compulsory: int) -> Traffic:
    counts = counted(lambda: program(*arrays))
    launches = [c for c in counts if c.block < 0]
    blocks = [c for c in counts if c.block >= 0 and sum(c.sectors)]
    return Traffic(
        blocks=sum(sum(c.sectors) for c in blocks) / sum(-(-n // SECTOR) for c in blocks for n in c.bytes),
        total=SECTOR * sum(sum(c.sectors) for c in launches) / compulsory,
        asked=SECTOR * sum(c.asked for c in launches) / compulsory,
        conflicts=sum(c.conflicts for c in launches) / max(1, sum(c.shared for c in launches)),
    )


def grids(program: Callable[..., Any], arrays: list[np.ndarray]) -> list[int]:
    """Return the number of blocks of each launch that touch memory."""
    launches = [c.launch for c in counted(lambda: program(*arrays)) if c.block >= 0 and sum(c.sectors)]
    return [launches.count(launch) for launch in sorted(set(launches))]


def _layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


# Functions and what they take: rows x of n columns, vectors s of n, row numbers i.
PROGRAMS: dict[str, tuple[Callable, str]] = {
    "map": (lambda x: jnp.tanh(x) * 2, "x"),
    "softmax": (lambda x: jax.nn.softmax(x), "x"),
    "layer norm": (_layer_norm, "xss"),
    "column sum": (lambda x: x.sum(0), "x"),
    "transpose": (lambda x: x.T * 2, "x"),
    "gather of rows": (lambda x, i: jnp.take(x, i, axis=0, mode="clip") * 2, "xi"),
}
SHAPES = (
    (300, 17), (64, 127), (64, 128), (20, 1000), (8, 4096), (500, 8),
    (33, 31), (5, 1001), (2, 4099), (100, 256), (16, 2048), (1, 20000),
)  # fmt: skip
_SPECS = {"x": "f32[m, n]", "s": "f32[n]", "i": "i32[k]"}


def compiled(name: str, target: str = "emulated-cuda") -> hlo_disc.Executable:
    function, takes = PROGRAMS[name]
    return hlo_disc.compile(function, *(_SPECS[letter] for letter in takes), target=target)


def drawn(name: str, rows: int, cols: int) -> list[np.ndarray]:
    """Return arguments of a program. A gather takes a third of the rows, each once."""
    rng, takes = np.random.default_rng(rows), PROGRAMS[name][1]
    made = {
        "x": lambda: rng.standard_normal((3 * rows if "i" in takes else rows, cols), np.float32),
        "s": lambda: rng.standard_normal(cols, np.float32),
        "i": lambda: rng.permutation(3 * rows)[:rows].astype(np.int32),
    }
    return [made[letter]() for letter in takes]


def of_shape(name: str, program: Callable[..., Any], rows: int, cols: int) -> Traffic:
    arrays = drawn(name, rows, cols)
    result = program(*arrays)
    gathers = "i" in PROGRAMS[name][1]
    needed = [result.nbytes] * 2 + [arrays[1].nbytes] if gathers else [result.nbytes, *(x.nbytes for x in arrays)]
    return traffic(program, arrays, sum(needed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="*", metavar="GLOB", help="only these programs")
    chosen = parser.parse_args().filter
    emulated.register()
    print(f"{'':16}{'':>14}{'blocks':>8}{'total':>8}{'asked':>8}{'conflicts':>11}")
    for name in PROGRAMS:
        if fnmatch.fnmatch(name, chosen):
            program = compiled(name)
            for rows, cols in SHAPES:
                t = of_shape(name, program, rows, cols)
                shape = f"{rows} x {cols}"
                print(f"{name:16}{shape:>14}{t.blocks:8.2f}{t.total:8.2f}{t.asked:8.2f}{t.conflicts:11.2f}")


if __name__ == "__main__":
    main()
