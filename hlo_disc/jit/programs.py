"""The programs of a jitted function: which of them serves a call.

`Programs` has all of one state of JAX's settings, and an `Entry` those for one structure, static values, dtypes and
ranks. A `Path` is what the next call like one that was served needs of a program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hlo_disc.executable import Executable
from hlo_disc.generalise import Dims, Sizes, changes, fixed, reason
from hlo_disc.signature import Static
from hlo_disc.values import Result

Conversion = Callable[[Any], Any] | None


class Compiled(NamedTuple):
    """One compiled program of an entry: its dims, the sizes that it was compiled at, and what its results are."""

    dims: Dims
    sizes: Sizes
    executable: Executable
    out_tree: Any
    results: tuple[Result, ...]


class Entry:
    """The programs for one structure, static values, dtypes and ranks. `lock` is held while compiling, never in a call.

    dims: as the user gave them; None finds them from `history`, the sizes that were compiled for. first: why there is
    an entry. unsupported: why sizes that no program serves are left to JAX.
    """

    def __init__(self, names: list[str], dims: Dims | None, first: str):
        self.names, self.dims, self.first = names, dims, first
        self.lock = threading.Lock()
        self.history: list[Sizes] = []
        self.unsupported = ""
        self.found: Compiled | None = None
        self.by_fixed: dict[Sizes, Compiled] = {}

    def find(self, sizes: Sizes) -> Compiled | None:
        """The program that serves these sizes. With the user's dims a broken guard is an error, not another program."""
        if self.dims is not None:
            return self.by_fixed.get(fixed(self.dims, sizes))
        found = self.found
        misfits = found is None or any(changes(self.names, found.dims, found.sizes, sizes))
        return None if misfits else found

    def add(self, variant: Compiled) -> None:
        self.history = [*self.history, variant.sizes]
        if self.dims is not None:
            self.by_fixed[fixed(self.dims, variant.sizes)] = variant
        else:
            self.found = variant

    def why(self, sizes: Sizes) -> str:
        """Why a call with these sizes has to compile."""
        if not self.history:
            return self.first
        if self.found is not None:
            return reason(self.names, self.found.dims, self.found.sizes, sizes)
        # The user's dims: it is the sizes that they leave fixed that differ.
        dims = tuple((None,) * len(ds) for ds in self.dims or ())
        return reason(self.names, dims, fixed(self.dims or (), self.history[-1]), fixed(self.dims or (), sizes))


class Programs:
    """The programs for one state of JAX's settings. What it keeps is only added to, each by one step.

    unchanged: whether the calling thread's settings are these still. reason_for_jax: why calls run through `jax.jit`
        under them, "" when they do not. plain: (how to run, how to nest the results) by the types of the arguments, for
        calls whose arguments a program takes as they are. paths: by structure, static values and types, for all others.
    """

    def __init__(self, unchanged: Callable[[], bool], reason_for_jax: str = "", first: str = "first call"):
        self.unchanged, self.reason_for_jax, self._first = unchanged, reason_for_jax, first
        self.entries: dict[tuple[Any, Static, Any], Entry] = {}
        self.plain: dict[tuple[type, ...], tuple[Callable[..., Any], Callable[..., Any] | None]] = {}
        self.paths: dict[Any, Callable[[Sequence[Any]], Any]] = {}

    def first_of(self, tree: Any, static: Static) -> str:
        """What a call with arguments of this structure is the first of, by the entries that there are."""
        known = [(t, s) for t, s, _ in self.entries]
        if not known:
            return self._first
        if all(t != tree for t, _ in known):
            return "first call with this structure of arguments"
        if (tree, static) in known:
            return "first call with these dtypes and ranks"
        return "first call with these static arguments"


class Path:
    """What the fast path needs of a program: how to run it, what it takes, and how to give back its results.

    taken, given: for each argument what makes of it what the program takes, for each result what makes of it what the
    call gives back; None for what passes as it is.
    """

    __slots__ = ("run", "unflatten", "_taken", "_given")

    def __init__(
        self, run: Callable[..., Any], taken: Sequence[Conversion], given: Sequence[Conversion], out_tree: Any
    ):
        self.run, self._taken, self._given = run, _conversions(taken), _conversions(given)
        self.unflatten = None if is_leaf_tree(out_tree) else out_tree.unflatten

    @property
    def is_plain(self) -> bool:
        """Whether all arguments and results pass as they are."""
        return not self._taken and not self._given

    def __call__(self, leaves: Sequence[Any]) -> Any:
        if self._taken:
            leaves = _converted(leaves, self._taken)
        results = self.run(*leaves)
        if self._given:
            results = _converted(results, self._given)
        return results[0] if self.unflatten is None else self.unflatten(results)


def _conversions(by_place: Sequence[Conversion]) -> list[tuple[int, Callable[[Any], Any]]]:
    return [(i, convert) for i, convert in enumerate(by_place) if convert is not None]


def _converted(values: Sequence[Any], conversions: list[tuple[int, Callable[[Any], Any]]]) -> Sequence[Any]:
    changed = list(values)
    for i, convert in conversions:
        changed[i] = convert(changed[i])
    return changed


def is_leaf_tree(tree: Any) -> bool:
    return tree.num_nodes == 1 and tree.num_leaves == 1
