"""What the translator may know of a target: a record of data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A machine as the translator sees it.

    triple, layout: LLVM's target triple and data layout.
    attributes: function attributes that every definition gets.
    native: what the machine has an instruction for: "scalef" (x * 2^n).
    intrinsics: LLVM intrinsics that `llvm.call_intrinsic` may name, by prefix of the name. Code generation aborts the
        process on one that the machine lacks, so only these are let through.
    """

    triple: str
    layout: str
    attributes: str = "nounwind"
    native: frozenset[str] = frozenset()
    intrinsics: tuple[str, ...] = ()
