"""The reports of what was compiled for PyTorch, and what stayed PyTorch's."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass

# Older ones are forgotten.
_MOST = 1000


@dataclass(frozen=True)
class Compilation:
    """One graph that `torch.compile` handed over.

    Args:
        kind: "inference", "forward" or "backward".
        seconds: what compiling took.
        programs: what is known of each program of it, as `Executable.explain(full=True)` says it: one, where all
            was supported.
        left: of each op that stays PyTorch's why it does, with its types and source line.
    """

    kind: str
    seconds: float
    programs: tuple[str, ...]
    left: tuple[str, ...]


_compilations: collections.deque[Compilation] = collections.deque(maxlen=_MOST)


def add(kind: str, seconds: float, programs: Sequence[str], left: Sequence[str]) -> None:
    """Remember a compilation."""
    _compilations.append(Compilation(kind, seconds, tuple(programs), tuple(left)))


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
        count = f"{len(made.programs)} program{'s' * (len(made.programs) != 1)}"
        lines.append(f"graph {number}, {made.kind}: {count}, {len(made.left)} ops left, {made.seconds:.2f} s")
        lines += [f"  {times} x {why}" for why, times in collections.Counter(made.left).items()]
        lines += made.programs if programs else []
    return "\n".join(lines)
