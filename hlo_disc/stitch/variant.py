"""What the host flow knows of a schedule: compiled forms of a group, and when each of them is chosen at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val


class Variant(Protocol):
    """One compiled form of a group."""

    @property
    def name(self) -> str:
        """What `explain` calls it."""
        ...

    def key(self) -> tuple:
        """Equal for variants that one kernel serves."""
        ...

    def build(self, b: Builder, name: str) -> None:
        """Add its kernels to the module; their names start with `name`."""
        ...

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Build the host code that launches it. buffers: the group's inputs, outputs, and the packed operand if any."""
        ...

    def fast_bytes(self) -> Dim:
        """Fast memory of a block, in bytes."""
        ...


class Packing(Protocol):
    """A static operand in the form that a schedule wants, made once and kept. Packings compare by what they are."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Value:
        """An input or a stored constant, perhaps under another shape."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the packed form."""
        ...

    def key(self) -> tuple: ...

    def build(self, b: Builder, name: str) -> None: ...

    def launch(self, b: Builder, name: str, source: Val, target: Val) -> None:
        """target: a byte buffer of `size` bytes."""
        ...


@dataclass(frozen=True)
class Choice:
    """Take `variant` when `size` <= `at_most` (no size: always) and, with `packing`, when the packed operand is there.

    Of a group's choices the first that applies runs; the last applies always.
    """

    variant: Variant
    size: Dim | None = None
    at_most: int = 0
    packing: Packing | None = None
