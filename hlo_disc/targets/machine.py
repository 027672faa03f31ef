"""What the translator may know of a machine: a record, which targets fill in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_disc.targets.vecexpr import X


@dataclass(frozen=True)
class Machine:
    """A machine as the translator sees it.

    triple, layout: LLVM's target triple and data layout.
    attributes: function attributes that every definition gets.
    pair_dot: the LLVM intrinsic f(sums, x, y) that adds products of pairs of bf16 to a vector of f32, "" for none. Code
        generation aborts the process on an intrinsic that the machine lacks.
    scale: f(x, n) makes x * 2^n of f32 by the machine's instruction, or gives None where that has no such lanes.
    """

    triple: str
    layout: str
    attributes: str = "nounwind"
    pair_dot: str = ""
    scale: Callable[[X, X], X | None] | None = None
