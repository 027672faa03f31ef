"""A DHLO graph while it is read: its ops, shared constants, and conditions on its sizes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn, Unpack

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Guard, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.numbers import holds
from hlo_disc.dynamic_hlo.sizes.shapes import has_products
from hlo_disc.errors import ShapeError, SizeOverflowError
from hlo_disc.import_.sizes import symbols

_INTERNED_BYTES = 64


class Construction(ABC):
    """The common part of the readers of all programs; each describes its current op and locates it in the source."""

    def __init__(self) -> None:
        self.facts = ShapeFacts()
        self.builder = GraphBuilder(self.facts)
        self.guards: list[Guard] = []
        self.asked: list[Guard] = []  # see `Graph`
        self.nested = 0  # regions around the current op
        self._constants: dict[tuple[np.dtype, tuple[int, ...], bytes], Value] = {}
        self._required: set[tuple[Dim, str, Dim]] = set()

    # What a reader says

    @abstractmethod
    def location(self) -> str:
        """Return the user's line of the current op, or ""."""

    @abstractmethod
    def describe(self) -> str:
        """Return the current op with its source line, for messages."""

    @abstractmethod
    def unsupported(self, reason: str = "") -> NoReturn:
        """Raise an error for the current op, with its types and source line."""

    @property
    @abstractmethod
    def definitions(self) -> Mapping[str, Value]:
        """Sizes that the program computes, see `Graph`."""

    @abstractmethod
    def wider(self, a: Dim, b: Dim, axis: int) -> Dim:
        """Return the size to which sizes of two operands broadcast."""

    @abstractmethod
    def broadcast(self, x: Value, shape: Shape, dims: tuple[int, ...] | None = None) -> Value:
        """Broadcast a value. dims: the axes of the result that are the value's, by default the last."""

    @abstractmethod
    def inside(self) -> AbstractContextManager[None]:
        """Collect ops in the builder of a region; values made there stay there."""

    # What handlers ask for

    def alike(self, values: Sequence[Value]) -> Sequence[Value]:
        """Bring operands of an elementwise op to one shape."""
        shape = values[0].shape
        if all(x.shape == shape for x in values):
            return values
        shape = self.common([x.shape for x in values])
        return [self.broadcast(x, shape) for x in values]

    def common(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape to which shapes broadcast, their last axes together."""
        rank = max(map(len, shapes))
        made: Shape = (ONE,) * rank
        for shape in shapes:
            pairs = zip(made, (*(ONE,) * (rank - len(shape)), *shape), strict=True)
            made = tuple(self.wider(a, b, axis) for axis, (a, b) in enumerate(pairs))
        return made

    def emit(self, name: str, operands: Sequence[Value] = (), **attrs: Unpack[Attributes]) -> Value:
        return self.builder.op(name, operands, self.location(), **attrs)

    def emit_all(self, name: str, operands: Sequence[Value] = (), **attrs: Unpack[Attributes]) -> tuple[Value, ...]:
        return self.builder.multi(name, operands, self.location(), **attrs)

    def constant(self, value: np.ndarray) -> Value:
        """Make a constant; small ones are shared."""
        if value.nbytes > _INTERNED_BYTES:
            return self.emit("constant", value=value)
        key = value.dtype, value.shape, value.tobytes()
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.emit("constant", value=np.asarray(value))
        return found

    # Conditions on sizes

    def same_shape(self, values: Sequence[Value]) -> None:
        """Require that operands of an elementwise op have one shape."""
        first = values[0].shape
        for number, value in enumerate(values[1:], 1):
            if value.shape != first:
                for axis, (a, b) in enumerate(zip(first, value.shape, strict=True)):
                    self.equal(a, b, f"dimension {axis} of operands 0 and {number}")

    def equal(self, a: Dim, b: Dim, what: str) -> None:
        """Require `a == b`; `what` names the two sizes."""
        if a is not b:
            self.require(a, "==", b, f"{what} must be equal, but they are {{0}} and {{1}}", (a, b))

    def at_most(self, a: Dim, b: Dim, message: str) -> None:
        """Require `a <= b`; the message has {0} for a and {1} for b."""
        if a is not b:
            self.require(a, "<=", b, message, (a, b))

    def same_count(self, a: Shape, b: Shape) -> None:
        """Require that two shapes have equally many elements."""
        if self.facts.same_size(a, b) is not Truth.YES:
            left, right = math.prod(a, start=ONE), math.prod(b, start=ONE)
            message = f"({_listed(a)}) has {{0}} elements and ({_listed(b)}) has {{1}}"
            self.require(left, "==", right, message, (left, right))

    def fits(self, size: Dim, dtype: np.dtype) -> None:
        """Require that a type can hold a size that becomes a number, in and outside of regions."""
        held = np.iinfo(dtype)
        if held.bits == 64 and not has_products(size):
            return  # memory holds no more than that
        for relation, limit in (("<=", Dim.const(int(held.max))), (">=", Dim.const(int(held.min)))):
            condition = size, relation, limit
            known = self.facts.holds(*condition)
            overflows = held.bits == 64 and relation == "<="  # on the way, which the guard looks for too
            if condition in self._required or (known is Truth.YES and not overflows):
                continue
            where = f" at {where}" if (where := self.location()) else ""
            message = (
                f"{{0}} for the size {symbols.escape(f'{size}{where}')}: {dtype} does not hold it, take a wider type"
            )
            if known is Truth.NO:
                raise SizeOverflowError(message.format(size))
            self._required.add(condition)
            self.guards.append(Guard(*condition, message, (size,), overflow=True))
            if not holds(None, size, dtype):
                symbols.add_fact(self.facts, *condition)

    def require(
        self, lhs: Dim, relation: str, rhs: Dim, message: str, args: tuple[Dim, ...], is_fact: bool = True
    ) -> None:
        """Add a condition on the sizes for the current op: nothing if proved, an error if refuted, else a guard.

        In a loop or a branch, equalities must hold for every call. Inequalities (a slice of an empty array, in a loop
        over its elements) are checked there, when the region is executed.

        is_fact: add it to the facts. Equations of the form "one of two" are not added: they would only make proofs
        slower.
        """
        if (lhs, relation, rhs) in self._required:
            return
        holds = self.facts.holds(lhs, relation, rhs)
        if holds is Truth.YES:
            self._required.add((lhs, relation, rhs))
            return
        if holds is Truth.NO:
            raise ShapeError(f"{self.describe()}: {message.format(*args)}")
        message = f"{symbols.escape(self.describe())}: {message}"
        if self.nested and relation != "==":
            self.emit_all("check", lhs=lhs, relation=relation, rhs=rhs, message=message, args=args)
            return
        self._required.add((lhs, relation, rhs))
        self.guards.append(Guard(lhs, relation, rhs, message, args))
        # An equation must not put a size that is computed later in the place of one that the call says.
        later = relation == "==" and not (lhs.symbols | rhs.symbols).isdisjoint(self.definitions)
        if is_fact and not later:
            symbols.add_fact(self.facts, lhs, relation, rhs)

    def assume(self, lhs: Dim, relation: str, rhs: Dim, what: str) -> None:
        """Add a condition on which the program's structure depends: calls that break it take another program.

        It must depend on sizes of arguments only; `what` says what depends on it.
        """
        if self.facts.holds(lhs, relation, rhs) is Truth.YES:
            return
        condition = f"{what} depends on whether {lhs} {relation} {rhs}"
        if self.nested or not (lhs.symbols | rhs.symbols).isdisjoint(self.definitions):
            self.unsupported(f"{condition}, which only the run knows")
        message = f"{symbols.escape(self.describe())}: {symbols.escape(condition)}, which this program is for"
        self.asked.append(Guard(lhs, relation, rhs, message))
        symbols.add_fact(self.facts, lhs, relation, rhs)


def _listed(shape: Shape) -> str:
    return ", ".join(map(str, shape))
