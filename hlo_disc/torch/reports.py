"""The reports of what was compiled for PyTorch, and what stayed PyTorch's."""

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
        seconds: what compiling took.
        left: of each op that stays PyTorch's why it does, with its types and source line.
    """

    kind: str
    seconds: float
    left: tuple[str, ...]
    _linked: tuple[Program, ...] = field(repr=False)
    _tallies: tuple[Tally, ...] = field(repr=False)

    @functools.cached_property
    def programs(self) -> tuple[str, ...]:
        """Descriptions of its programs, as of `Executable.explain(full=True)`: of one, where all was supported.

        Code of kernels that are compiled later is not counted.
        """
        return tuple(explain_program(program, full=True) for program in self._linked)

    @property
    def deferred_kernels(self) -> int:
        """How many kernels its programs were compiled without, and are still to be made."""
        return sum(tally.waiting for tally in self._tallies)

    @property
    def later_kernels(self) -> int:
        """How many were made since, by calls that needed them or by the thread that makes them."""
        return sum(tally.total for tally in self._tallies) - self.deferred_kernels

    @property
    def later_seconds(self) -> float:
        """How long these took."""
        return sum(tally.seconds for tally in self._tallies)


_compilations: collections.deque[Compilation] = collections.deque(maxlen=_MOST)


def add(kind: str, seconds: float, made: Sequence[Executable], left: Sequence[str]) -> None:
    """Remember a compilation. No text is made of it: that takes long, and most are never read."""
    tallies = tuple(x.tally for x in made if x.tally)
    _compilations.append(Compilation(kind, seconds, tuple(left), tuple(x.linked for x in made), tallies))


def compilations() -> tuple[Compilation, ...]:
    """The graphs that were compiled in this process, oldest first."""
    return tuple(_compilations)


def explain(programs: bool = False) -> str:
    """List the graphs compiled in this process, a line each, and below each the ops that stay PyTorch's, counted.

    Args:
        programs: with what `Executable.explain(full=True)` says of each program.
    """
    lines = []
    for number, made in enumerate(_compilations, 1):
        count = f"{len(made._linked)} program{'s' * (len(made._linked) != 1)}"
        lines.append(f"graph {number}, {made.kind}: {count}, {len(made.left)} ops left, {made.seconds:.2f} s")
        lines += [f"  {times} x {why}" for why, times in collections.Counter(made.left).items()]
        lines += made.programs if programs else []
    return "\n".join(lines)
