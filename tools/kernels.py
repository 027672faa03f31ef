"""`make kernels`: the archive of kernels of common programs, `hlo_disc/cache/common.kernels`, for this kind of CPU.

The programs are those of `benchmarks/programs`, with each of their types. They are compiled for each level of features,
whether this machine has it or not, as nothing is run. The same package makes the same bytes.
"""

from __future__ import annotations

import contextlib
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

import click
import jax
import numpy as np

from hlo_disc import pipeline
from hlo_disc.cache import archive, kernels
from hlo_disc.targets import registry
from hlo_disc.targets.cpu import native_generator, x86

sys.path.append(str(Path(__file__).parents[1]))  # behind what is installed, which may be another hlo_disc than this one

from benchmarks import in_jax, tree
from benchmarks.frameworks.jax import DTYPES
from benchmarks.program import Draw, Task, chosen


class Zeros(Draw):
    """A source of weights that take no memory."""

    def normal(self, *shape: int, scale: float = 0.0, mean: float = 0.0) -> np.ndarray:
        return np.broadcast_to(np.float32(0), shape)


def compile_for(level: str, task: Task) -> None:
    """Compile a program as the first call of its function under `hlo_disc.jit` with dims does."""
    program, dtype = task

    def spec(x: np.ndarray) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, DTYPES[dtype] if x.dtype == np.float32 else x.dtype)

    weights, inputs = tree.mapped(spec, program.weights(Zeros(0))), program.inputs(**program.shapes[0])
    options = pipeline.merge(None, {"target": f"cpu:{level}", "cache": "", "threads": 1})
    lowered: Any = in_jax.compiled(program, options=options).lower(weights, [spec(x) for x in inputs])
    pipeline.compile(lowered.graph, options)


def recorded(tasks: list[Task], levels: tuple[str, ...]) -> dict[bytes, bytes]:
    """Compile programs for levels of features. Return the kernels that the store would keep."""
    found: dict[bytes, bytes] = {}
    store = contextlib.nullcontext(types.SimpleNamespace(find=found.get, keep=found.setdefault))
    every = frozenset(feature for level in x86.LEVELS.values() for feature in level.features)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(kernels, "opened", lambda options: store))
        stack.enter_context(mock.patch.object(x86, "host_features", lambda: every))
        # a kernel alone: its code does not depend on others, and is smaller
        stack.enter_context(mock.patch.object(native_generator, "_BATCH", 1))
        stack.callback(x86.generator.cache_clear)
        x86.generator.cache_clear()
        for level in levels:
            before = len(found)
            for task in tasks:
                compile_for(level, task)
            click.echo(f"{level}: {len(found) - before} kernels, {sum(map(len, [*found.values()][before:]))} bytes")
    return found


@click.command()
@click.option("--program", "names", multiple=True, default=["*"], help="Programs whose names fit a pattern.")
@click.option("--level", "levels", multiple=True, help="Levels of features; all of this kind of CPUs if there is none.")
@click.option("--output", type=click.Path(path_type=Path), default=archive.PLACE, show_default=True)
def main(names: tuple[str, ...], levels: tuple[str, ...], output: Path) -> None:
    """Write the archive."""
    tasks = [task for name in names for task in chosen(name)]
    archive.write(output, recorded(tasks, levels or registry.find("cpu").levels))
    click.echo(f"{output}: {output.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
