"""Variants of two kernels: the first leaves values in the workspace, from which the second computes the results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.variant import Variant


@frozen
class Half:
    """One of the two kernels.

    takes: for each of its buffers the value that lies there, of the whole group or of the workspace. symbols: the
    names of those that it takes; it may need fewer than the whole group.
    """

    variant: Variant
    takes: tuple[Value, ...]
    symbols: tuple[str, ...]


@frozen
class TwoLaunches:
    """A form of `group`. left: what `partial` leaves, as `final` reads it. workspace: memory for each of these.

    of: the key of the form that `partial` is a part of, where the group does not decide it.
    """

    name: str
    group: Group
    partial: Half
    final: Half
    left: tuple[Value, ...]
    workspace: tuple[Value, ...]
    of: tuple[Hashable, ...] = ()

    def key(self) -> tuple[Hashable, ...]:
        """Return a key that is equal for variants that the same two kernels serve."""
        return (self.group.key, self.of, self.name, tuple(v.shape for v in self.left), self.final.variant.key())

    def build(self, b: Builder, name: str) -> None:
        """Add both kernels to the module."""
        self.partial.variant.build(b, name)
        self.final.variant.build(b, f"{name}_final")

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Build the host code that launches one after the other."""
        at = dict(zip((*self.group.inputs, *self.group.outputs, *self.left), buffers, strict=True))
        known = dict(zip(self.group.symbols, symbols, strict=True))
        for half, kernel in ((self.partial, name), (self.final, f"{name}_final")):
            half.variant.launch(b, sizes, kernel, [at[v] for v in half.takes], [known[n] for n in half.symbols])

    def fast_bytes(self) -> Dim:
        """Return the fast memory of a block, in bytes: that of the kernel that needs more."""
        return Dim.max(self.partial.variant.fast_bytes(), self.final.variant.fast_bytes())
