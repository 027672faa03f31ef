"""A call of a jitted function on its way to a program, and the program that served it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_disc.jitted.programs import Compiled, Conversion, Key, Path
from hlo_disc.ral.entries import Kinds
from hlo_disc.tracing.signature import Static
from hlo_disc.tracing.values import as_array, is_number, taken

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef
    from jax.typing import ArrayLike

    from hlo_disc.jitted.flat import FlatFunction
    from hlo_disc.tracing.structure import Structure
    from hlo_disc.tracing.values import Leaf

# So many programs are tried, one after the other, before the sizes of a call are looked at.
_TRIED = 8


class Call(NamedTuple):
    """A call's arguments, with the keys by which programs are found.

    split: the arguments as `Signature.split` tells them apart. leaves, tree: JAX's, of those that are not static.
    kinds: the types of the leaves. structure: takes the place of `tree` if sizes in static data are passed as arrays,
    which then are the last ones of `leaves`.
    """

    args: tuple[object, ...]
    kwargs: dict[str, object]
    split: tuple[tuple[object, ...], dict[str, object], Static]
    leaves: list[ArrayLike]
    tree: PyTreeDef
    kinds: Kinds
    structure: Structure

    @property
    def static(self) -> Static:
        return self.split[2]

    @property
    def key(self) -> Key:
        """The key of tables of programs."""
        return self.structure, self.static, self.kinds

    @property
    def sizes(self) -> list[ArrayLike]:
        """The arrays for sizes in static data."""
        return self.leaves[len(self.kinds) :]


class Served(NamedTuple):
    """A program that served a call, the way it was run, the results, and the other programs that similar calls may
    need.

    conversions: as of `Path`. wrap: whether numpy arrays in the results become JAX's.
    """

    program: Compiled
    path: Path
    conversions: Sequence[Conversion]
    wrap: bool
    others: Sequence[Compiled]
    result: Any

    @staticmethod
    def by(flat: FlatFunction, call: Call, infos: list[Leaf]) -> Served:
        """Run a call in the program of a function that serves it, which is compiled if there is none.

        infos: the types of the call's leaves.
        """
        entry = flat.entry(infos)
        program = flat.program(entry, infos, for_call=True)
        conversions = [taken(x, info) for x, info in zip(call.leaves, infos, strict=True)]
        # Without an array there is no type to follow: the results are JAX's then, as from jax.jit.
        wrap = all(map(is_number, call.leaves[: len(call.kinds)]))
        path = Path.of(program, conversions, wrap)
        inputs = zip(call.leaves, infos, conversions, strict=True)
        with program.executable.first_call():
            result = path.call([x if c else as_array(x, i) for x, i, c in inputs])
        others = [p for p in reversed(entry.programs) if p is not program][: _TRIED - 1]
        return Served(program, path, conversions, wrap, others, result)

    def path_of(self, program: Compiled) -> Path:
        """Return how the next call like this one runs in a program."""
        return Path.of(program, self.conversions, self.wrap)
