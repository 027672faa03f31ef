"""A row of the surface table: a public function of JAX, how it is called, and the arrays for a size n."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from cases.programs import Arg, argument, fill

_WIDE = ("float64", "int64", "uint64", "complex128")


@dataclass(frozen=True, eq=False)
class Row:
    """One way to call a function.

    specs: the arrays, as `programs.fill` reads them, "f32[n, 3]:unit", beside its values those of `_ARRANGED`;
        "key[]" and "key[n]" are random keys. call: from the function and the arrays to a result; None hands it the
        arrays and the options.
    """

    specs: tuple[str, ...]
    call: Callable[..., Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([*self.specs, *(f"{name}={value!r}" for name, value in self.options.items())])

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of arrays alone that is compiled."""
        call = self.call

        def program(*arrays: Any) -> Any:
            return call(function, *arrays) if call else function(*arrays, **self.options)

        return program

    def arrays(self, n: int, draw: int | None = None) -> list[jax.Array]:
        """The arguments at size n, the same at every call. draw: for several of them."""
        rng = np.random.default_rng(zlib.crc32(f"{self} {n}{'' if draw is None else f' {draw}'}".encode()))
        return [_keys(spec, n) if spec.startswith("key") else _array(rng, spec, n) for spec in self.specs]

    @property
    def has_floats(self) -> bool:
        """Return whether the function can be differentiated by some of the arrays."""
        return any(not spec.startswith("key") and _read(spec).dtype.kind not in "iub" for spec in self.specs)

    @property
    def x64(self) -> bool:
        """Whether an array needs JAX's 64-bit types."""
        return any(str(_read(spec).dtype) in _WIDE for spec in self.specs if not spec.startswith("key"))


def on(*specs: str, call: Callable[..., Any] | None = None, **options: Any) -> Row:
    """A row: the function on these arrays with these options, or what `call` makes of it."""
    return Row(specs, call, options)


Table = Mapping[str, Sequence[Row]]  # by the name in the module


def each(names: str, *rows: Row) -> Table:
    """Return a table with the same rows for several functions."""
    return dict.fromkeys(names.split(), rows)


def table(*parts: Table) -> Table:
    """One table of several. Raises ValueError when a function is in two."""
    names = list(itertools.chain(*parts))
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"in the table twice: {', '.join(sorted(twice))}")
    return {name: rows for part in parts for name, rows in part.items()}


# Values that belong together along the last axis, or the last two, made of calm ones.
_ARRANGED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "sorted": lambda x: np.sort(x, -1),
    "simplex": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "symmetric": lambda x: x + np.conj(np.swapaxes(x, -1, -2)),
    "definite": lambda x: x @ np.conj(np.swapaxes(x, -1, -2)) + x.shape[-1] * np.eye(x.shape[-1]),
    "regular": lambda x: x + 4 * x.shape[-1] * np.eye(x.shape[-2], x.shape[-1]),
    "triangular": lambda x: np.tril(x + 4 * x.shape[-1] * np.eye(x.shape[-1])),
}


def _read(spec: str) -> Arg:
    return argument("x", spec)


def _array(rng: np.random.Generator, spec: str, n: int) -> jax.Array:
    values = spec.partition(":")[2]
    if values not in _ARRANGED:
        return jax.device_put(fill(rng, _read(spec), {"n": n}))
    arg = _read(spec.replace(values, "calm"))
    x = fill(rng, arg, {"n": n})
    return jax.device_put(_ARRANGED[values](x.astype(np.result_type(x, np.float64))).astype(arg.dtype))


def _keys(spec: str, n: int) -> jax.Array:
    shape = tuple(n if entry == "n" else int(entry) for entry in spec[4:-1].split(", ") if entry)
    return jax.random.split(jax.random.key(n), shape) if shape else jax.random.key(n)
