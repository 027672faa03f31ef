"""A case of the tests: a function of TensorFlow, its arguments with named sizes, and the sizes at which to call it."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": tf.bfloat16.as_numpy_dtype, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "bool": np.bool_, "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip
# Sizes of a, b, c and d: others than each other, all 1, and 0 of each.
SIZES = ((3, 5, 4, 2), (6, 2, 7, 3), (1, 1, 1, 1), (0, 3, 2, 4), (2, 0, 3, 1))
_NAMES = "abcd"


@dataclass(frozen=True)
class Case:
    """A case.

    arguments: "f32[a, 4]", with "@low:high" behind for numbers in a range. Errors up to `tolerance` are rounding.
    """

    name: str
    function: Callable[..., object]
    arguments: tuple[str, ...]
    sizes: Sequence[Sequence[int]] = SIZES
    tolerance: float = 2e-5

    @property
    def signature(self) -> list[tf.TensorSpec]:
        """The specs of the arguments. Names are unknown sizes."""
        made = []
        for i, text in enumerate(self.arguments):
            dtype, shape = parsed(text)
            sizes = [None if isinstance(n, str) else n for n in shape]
            made.append(tf.TensorSpec(sizes, DTYPES[dtype], name=f"x{i}"))
        return made

    def inputs(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """Return random arguments of these sizes, always the same."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        known = dict(zip(_NAMES, sizes, strict=False))
        return [array(rng, text, known) for text in self.arguments]


def parsed(text: str) -> tuple[str, list[int | str]]:
    dtype, _, rest = text.partition("@")[0].partition("[")
    sizes = [n.strip() for n in rest.rstrip("]").split(",") if n.strip()]
    return dtype, [int(n) if n.isdigit() else n for n in sizes]


def array(rng: np.random.Generator, text: str, known: Mapping[str, int]) -> np.ndarray:
    dtype, shape = parsed(text)
    sizes = [known[n] if isinstance(n, str) else n for n in shape]
    kind = np.dtype(DTYPES[dtype])
    _, _, bounds = text.partition("@")
    if bounds:
        low, high = (float(known.get(n, n)) for n in bounds.split(":"))
    else:
        low, high = (-2.0, 2.0) if kind.kind not in "iu" else (0, 5) if kind.kind == "u" else (-4, 5)
    if kind.kind in "iu":
        return rng.integers(int(low), max(int(high), int(low) + 1), sizes).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, sizes).astype(bool)
    if kind.kind == "c":
        return (rng.uniform(low, high, sizes) + 1j * rng.uniform(low, high, sizes)).astype(kind)
    return rng.uniform(low, high, sizes).astype(kind)


def cases(module: str, rows: Sequence[tuple]) -> list[Case]:
    """Return the cases of rows (name, function, arguments[, sizes[, tolerance]]) of a module of TensorFlow."""
    made = []
    for name, function, arguments, *rest in rows:
        given = (arguments,) if isinstance(arguments, str) else tuple(arguments)
        made.append(Case(f"{module}.{name}", function, given, *rest))
    names = [case.name for case in made]
    assert len(set(names)) == len(names), [n for n, _ in itertools.groupby(sorted(names))]
    return made
