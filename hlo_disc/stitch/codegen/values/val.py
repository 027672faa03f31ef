"""Values under construction: scalars and vectors with operators, the scopes they belong to, loops."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.mlir import MlirValue, ir, scf

if TYPE_CHECKING:
    from types import TracebackType

    from hlo_disc.stitch.codegen.build import Builder


class Val:
    """One SSA value; `lanes` is 0 for a scalar, `scope` the innermost scope it depends on. Arithmetic is signed."""

    __slots__ = ("b", "lanes", "scope", "v")

    def __init__(self, b: Builder, v: MlirValue, lanes: int = 0, scope: OpenScope | None = None):
        self.b, self.v, self.lanes, self.scope = b, v, lanes, scope or b.scopes[-1]

    @property
    def type(self) -> ir.Type:
        return self.v.type

    @property
    def element(self) -> ir.Type:
        return ir.VectorType(self.v.type).element_type if self.lanes else self.v.type

    def __add__(self, other: Scalar) -> Val:
        return self if other == 0 else self.b.binary("+", self, other)

    def __radd__(self, other: Scalar) -> Val:
        return self + other

    def __sub__(self, other: Scalar) -> Val:
        return self if other == 0 else self.b.binary("-", self, other)

    def __rsub__(self, other: Scalar) -> Val:
        return self.b.binary("-", other, self)

    def __mul__(self, other: Scalar) -> Scalar:
        if other == 0:
            return 0
        return self if other == 1 else self.b.binary("*", self, other)

    def __rmul__(self, other: Scalar) -> Scalar:
        return self * other

    def __floordiv__(self, other: Scalar) -> Val:
        return self if other == 1 else self.b.binary("//", self, other)

    def __rfloordiv__(self, other: Scalar) -> Val:
        return self.b.binary("//", other, self)

    def __rmod__(self, other: Scalar) -> Val:
        return self.b.binary("%", other, self)

    def __mod__(self, other: Scalar) -> Scalar:
        return 0 if other == 1 else self.b.binary("%", self, other)


Scalar = Val | int


def product(sizes: Iterable[Scalar]) -> Scalar:
    n: Scalar = 1
    for size in sizes:
        n = n * size
    return n


def signed(x: int) -> int:
    """Return the 64 bits of `x` as a signed number, which MLIR's bindings take."""
    return x - (1 << 64) if x >= 1 << 63 else x


class OpenScope:
    """A region under construction. `op` is the loop or if that it belongs to, None for a function's body.

    known: the values computed in it, by op and operands.
    """

    __slots__ = ("conditional", "depth", "known", "op", "open")

    def __init__(self, op: ir.OpView | None, depth: int, conditional: bool = False):
        self.op, self.depth, self.conditional, self.open = op, depth, conditional, True
        self.known: dict[tuple[Hashable, ...], Val] = {}


class ForLoop:
    """`with b.loop(lo, hi, step, inits) as loop: … loop.yield_(*next)`; then `loop.results`."""

    def __init__(self, b: Builder, lo: Scalar, hi: Scalar, step: Scalar, inits: Sequence[Val]):
        self.b, self.inits = b, list(inits)
        self.op = scf.ForOp(b.index(lo).v, b.index(hi).v, b.index(step).v, [x.v for x in inits])
        self.block = self.op.regions[0].blocks[0]
        self._yielded = False

    def __enter__(self) -> ForLoop:
        self._scope = self.b.enter(self.op, self.block)
        self._scope.__enter__()
        first, *rest = self.block.arguments
        self.i = Val(self.b, first)
        self.args = [Val(self.b, a, x.lanes) for a, x in zip(rest, self.inits, strict=True)]
        return self

    def yield_(self, *values: Val) -> None:
        scf.YieldOp([x.v for x in values])
        self._yielded = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._yielded:
            scf.YieldOp([])
        self._scope.__exit__(kind, error, trace)

    @property
    def results(self) -> list[Val]:
        return [Val(self.b, r, x.lanes) for r, x in zip(self.op.results, self.inits, strict=True)]
