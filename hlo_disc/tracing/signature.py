"""Splits a call of a Python function into static values and arrays, and finds the dims of each array.

`Signature` reads `inspect.signature` once; a call is then split without it. Arguments given by keyword become
positional if the function allows it, so that `f(x, y)` and `f(x, y=y)` are one program.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError

if TYPE_CHECKING:
    from jax import ShapeDtypeStruct
    from jax.typing import ArrayLike

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Static = tuple[tuple[int | str, type, Any], ...]  # where (position or name), type, value; the type tells 1 from True


class Signature:
    """The parameters of `fn`, with those that are static or donated. Raises ArgumentError for an unknown one."""

    def __init__(
        self,
        fn: Callable[..., Any],
        static_argnums: int | Iterable[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Iterable[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
    ):
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):  # a builtin without one
            self._signature = None
        parameters = list(self._signature.parameters.values()) if self._signature else []
        self.positional = tuple(p.name for p in parameters if p.kind in _POSITIONAL)
        self.by_keyword = tuple(
            p.name if p.kind is p.POSITIONAL_OR_KEYWORD else None for p in parameters if p.kind in _POSITIONAL
        )
        self.rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self.keyword_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.names = tuple(p.name for p in parameters)
        self.static_positions, self.static_names = self._places("static", static_argnums, static_argnames)
        self.donated_positions, self.donated_names = self._places("donate", donate_argnums, donate_argnames)
        self.has_static = bool(self.static_positions or self.static_names)
        if static_argnums is not None and static_argnames is not None:
            # Their values stay where they are given.
            exact = self.static_positions.union(map(self.positional.index, self.static_names & {*self.positional}))
            self.by_keyword = tuple(None if i in exact else name for i, name in enumerate(self.by_keyword))

    def _places(
        self, what: str, nums: int | Iterable[int] | None, names: str | Iterable[str] | None
    ) -> tuple[frozenset[int], frozenset[str]]:
        """Return parameters by number or name; those that may be given by position as positions.

        Not what is static by name where others are so by number: there JAX goes by how an argument is given.
        """
        exact = what == "static" and nums is not None
        given = () if nums is None else (nums,) if isinstance(nums, SupportsIndex) else tuple(nums)
        named = () if names is None else (names,) if isinstance(names, str) else tuple(names)
        positions, keywords = set(), set()
        for num in map(operator.index, given):
            if not (-len(self.positional) <= num < len(self.positional) or (self.rest and num >= 0)):
                count = len(self.positional)
                raise ArgumentError(f"{what}_argnums={num}: {self.name} has {count} positional parameters")
            positions.add(num if num >= 0 else num + len(self.positional))
        for name in named:
            if self._signature and name not in self.names and not self.keyword_rest:
                raise ArgumentError(f"{what}_argnames={name!r}: {self.name} has the parameters {', '.join(self.names)}")
            if name in self.positional and not exact:
                positions.add(self.positional.index(name))
            else:
                keywords.add(name)
        return frozenset(positions), frozenset(keywords)

    @property
    def static_argnums(self) -> list[int]:
        """Return all static positions, as `jax.jit` takes them."""
        return sorted(self.static_positions)

    @property
    def static_argnames(self) -> list[str]:
        """Return all names by which static arguments may be given, as `jax.jit` takes them."""
        return sorted(self.static_names.union(filter(None, map(self._by_keyword, self.static_positions))))

    def _by_keyword(self, position: int) -> str | None:
        return self.by_keyword[position] if position < len(self.by_keyword) else None

    def check_dims(self, dims: object) -> Mapping[str, object]:
        """Return `dims`. Raises ArgumentError if it is no mapping, or names an unknown parameter."""
        if not isinstance(dims, Mapping):
            name, shape = self.names[0] if self.names else "x", dims if isinstance(dims, str) else "(n, _)"
            raise ArgumentError(
                f"dims is {dims!r}, must map the parameters of {self.name} to shape strings, as in "
                f"dims={{{name!r}: {shape!r}}}"
            )
        for name in dims:
            if self._signature and name not in self.names and not self.keyword_rest:
                raise ArgumentError(f"dims names {name!r}, but {self.name} has the parameters {', '.join(self.names)}")
        return dims

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise ArgumentError if the function cannot be called like this."""
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(f"{self.name}{self._signature}: {error}") from None

    def split(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object], Static]:
        """Split a call into (array arguments, array keyword arguments, static arguments). May change `kwargs`."""
        if kwargs:
            moved = list(args)
            for name in self.by_keyword[len(args) :]:
                if name not in kwargs:
                    break
                moved.append(kwargs.pop(name))
            args = tuple(moved)
        if not self.has_static:
            return args, kwargs, ()
        static: list[tuple[int | str, type, Any]]
        static = [(i, type(args[i]), args[i]) for i in sorted(self.static_positions) if i < len(args)]
        names = {name for i in self.static_positions if (name := self._by_keyword(i)) and len(args) <= i}
        names |= self.static_names
        static += [(name, type(kwargs[name]), kwargs[name]) for name in sorted(names & kwargs.keys())]
        for where, kind, value in static:
            try:
                hash(value)
            except TypeError:
                raise ArgumentError(
                    f"the static argument {self.parameter(where)} of {self.name} is a {kind.__name__}, which is not "
                    "hashable: pass a tuple, a string or another immutable value"
                ) from None
        return (
            tuple(a for i, a in enumerate(args) if i not in self.static_positions),
            {k: v for k, v in kwargs.items() if k not in names},
            tuple(static),
        )

    def bind(self, static: Static) -> Callable[..., object]:
        """Return the function of the remaining arguments, in `split`'s order."""
        if not static:
            return self.fn
        at = {where: value for where, _, value in static if isinstance(where, int)}
        named = {where: value for where, _, value in static if isinstance(where, str)}

        def bound(*args: object, **kwargs: object) -> object:
            rest = iter(args)
            full = [at[i] if i in at else next(rest) for i in range(len(args) + len(at))]
            return self.fn(*full, **kwargs, **named)

        return bound

    def parameter(self, where: int | str) -> str:
        """Return the name of a parameter by position or name, for messages."""
        if isinstance(where, str):
            return where
        if where < len(self.positional):
            return self.positional[where]
        return f"{self.rest or 'args'}[{where - len(self.positional)}]"

    def leaves(self, args: Sequence[object], kwargs: Mapping[str, object], static: Static) -> list[str]:
        """Name the arrays in a split call, in flattening order: "x", "params['w']", "rest[0]"."""
        from jax import tree_util

        return [
            name + tree_util.keystr(path)
            for name, value in self.arguments(args, kwargs, static)
            for path, _ in tree_util.tree_flatten_with_path(value)[0]
        ]

    def donated(self, args: Sequence[object], kwargs: Mapping[str, object], static: Static) -> list[int]:
        """Return which arrays of a split call are donated, by their numbers in flattening order."""
        from jax import tree_util

        if not self.donated_positions and not self.donated_names:
            return []
        taken = {where for where, _, _ in static if isinstance(where, int)}
        positions = (i for i in itertools.count() if i not in taken)
        names = self.donated_names.union(self.positional[i] for i in self.donated_positions if i < len(self.positional))
        arguments = [(i in self.donated_positions, value) for i, value in zip(positions, args, strict=False)]
        arguments += [(name in names, value) for name, value in sorted(kwargs.items())]
        flags = [given for given, value in arguments for _ in tree_util.tree_leaves(value)]
        return [k for k, given in enumerate(flags) if given]

    def arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object], static: Static
    ) -> Iterator[tuple[str, object]]:
        """Return the parameters of a split call with their values, in flattening order; `*rest` is one tuple."""
        taken = {where for where, _, _ in static if isinstance(where, int)}
        positions = (i for i in itertools.count() if i not in taken)
        rest = []
        for value, position in zip(args, positions, strict=False):
            if position < len(self.positional):
                yield self.positional[position], value
            else:
                rest.append(value)
        if rest:
            yield self.rest or "args", tuple(rest)
        yield from sorted(kwargs.items())

    def dims(
        self, given: Mapping[str, object], args: Sequence[object], kwargs: Mapping[str, object], static: Static
    ) -> list[str | None]:
        """Return the shape string of each array in a split call, None if the user gave none.

        Raises ArgumentError for a pytree of strings that does not fit the argument's.
        """
        import jax

        shapes: list[str | None] = []
        for name, value in self.arguments(args, kwargs, static):
            spec = given.get(name)
            if name == self.rest and isinstance(spec, list):
                spec = tuple(spec)
            try:
                jax.tree.map(
                    lambda text, below: shapes.extend([text] * len(jax.tree.leaves(below))),
                    spec,
                    value,
                    is_leaf=lambda node: node is None or isinstance(node, str),
                )
            except ValueError as error:
                raise ArgumentError(f"dims[{name!r}] does not fit the argument of {self.name}: {error}") from None
        return shapes


def parse_dims(text: str, rank: int, name: str) -> tuple[str | None, ...]:
    """Split a shape string into one dim expression for each axis, None for a static one.

    "(b, s, _)" -> ("b", "s", None); "..." stands for the static axes left over. Raises ArgumentError when it does not
    fit an array of this rank, ParseError when it is none.
    """
    from hlo_disc.import_.sizes.symbols import parse_shape

    rest = "_rest_"
    dims = parse_shape(text.replace("...", rest))
    if Dim.symbol(rest) in dims:
        at = dims.index(Dim.symbol(rest))
        dims[at : at + 1] = [None] * (rank - len(dims) + 1)
    if len(dims) != rank:
        raise ArgumentError(f"dims of {name}: {text!r} has {len(dims)} dims, the argument has {rank}")
    return tuple(None if d is None else str(d) for d in dims)


def spec_dims(
    spec: ArrayLike | ShapeDtypeStruct | str, text: str | None, name: str
) -> tuple[ArrayLike | ShapeDtypeStruct, tuple[str | None, ...]]:
    """Parse a spec to (array, number or ShapeDtypeStruct, its dims): "f32[b, 64]" or an array with the shape string
    `text`.

    A dynamic axis of a string has size 1 in the result. Raises ArgumentError, ParseError.
    """
    import jax

    if not isinstance(spec, str):
        rank = len(getattr(spec, "shape", ()))
        return spec, (None,) * rank if text is None else parse_dims(text, rank, name)
    head, bracket, tail = spec.partition("[")
    if not bracket or not tail.rstrip().endswith("]"):
        raise ArgumentError(f"the spec {spec!r} of {name} is not of the form 'f32[b, 64]'")
    dtype = _dtype(head.strip(), spec, name)
    from hlo_disc.import_.sizes.symbols import parse_shape

    sizes = parse_shape(tail.rstrip()[:-1])
    if None in sizes:
        raise ArgumentError(f"the spec {spec!r} of {name} has '_' for a size: write the number")
    shape = tuple(d.value if d is not None and d.is_const else 1 for d in sizes)
    dims = tuple(None if d is None or d.is_const else str(d) for d in sizes)
    if text is not None:
        dims = tuple(a if b is None else b for a, b in zip(dims, parse_dims(text, len(dims), name), strict=True))
    return jax.ShapeDtypeStruct(shape, dtype), dims


def _dtype(name: str, spec: str, argument: str) -> np.dtype:
    """Return a dtype by numpy's name or StableHLO's: float32 or f32, int8 or i8, complex64 or c64, bool or i1."""
    match = re.fullmatch(r"(bf|f|i|s|ui|u|c)(\d+)", name)
    if name in ("i1", "pred"):
        name = "bool"
    elif match:
        kind, bits = match.groups()
        names = {"bf": "bfloat", "f": "float", "i": "int", "s": "int", "ui": "uint", "u": "uint", "c": "complex"}
        name = names[kind] + bits
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise ArgumentError(f"the spec {spec!r} of {argument} has an unknown dtype {name!r}") from None
