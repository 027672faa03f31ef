"""The reports of the graphs that were compiled for PyTorch, and of the ops that stayed PyTorch's."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from dataclasses import field

from hlo_disc.compiled.deferred import Tally
from hlo_disc.compiled.program import Program
from hlo_disc.executable import Executable
from hlo_disc.explain.explanation import explain_program
from hlo_disc.frozen import frozen

# Older ones are forgotten.
_MOST = 1000


@frozen
class Compilation:
    """One graph that `torch.compile` handed over.

    Args:
        kind: "inference", "forward" or "backward".
        seconds: the time that the compilation took.
        left: the reasons why ops stay PyTorch's, with their types and source lines.
    """

    kind: str
    seconds: float
    left: tuple[str, ...]
    _linked: tuple[Program, ...] = field(repr=False)
    _tallies: tuple[Tally, ...] = field(repr=False)

    @functools.cached_property
    def programs(self) -> tuple[str, ...]:
        """The descriptions of its programs by `Executable.explain(full=True)`: one program if all ops are supported.

        The code of kernels that are compiled later is not counted.
        """
        return tuple(explain_program(program, full=True) for program in self._linked)

    @property
    def deferred_kernels(self) -> int:
        """The number of kernels that its programs were compiled without, and that are not compiled yet."""
        return sum(tally.waiting for tally in self._tallies)

    @property
    def later_kernels(self) -> int:
        """The number of deferred kernels that calls or the background thread have compiled since."""
        return sum(tally.total for tally in self._tallies) - self.deferred_kernels

    @property
    def later_seconds(self) -> float:
        """The seconds that compiling these later kernels took."""
        return sum(tally.seconds for tally in self._tallies)


_compilations: collections.deque[Compilation] = collections.deque(maxlen=_MOST)


def add(kind: str, seconds: float, made: Sequence[Executable], left: Sequence[str]) -> None:
    """Remember a compilation. Its description is not written yet: that takes long, and most are never read."""
    tallies = tuple(x.tally for x in made if x.tally)
    _compilations.append(Compilation(kind, seconds, tuple(left), tuple(x.linked for x in made), tallies))


def compilations() -> tuple[Compilation, ...]:
    """Return the graphs that were compiled in this process, oldest first."""
    return tuple(_compilations)


def explain(programs: bool = False) -> str:
    """List the graphs compiled in this process, a line each; below each, its ops that stay PyTorch's, with counts.

    Args:
        programs: whether to add the description of each program by `Executable.explain(full=True)`.
    """
    lines = []
    for number, made in enumerate(_compilations, 1):
        count = f"{len(made._linked)} program{'s' * (len(made._linked) != 1)}"
        lines.append(f"graph {number}, {made.kind}: {count}, {len(made.left)} ops left, {made.seconds:.2f} s")
        lines += [f"  {times} x {why}" for why, times in collections.Counter(made.left).items()]
        lines += made.programs if programs else []
    return "\n".join(lines)
