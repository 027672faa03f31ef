"""The expansion of complex values under way: what stands for each value of a graph or region."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op, Value, regions, substitute
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import UnsupportedOpError


class Pair(NamedTuple):
    """The real and the imaginary part of a value."""

    re: Value
    im: Value


def is_complex(value: Value) -> bool:
    return value.dtype.kind == "c"


def has_complex(op: Op) -> bool:
    """Whether the op, or an op of its regions, has to do with complex numbers."""
    return any(map(is_complex, (*op.operands, *op.results))) or any(
        any(map(is_complex, region.inputs)) or any(map(has_complex, region.ops)) for region in regions(op)
    )


Expansion = Callable[["Block", Op], "Pair | Value | None"]


class Block:
    """The expansion of a graph or region under way: what stands for each of its values.

    reals: the value for a real one. pairs: the parts of a complex one. wholes: a complex one in memory. A complex value
    has a pair, or a whole, from which the pair is made when something asks for it.
    """

    def __init__(self, facts: ShapeFacts, expansions: Mapping[str, Expansion]):
        self.b, self.expansions = GraphBuilder(facts), expansions
        self.reals: dict[Value, Value] = {}
        self.pairs: dict[Value, Pair] = {}
        self.wholes: dict[Value, Value] = {}

    def inputs(self, new: Iterable[tuple[Value, Value]]) -> None:
        """Inputs and what stands for them in memory."""
        for value, memory in new:
            (self.wholes if is_complex(value) else self.reals)[value] = memory

    def expand(self, op: Op) -> None:
        """Append what computes the results of `op`."""
        expansion = self.expansions.get(op.name) or self.expansions.get(kind(op))
        if not has_complex(op):
            self._keep(op)
        elif expansion is not None:
            self._set(op, expansion(self, op))
        else:
            where = f" at {op.loc}" if op.loc else ""
            types = ", ".join(map(repr, op.operands))
            raise UnsupportedOpError(f"{op.name}({types}){where}: this op is not supported for complex numbers")

    def pair(self, value: Value) -> Pair:
        """The parts of a complex value."""
        found = self.pairs.get(value)
        if found is None:
            whole = self.wholes[value]
            found = self.pairs[value] = Pair(*(self.b.op(name, [whole]) for name in ("real", "imag")))
        return found

    def whole(self, value: Value) -> Value:
        """A complex value in memory, as a library call or a caller wants it."""
        if value not in self.wholes:
            self.wholes[value] = self.b.op("complex", self.pairs[value])
        return self.wholes[value]

    def memory(self, value: Value) -> Value:
        """Return a complex value in memory as real numbers with a last axis of size 2."""
        return self.reals_of(self.whole(value))

    def reals_of(self, whole: Value) -> Value:
        """Complex memory as real memory."""
        return self.b.op("bitcast_convert", [whole], dtype=part_dtype(whole.dtype))

    def join(self, pair: Sequence[Value], axis: int) -> Value:
        """Two real values side by side along a new axis."""
        shape = (*pair[0].shape[:axis], ONE, *pair[0].shape[axis:])
        return self.b.op("concatenate", [self.b.op("reshape", [x], shape=shape) for x in pair], dim=axis)

    def part(self, value: Value, k: int) -> Value:
        """Part `k` of a complex value, or the real value that it is."""
        return self.pair(value)[k] if is_complex(value) else self.reals[value]

    def flat(self, values: Sequence[Value]) -> list[Value]:
        """Values with each complex one replaced by its two parts."""
        return [x for v in values for x in (self.pair(v) if is_complex(v) else (self.reals[v],))]

    def set_flat(self, values: Sequence[Value], flat: Sequence[Value]) -> None:
        """The reverse: what stands for `values`."""
        rest = iter(flat)
        for value in values:
            if is_complex(value):
                self.pairs[value] = Pair(next(rest), next(rest))
            else:
                self.reals[value] = next(rest)

    def _keep(self, op: Op) -> None:
        same = substitute(op, self.reals)
        self.b.ops.append(same)
        self.reals.update(zip(op.results, same.results, strict=True))

    def _set(self, op: Op, results: Value | Pair | None) -> None:
        if results is None:  # the expansion has set them
            return
        if isinstance(results, Pair):
            self.pairs[op.result] = results
        else:
            self.reals[op.result] = results

    def at(self, x: Value, axis: int, k: int) -> Value:
        """Element `k` of an axis."""
        start = tuple(Dim.const(k) if a == axis else ZERO for a in range(x.rank))
        limit = tuple(Dim.const(k + 1) if a == axis else size for a, size in enumerate(x.shape))
        one = self.b.op("slice", [x], start=start, limit=limit, stride=(1,) * x.rank)
        return self.b.op("reshape", [one], shape=(*x.shape[:axis], *x.shape[axis + 1 :]))

    def zeros(self, like: Value, loc: str) -> Value:
        """Zeros of a real value's type."""
        zero = self.b.op("constant", [], loc, value=np.zeros((), like.dtype))
        return zero if not like.shape else self.b.op("broadcast", [zero], loc, shape=like.shape, dims=())
