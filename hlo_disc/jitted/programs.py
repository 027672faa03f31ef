"""The programs of a jitted function, and the search for the one that serves a call.

`Programs` has all programs under one state of JAX's settings. An `Entry` has those of one function for some dtypes and
ranks. A `Path` has the facts that serve the next call like an earlier one.
"""

from __future__ import annotations

import collections
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_disc import ral
from hlo_disc.abi import ASKED_BITS
from hlo_disc.display.stats import FallbackCount
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.executable import Executable
from hlo_disc.ral.entries import ByJax, ConversionAt, Kinds, Plain
from hlo_disc.tracing.generalise import Dims, Sizes, changes, fixed, place_of, reason
from hlo_disc.tracing.signature import Static
from hlo_disc.tracing.structure import Structures
from hlo_disc.tracing.structure import arrays as structure_arrays
from hlo_disc.tracing.structure import changes as changed
from hlo_disc.tracing.trace import Traced
from hlo_disc.tracing.values import describe, given

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef
    from jax.typing import ArrayLike

    from hlo_disc.jitted.flat import FlatFunction
    from hlo_disc.tracing.structure import Structure

# With sizes in its static data each structure has a path of its own, which is found by comparing it with so many.
_REMEMBERED = 8

Conversion = Callable[[Any], Any] | None
Key = tuple["Structure", Static, Kinds]  # of tables of programs, also in `fast_path.cc`
Histories = dict[Any, list[Sizes]]  # the sizes that were compiled for, by dtypes and ranks


class Backward:
    """The program of derivatives, from the inputs, the `needed` results of the first program, and `seeds`.

    compile: compiles the program when it is first needed; tangents alone do not need it.
    """

    def __init__(self, compile: Callable[[], Executable], needed: tuple[int, ...], seeds: tuple[int, ...]):
        self._compile, self.needed, self.seeds = compile, needed, seeds
        self._lock = threading.Lock()
        self.made: Executable | None = None

    @property
    def executable(self) -> Executable:
        with self._lock:
            if self.made is None:
                self.made = self._compile()
        return self.made


class Compiled(NamedTuple):
    """One compiled program of an entry: what was traced, the sizes that it was compiled at, and its machine code.

    traced: with an empty graph where the program was asked nothing, for nobody needs it then. run: how Python's calls
        run it. backward: of a function that is compiled with its derivatives, which come last among the traced results.
        donated: which of the arrays, without those that the results do not depend on.
    """

    traced: Traced
    sizes: Sizes
    executable: Executable
    run: Callable[..., tuple[Any, ...]]
    backward: Backward | None = None
    donated: tuple[int, ...] = ()

    def unmet(self, sizes: Sizes) -> int:
        """Return which of its asked conditions these sizes break, one bit each; they must have the program's fixed
        sizes."""
        if not self.traced.asked:
            return 0
        return self.executable.native.unmet([size for shape in self._data(sizes) for size in shape])

    def outputs(self, sizes: Sizes) -> list[tuple[str, list[int]]]:
        """Return the dtypes and shapes of the outputs at these sizes. Raises ShapeError if they break a guard."""
        names = [row.dtype for row in self.executable.linked.inputs]
        return self.executable.native.infer(list(zip(names, self._data(sizes), strict=True))).types

    def _data(self, sizes: Sizes) -> list[list[int]]:
        """Return the sizes of the inputs; for a random key those of its data."""
        rows = self.executable.linked.inputs
        return [[*shape, *map(int, row.shape[len(shape) :])] for shape, row in zip(sizes, rows, strict=True)]


class Entry:
    """The programs of a function for some dtypes and ranks. `lock` is held while compiling, never in a call.

    dims: as the user gave them; None finds them from `history`, the sizes that were compiled for, also with other
    static arguments. first: why there is an entry. unsupported: why sizes that no program serves are left to JAX.
    """

    def __init__(self, names: list[str], dims: Dims | None, first: str, history: list[Sizes]):
        self.names, self.dims, self.first, self.history = names, dims, first, history
        self.lock = threading.Lock()
        self.unsupported = ""
        self.programs: list[Compiled] = []

    def find(self, sizes: Sizes) -> Compiled | None:
        """Find the program that serves these sizes. With the user's dims a broken guard is an error, not another
        program."""
        return next((p for p in self.fitting(sizes) if not p.unmet(sizes)), None)

    def fitting(self, sizes: Sizes) -> Iterator[Compiled]:
        """Return the programs whose dims these sizes fit, the last one first, whatever their asked conditions."""
        return (p for p in reversed(self.programs) if self._fits(p, sizes))

    def _fits(self, program: Compiled, sizes: Sizes) -> bool:
        dims = program.traced.dims
        if self.dims is not None:
            return fixed(dims, sizes) == fixed(dims, program.sizes)
        return not any(changes(self.names, dims, program.sizes, sizes))

    def add(self, variant: Compiled) -> None:
        """Add a program, and remove those that it replaces, as those of fewer dims."""
        self.history.append(variant.sizes)
        others = [p for p in self.programs if not self._fits(variant, p.sizes) or variant.unmet(p.sizes)]
        self.programs = [*others, variant]

    def why(self, sizes: Sizes) -> str:
        """Return why a call with these sizes has to compile."""
        if not self.programs:
            return self.first
        program = next(self.fitting(sizes), None)
        if program is not None:
            unmet, asked = program.unmet(sizes), program.traced.asked
            broken = [a for k, a in enumerate(asked) if unmet >> min(k, ASKED_BITS) & 1]
            told = (self.told(program.traced.wanted, f"{a} does not hold, which {a.line} asked") for a in broken)
            return "; ".join(told)
        last = self.programs[-1]
        if self.dims is None:
            found = reason(self.names, last.traced.dims, last.sizes, sizes)
        else:  # it is the sizes that the user's dims leave fixed that differ
            dims = tuple((None,) * len(ds) for ds in last.traced.dims)
            found = reason(self.names, dims, fixed(last.traced.dims, last.sizes), fixed(last.traced.dims, sizes))
        lines = dict.fromkeys(n.line for n in last.traced.numbers)
        return found + "".join(f"; {line} asked for a number" for line in lines)

    def told(self, dims: Dims, text: str) -> str:
        """Return a text about symbols in the user's terms: found symbols are sizes of arguments."""
        if self.dims is not None:
            return text
        places: dict[str, str] = {}
        for name, ds in zip(self.names, dims, strict=True):
            for axis, d in enumerate(ds):
                if d is not None:
                    places.setdefault(d, place_of(name, axis))
        return re.sub(r"\bd\d+\b", lambda found: places.get(found[0], found[0]), text)


class Fallen(NamedTuple):
    """A call that runs through `jax.jit`.

    to_numpy: whether its results become numpy's. quiet: whether it needs no warning.
    """

    fallback: FallbackCount
    to_numpy: bool
    quiet: bool


class Programs(ral.FastTables):
    """The programs for one state of JAX's settings. What it keeps is only added to, each by one step.

    unchanged: whether the calling thread's settings are these still. by_jax: see `JitFunction`. flatten: JAX's, where
        all arguments are arrays. reason_for_jax: why calls run through `jax.jit` under them, "" when they do not.
    plain: by the types of the arguments, for calls whose arguments a program takes as they are. paths: by structure,
        static values and types, for all others. fallen: by the same, what runs through `jax.jit`.
    """

    def __init__(
        self,
        unchanged: Callable[[], bool],
        by_jax: dict[Kinds, ByJax],
        flatten: Callable[[object], tuple[list[ArrayLike], PyTreeDef]] | None = None,
        reason_for_jax: str = "",
        first: str = "first call",
    ):
        self.unchanged, self.reason_for_jax, self._first = unchanged, reason_for_jax, first
        self.functions: dict[tuple[Any, Static], FlatFunction] = {}
        self.structures = Structures()
        self._remembered: collections.deque[Key] = collections.deque()
        self._histories: dict[Any, Histories] = {}
        self.plain: dict[Kinds, Plain] = {}
        self.paths: dict[Key, Callable[[Sequence[Any]], Any]] = {}
        self.fallen: dict[Key, Fallen] = {}
        super().__init__(unchanged=unchanged, by_jax=by_jax, plain=self.plain, paths=self.paths, flatten=flatten)

    def histories(self, tree: Structure) -> Histories:
        """Return the sizes that were compiled for arguments of this structure, whatever the static ones."""
        return self._histories.setdefault(tree, {})

    def widen(self, structure: Structure, before: Structure, sizes: Sequence[int]) -> None:
        """Copy the known sizes of `before` to `structure`, which replaces it and has these sizes as arrays."""
        added = tuple((info.dtype, len(info.shape), info.weak) for info in map(describe, structure_arrays(sizes)))
        shapes = tuple((n, 0) for n in sizes)
        known = self.histories(before).items()
        self._histories.setdefault(structure, {(*key, *added): [(*s, *shapes) for s in found] for key, found in known})

    def remember(self, key: Key, path: Callable[[Sequence[ArrayLike]], object], sizes: Sequence[ArrayLike]) -> None:
        """Make calls of this structure take a path, with these arrays for the sizes in it; the last few structures are
        kept."""
        self.paths[key] = lambda leaves: path([*leaves, *sizes])
        self._remembered.append(key)
        if len(self._remembered) > _REMEMBERED:
            self.paths.pop(self._remembered.popleft(), None)

    def first_of(self, structure: Structure, tree: PyTreeDef, names: Callable[[], Sequence[str]]) -> str:
        """Describe how a call with arguments of this structure differs from the existing functions.

        tree: for which the structure stands. names: what the items of its static data are called.
        """
        known = [s for (s, _), function in list(self.functions.items()) if function.entries]
        if not known:
            return self._first
        if structure in known:
            return "first call with these static arguments"
        found: list[str] = next(filter(None, (changed(s, tree, names()) for s in known if type(s) is type(tree))), [])
        if not found:
            return "first call with this structure of arguments"
        return f"static data of the arguments: {'; '.join(found)}"


class Path:
    """The part of a program for the fast path: how to run it, what it takes, and how to give back its results.

    taken, given: for each argument what makes of it what the program takes, for each result what makes of it what the
    call gives back; None for what passes as it is. call: runs the program on a list of arrays. plain: does it without
    a list; None unless all arguments and results pass as they are.
    """

    __slots__ = ("call", "plain")

    def __init__(
        self, run: Callable[..., object], taken: Sequence[Conversion], given: Sequence[Conversion], out_tree: Structure
    ):
        plain = Plain(run, None if is_leaf_tree(out_tree) else out_tree.unflatten)
        conversions = _conversions(taken), _conversions(given)
        self.plain = None if any(conversions) else plain
        self.call = ral.path(plain.run, plain.unflatten, *conversions)

    @staticmethod
    def of(program: Compiled, taken: Sequence[Conversion], wrap: bool) -> Path:
        """Return how calls run in a program. wrap: numpy arrays in the results become JAX's."""
        results = [given(result, wrap) for result in program.traced.results]
        return Path(program.run, taken, results, program.traced.out_tree)


class Finished:
    """A path after which something is left to do: `finish` takes the arrays and results of a call, returns results."""

    __slots__ = ("_finish", "_path")

    def __init__(self, path: Path, finish: Callable[[Sequence[ArrayLike], object], object]):
        self._path, self._finish = path, finish

    def call(self, leaves: Sequence[ArrayLike]) -> object:
        return self._finish(leaves, self._path.call(leaves))


class Paths:
    """Paths of several programs, which other sizes ask for. The next call is likely to be like the last one, so the
    program that served it is tried first: by `plain`, if that takes such calls, and last here then.

    plain: makes such calls run without a path; None where they need one.
    """

    __slots__ = ("_paths", "_plain")

    def __init__(self, paths: Sequence[Path | Finished], plain: Callable[[Plain], None] | None):
        self._paths, self._plain = tuple(paths), plain

    def call(self, leaves: Sequence[ArrayLike]) -> object:
        paths = self._paths
        for path in paths:
            try:
                results = path.call(leaves)
            except (ArgumentError, ShapeError) as error:
                refused = error
                continue
            if self._plain is not None or path is not paths[0]:
                self._prefer(path, [other for other in paths if other is not path])
            return results
        raise refused

    def _prefer(self, path: Path | Finished, others: Sequence[Path | Finished]) -> None:
        plain = path.plain if isinstance(path, Path) else None
        if self._plain is None or plain is None:
            self._paths = (path, *others)
        else:
            self._plain(plain)
            self._paths = (*others, path)


def _conversions(by_place: Sequence[Conversion]) -> tuple[ConversionAt, ...]:
    return tuple(ConversionAt(i, convert) for i, convert in enumerate(by_place) if convert is not None)


def is_leaf_tree(tree: Structure) -> bool:
    return bool(tree.num_nodes == 1 and tree.num_leaves == 1)
