"""Branches, and the optional tensors that they keep for their gradients.

A branch keeps tensors that others do not have, so no tensor could be the result of all branches. The gradient computes
kept values again, from the operands of the branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.handlers.control import make_branches
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import TOKEN, Operand, Token

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Block, Node

_OPTIONALS = ("tf.OptionalFromValue", "tf.OptionalNone")


class Kept(Token):
    """An optional that has a value, inside the branch that makes it."""

    def __init__(self, value: Operand):
        self.value = value


class Taken:
    """A branch that can be read again. operands: those it was called with."""

    def __init__(self, name: str, operands: Sequence[Operand]):
        self.name = name
        self.operands = operands
        self._made: tuple[GraphBuilder, list[Operand]] | None = None

    def result(self, r: Reader, k: int) -> Operand:
        """Return result k of the branch, computed once in the region that the reader is in."""
        if self._made is None or self._made[0] is not r.builder:
            self._made = r.builder, r.call(self.name, self.operands)
        return self._made[1][k]


class Again(Token):
    """An optional of a branch, seen from outside: its result k."""

    def __init__(self, branch: Taken, k: int):
        self.branch = branch
        self.k = k


class Optionals(Token):
    """The optional of whichever branch was taken, seen from outside. each: the optional of each branch."""

    def __init__(self, each: Sequence[Again]):
        self.each = each


def of_branch(operands: Sequence[Operand], number: int) -> list[Operand]:
    """Return the operands of a branch: the gradient of a branch reads the optionals that this branch has kept."""
    return [x.each[number] if isinstance(x, Optionals) else x for x in operands]


def choose(r: Reader, index: Value, names: Sequence[str], operands: Sequence[Operand]) -> Result:
    """Emit a choice of functions that get all operands; a number without a function takes the last one. Returns the
    results."""
    regions = [r.functions[name].regions[0] for name in names]
    given = [of_branch(operands, i) for i in range(len(names))]
    values = iter(make_branches(r, index, regions, given))
    branches = [Taken(name, own) for name, own in zip(names, given, strict=True)]
    optional = {k for region in regions for k in _optional(region.blocks[0])}
    numbers = range(len(r.op.results))
    return [Optionals([Again(x, k) for x in branches]) if k in optional else next(values) for k in numbers]


def _optional(block: Block) -> list[int]:
    """Return which results are optionals."""
    made = {op.results[0] for op in block.operations if op.name in _OPTIONALS}
    return [k for k, x in enumerate(block.operations[-1].operands) if x in made]


def _value(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[0]
    found = x.branch.result(r, x.k) if isinstance(x, Again) else x
    if not isinstance(found, Kept):
        r.unsupported("an optional that no branch around it has given a value")
    return [found.value]


HANDLERS: dict[str, Handler] = {
    "OptionalFromValue": lambda r, op, operands: [Kept(operands[0])],
    "OptionalGetValue": _value,
    "OptionalNone": lambda r, op, operands: [TOKEN],
}
