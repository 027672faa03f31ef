"""Rewrite rules as functions: each looks at an op and returns its replacement, or None if it does not apply.

@rule(VIEW_RULES, "reshape", of="reshape")
def reshape_of_reshape(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
    "reshape(reshape(x)) → reshape(x)"
    return make("reshape", *inner.operands, shape=op.attrs["shape"])

The docstring is the picture, which docs/rules.md shows. A rule builds nothing while it looks. The engine (`rewrite.py`)
builds the replacement at the op's position in the program. It must have the op's dtype, and the op's shape at all sizes
that the facts allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack, overload

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.passes.rules.patterns import made_by
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen


class NewOp(NamedTuple):
    """An op to build, after those that make its operands."""

    name: str
    operands: tuple[Instead, ...]
    attrs: Attributes


Instead = Value | NewOp  # what stands in an op's place
Look = Callable[[ShapeFacts, Op], Instead | None]
LookInside = Callable[[ShapeFacts, Op, Op], Instead | None]


def make(name: str, /, *operands: Instead, **attrs: Unpack[Attributes]) -> NewOp:
    """The op `name` of values, or of ops to build before it."""
    return NewOp(name, operands, attrs)


def filled(scalar: Instead, shape: Shape) -> NewOp:
    """An array whose elements are all `scalar`."""
    return make("broadcast", scalar, shape=shape, dims=())


def zeros(like: Value) -> NewOp:
    return filled(make("constant", value=np.zeros((), like.dtype)), like.shape)


def build(builder: GraphBuilder, instead: Instead, loc: str = "") -> Value:
    """The value that `instead` is, built where it is to be built."""
    if isinstance(instead, Value):
        return instead
    operands = [x if isinstance(x, Value) else build(builder, x, loc) for x in instead.operands]
    return builder.op(instead.name, operands, loc, **instead.attrs)


@frozen
class Rule:
    """A rule in a table. roots: the names of the ops that it looks at; all ops where none is named."""

    name: str
    picture: str
    roots: tuple[str, ...]
    look: Look


@overload
def rule(table: list[Rule], *roots: str, name: str = "") -> Callable[[Look], Look]: ...
@overload
def rule(table: list[Rule], *roots: str, of: str, name: str = "") -> Callable[[LookInside], LookInside]: ...
def rule(
    table: list[Rule], *roots: str, of: str = "", name: str = ""
) -> Callable[[Callable[..., Instead | None]], Callable[..., Instead | None]]:
    """Add a function to a table of rules, which are tried in its order at each op named in `roots`, or at all ops.

    of: the op that has to make the first operand, which the function is given too. name: the function's, if not given.
    """

    def add(function: Callable[..., Instead | None]) -> Callable[..., Instead | None]:
        look = _inside(of, function) if of else function
        table.append(Rule(name or function.__name__.replace("_", " "), function.__doc__ or "", roots, look))
        return function

    return add


def _inside(of: str, function: LookInside) -> Look:
    def look(facts: ShapeFacts, op: Op) -> Instead | None:
        inner = made_by(op.operands[0], of)
        return None if inner is None else function(facts, op, inner)

    return look
