"""The definition of a program: it is written once, and every framework runs it with the same weights and inputs."""

from __future__ import annotations

import fnmatch
import functools
import importlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import tree
from benchmarks.programs import ORDER

# By the keys of dictionaries of weights, frameworks lay them out as their own layers do: a dense layer's matrix
# (inputs, outputs), and the kernel of a convolution (height, width, inputs of a group, outputs).
DENSE, KERNEL = "w", "kernel"
STREAM = 40
F32, BOTH = ("f32",), ("f32", "bf16")

# Numbers of which all random arrays are made: to draw every element takes longer than to run most programs.
_POOL = 4_000_037


@functools.cache
def _pool() -> np.ndarray:
    # Another seed than 0, with which one of the MLP's ReLUs is so near to 0 that rounding decides about a gradient.
    return np.random.default_rng(1).standard_normal(_POOL, np.float32)


def normal(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Return random f32 from a normal distribution. They repeat in arrays of more than some four million elements."""
    pool, start, count = _pool(), int(rng.integers(_POOL)), math.prod(shape)
    if start + count <= _POOL:
        return pool[start : start + count].reshape(shape).copy()
    return np.resize(np.concatenate((pool[start:], pool[:start])), shape)


class Draw:
    """Random f32 weights, the same in every process."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 0.02, mean: float = 0.0) -> np.ndarray:
        return normal(self._rng, shape) * np.float32(scale) + np.float32(mean)

    def dense(self, inputs: int, outputs: int, scale: float = 0.02) -> dict[str, np.ndarray]:
        return {DENSE: self.normal(inputs, outputs, scale=scale), "b": self.normal(outputs)}

    def norm(self, width: int) -> dict[str, np.ndarray]:
        """Return the weights of a layer norm; scale and bias are not quite 1 and 0."""
        return {"scale": self.normal(width, mean=1.0), "bias": self.normal(width)}

    def conv(self, size: int, inputs: int, outputs: int, groups: int = 1, gain: float = 1.0) -> dict[str, np.ndarray]:
        """Return the weights of a convolution with batch norm, with running means and variances.

        The scale of the kernel lets values neither grow nor vanish from layer to layer.
        """
        kernel = self.normal(size, size, inputs // groups, outputs, scale=(2 * groups / (size * size * inputs)) ** 0.5)
        variance = np.abs(self.normal(outputs, scale=0.1)) + 1
        small = {name: self.normal(outputs, scale=0.1) for name in ("bias", "mean")}
        return {KERNEL: kernel, "scale": self.normal(outputs, scale=0.1, mean=gain), "variance": variance, **small}


@dataclass(frozen=True)
class Program:
    """A function of weights and inputs, with the sizes that it is run at.

    fn: takes (ops, weights, *inputs), returns results; `ops` is a module of `frameworks`. inputs: takes sizes by name,
    returns arrays. dims: a shape string for each input. shapes: the sizes of the dims at which it is timed. stream: the
    least size, the largest and the step of each dim, for sizes that change from call to call. images: arrays of rank 4
    are (batch, height, width, channels); each framework has its own layout. trains: weights change from call to call.
    constraints: conditions on the dims, as "s <= 512".
    """

    name: str
    about: str
    fn: Callable[..., Any]
    weights: Callable[[Draw], Any]
    inputs: Callable[..., Sequence[np.ndarray]]
    dims: Sequence[str]
    shapes: Sequence[Mapping[str, int]]
    stream: Mapping[str, tuple[int, int, int]]
    images: bool = False
    trains: bool = False
    dtypes: Sequence[str] = F32
    constraints: Sequence[str] = ()

    def drawn(self) -> Any:
        """Return the weights as numpy arrays."""
        return self.weights(Draw(7))

    @functools.cached_property
    def weights_bytes(self) -> int:
        """The size of the weights in bytes, in f32."""
        return sum(x.nbytes for x in tree.leaves(self.drawn()))

    def sizes(self, *values: int) -> dict[str, int]:
        """Return sizes in the order that `shapes` has them in."""
        return dict(zip(self.shapes[0], values, strict=True))

    def stream_sizes(self) -> list[dict[str, int]]:
        """Return STREAM distinct sizes, or as many as there are."""
        pick = random.Random(0)
        ranges = {name: range(low, high + 1, step) for name, (low, high, step) in self.stream.items()}
        count = 1
        for values in ranges.values():
            count *= len(values)
        found: dict[tuple[int, ...], None] = {}
        while len(found) < min(STREAM, count):
            found[tuple(pick.choice(values) for values in ranges.values())] = None
        return [dict(zip(ranges, sizes, strict=True)) for sizes in found]


def programs(files: Sequence[str] = ORDER) -> list[Program]:
    """Return all programs of these files of `programs/`, in their order."""
    return [program for name in files for program in importlib.import_module(f"benchmarks.programs.{name}").PROGRAMS]


def named(name: str) -> Program:
    """Return the program of this name, among those that every framework runs."""
    (found,) = (program for program in programs() if program.name == name)
    return found


Task = tuple[Program, str]  # and its dtype


def chosen(pattern: str = "*", dtypes: Sequence[str] = BOTH) -> list[Task]:
    """Return the programs whose name fits a pattern, each with its dtypes."""
    matching = [program for program in programs() if fnmatch.fnmatch(program.name, pattern)]
    return [(program, dtype) for program in matching for dtype in program.dtypes if dtype in dtypes]
