"""The host flow's interface to a schedule: compiled variants of a group, and the conditions that choose among them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val


class Variant(Protocol):
    """One compiled form of a group; without fast memory and workspace, unless it says so."""

    @property
    def name(self) -> str:
        """The name of the variant in `explain`."""
        ...

    def key(self) -> tuple[Hashable, ...]:
        """Equal for variants that one kernel serves."""
        ...

    def build(self, b: Builder, name: str) -> None:
        """Add its kernels to the module; their names start with `name`."""
        ...

    def launch(
        self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]
    ) -> Val | None:
        """Build the host code that launches it. buffers: the group's inputs, outputs, and the packed operand if any.

        A variant that may decline returns whether it was taken, as a number that is 0 if not.
        """
        ...

    def fast_bytes(self) -> Dim:
        """Fast memory of a block, in bytes."""
        return ZERO

    @property
    def workspace(self) -> tuple[Value, ...]:
        """Memory that it needs from the arena while it runs; its buffers come after all others."""
        return ()


class Packing(Protocol):
    """A static operand in the layout that a schedule wants, packed once and kept. Packings are compared by their
    fields."""

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

    @property
    def numbers(self) -> tuple[int, ...]:
        """The sizes that the kernel takes as arguments."""
        ...

    def with_source(self, source: Value) -> Packing:
        """Return the packing of another operand of the same shape."""
        ...

    def key(self) -> tuple[Hashable, ...]: ...

    def build(self, b: Builder, name: str) -> None: ...

    def launch(self, b: Builder, name: str, source: Val, target: Val) -> None:
        """Build the host code that packs. target: a byte buffer of `size` bytes."""
        ...


class Condition(NamedTuple):
    """A condition on a size: it is "<=" or ">=" a number, or a "multiple of" a positive one."""

    size: Dim
    relation: str
    bound: int

    def on(self, change: Callable[[Dim], Dim]) -> Condition:
        """The condition on another size."""
        return self._replace(size=change(self.size))

    def truth(self, facts: ShapeFacts) -> Truth:
        """Return what the facts say of the condition."""
        if self.relation == "multiple of":
            return facts.divisible(self.size, self.bound)
        return facts.holds(self.size, self.relation, Dim.const(self.bound))

    def at(self, values: Mapping[str, int]) -> bool | None:
        """Return whether it holds at values of symbols; None if some are missing."""
        try:
            size = self.size.evaluate(values)
        except (KeyError, ZeroDivisionError):
            return None
        if self.relation == "multiple of":
            return size % self.bound == 0
        return size <= self.bound if self.relation == "<=" else size >= self.bound

    def build(self, b: Builder, sizes: Sizes) -> Val:
        """Build the condition in host code."""
        size = b.index(sizes(self.size))
        if self.relation == "multiple of":
            return b.compare("==", size % self.bound, 0)
        return b.compare(self.relation, size, self.bound)

    def __str__(self) -> str:
        return f"{self.size} {self.relation} {self.bound}"


When = tuple[Condition, ...]


@frozen
class Choice:
    """Take `variant` when all conditions of `when` hold and, with `packing`, the packed form exists.

    may_decline: only the launch shows whether it can be taken; the next one is when it cannot.

    Of a group's choices the first that applies runs; the last applies always.
    """

    variant: Variant
    when: When = ()
    packing: Packing | None = None
    may_decline: bool = False

    @property
    def always(self) -> bool:
        """Whether it is taken whenever `when` holds."""
        return self.packing is None and not self.may_decline


def decided(
    choices: Sequence[Choice], facts: ShapeFacts, fast_limit: int = 0, real: Callable[[Dim], Dim] = lambda size: size
) -> list[Choice]:
    """The choices whose blocks have no more fast memory than the machine's (see `Device`), without conditions that the
    facts prove, and without those that cannot be taken.

    real: what the facts call a size.
    """
    kept: list[Choice] = []
    for choice in choices:
        fits = (Condition(choice.variant.fast_bytes(), "<=", fast_limit),) if fast_limit else ()
        answers = {condition: condition.on(real).truth(facts) for condition in (*choice.when, *fits)}
        if Truth.NO in answers.values():
            continue
        unknown = tuple(c for c, answer in answers.items() if answer is Truth.UNKNOWN)
        # Where one before it asks for no more, that one is taken.
        if not any(first.always and set(first.when) <= set(unknown) for first in kept):
            kept.append(replace(choice, when=unknown))
    return kept
