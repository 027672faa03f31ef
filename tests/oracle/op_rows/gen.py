"""The draws of rows: choices, sizes, types and values, and the graph that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, int_limits
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Shape, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

T = TypeVar("T")
Types = Sequence[np.dtype]

BOOL = np.dtype(bool)
BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
I8, I16, I32, I64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
FLOATS: Types = (F32, F64, BF16, F16)
INTS: Types = (I32, I64, I8, I16)
UINTS: Types = (U32, U8, U16, U64)
COMPLEX: Types = (C64, C128)
NARROW: Types = tuple(
    np.dtype(getattr(ml_dtypes, name))
    for name in ("int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu", "int2")
)
REAL: Types = (*FLOATS, *INTS, *UINTS)
NUMBERS: Types = (*REAL, *COMPLEX)
ALL: Types = (*NUMBERS, BOOL)
INDEX: Types = (I32, I64, I8, U32)

B, S = Dim.symbol("b"), Dim.symbol("s")
ZERO, ONE = Dim.const(0), Dim.const(1)
_FIXED = tuple(map(Dim.const, (1, 2, 3, 5)))
_SYMBOLIC = (B, S, B, S, 2 * B, S + 1)


class Gen:
    """The draws for one graph, or for one region in it.

    reuse: operands are values that are there wherever some fit. sealed: there are no inputs but the given ones. depth:
    how many regions deep this is.
    """

    def __init__(
        self,
        draw: st.DrawFn,
        builder: GraphBuilder,
        values: Sequence[Value] = (),
        reuse: bool = False,
        sealed: bool = False,
        depth: int = 0,
        types: Types = ALL,
    ):
        self.draw, self.b, self.reuse, self.sealed, self.depth, self.types = draw, builder, reuse, sealed, depth, types
        self.inputs: list[Value] = list(values)
        self.pool: list[Value] = list(values)

    # Choices

    def choose(self, options: Iterable[T]) -> T:
        return self.draw(st.sampled_from(list(options)))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def order(self, items: Iterable[T]) -> list[T]:
        return list(self.draw(st.permutations(list(items))))

    def some(self, items: Iterable[T], low: int = 0, high: int | None = None) -> list[T]:
        """A few of the items, in any order."""
        items = list(items)
        if not items:
            return []
        return self.draw(st.lists(st.sampled_from(items), min_size=low, max_size=high, unique=True))

    # Sizes

    def fixed(self) -> Dim:
        return self.choose(_FIXED)

    def positive(self) -> Dim:
        """A size that is never 0."""
        return self.choose((*_FIXED, B + 1, S + 2))

    def shape(self, low: int = 0, high: int = 4, size: Callable[[], Dim] | None = None) -> Shape:
        """A shape of `low` to `high` dims, at most two of which are symbolic; rarely of more dims than 4."""
        rank = self.integer(low, high)
        if high == 4 and rank == 4 and self.integer(0, 3) == 0:
            rank = self.integer(4, 8)
        symbolic = self.some(range(rank), 0, 2)
        ones = [ONE, ONE, Dim.const(2)]
        some = size or (lambda: self.choose(_SYMBOLIC))
        return tuple(
            some() if axis in symbolic else self.fixed() if rank <= 4 else self.choose(ones) for axis in range(rank)
        )

    # Values

    def dtype(self, dtypes: Types) -> np.dtype:
        """One of `dtypes`, the first ones more often."""
        fit = [d for d in dtypes if d in self.types] or list(dtypes)
        return fit[self.integer(0, min(1, len(fit) - 1))] if self.flag() else self.choose(fit)

    def value(self, dtypes: Types = ALL, low: int = 0, high: int = 4, size: Callable[[], Dim] | None = None) -> Value:
        """Any value of one of these types, of rank `low` to `high`."""
        fit = [v for v in self.pool if v.dtype in dtypes and low <= v.rank <= max(high, 4 if high < 4 else 8)]
        fit = [v for v in fit if v.rank <= high or high == 4]
        if size is not None:
            fit = [v for v in fit if all(never_empty(d) for d in v.shape)]
        if fit and self.reuse and (self.sealed or self.integer(0, 7)):
            return self.choose(fit)
        return self.of(self.dtype(dtypes), self.shape(low, high, size))

    def of(self, dtype: np.dtype, shape: Shape) -> Value:
        """Return a value of this type and shape: one that is there, a new input, or a number spread over the shape."""
        fit = [v for v in self.pool if (v.dtype, v.shape) == (dtype, shape)]
        if fit and self.reuse and (self.sealed or self.integer(0, 7)):
            return self.choose(fit)
        if not shape and self.integer(0, 3) == 0 or self.sealed:
            return self.spread(self.number(dtype, self.integer(-2, 3)), shape)
        return self.input(dtype, shape)

    def input(self, dtype: np.dtype, shape: Shape) -> Value:
        value = Value(dtype, shape, None, len(self.inputs))
        self.inputs.append(value)
        self.pool.append(value)
        return value

    def number(self, dtype: np.dtype, number: complex | float | int) -> Value:
        """Return a constant scalar; of integers the low bits."""
        if dtype_class(dtype) in ("int", "uint"):
            low, high = int_limits(dtype)
            number = low + (int(number) - low) % (high - low + 1)
        return self.b.op("constant", value=np.array(number).astype(dtype))

    def spread(self, scalar: Value, shape: Shape) -> Value:
        return self.b.op("broadcast", [scalar], shape=shape, dims=()) if shape else scalar

    # Regions

    def region(
        self, inputs: Sequence[tuple[np.dtype, Shape]], build: Callable[[Gen, tuple[Value, ...]], Any]
    ) -> Region:
        """A region whose body `build(gen, inputs)` draws; it returns the outputs."""
        builder = GraphBuilder(self.b.facts)
        values = tuple(Value(dtype, shape, None, i) for i, (dtype, shape) in enumerate(inputs))
        inner = Gen(self.draw, builder, values, reuse=True, sealed=True, depth=self.depth + 1, types=self.types)
        outputs = build(inner, values)
        return Region(values, tuple(builder.ops), (outputs,) if isinstance(outputs, Value) else tuple(outputs))


def never_empty(d: Dim) -> bool:
    """Return whether a size of this module's kind is never 0."""
    return d.value > 0 if d.is_const else d in (B + 1, S + 1, S + 2)


def facts() -> ShapeFacts:
    return ShapeFacts()


def finish(gen: Gen, outputs: Sequence[Value]) -> Graph:
    """Return the graph of what was drawn."""
    return bound_graph(gen.inputs, gen.b.ops, outputs, gen.b.facts)


def bound_graph(inputs: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Value], facts: ShapeFacts) -> Graph:
    """Return a graph whose symbols are bound to dims of inputs. A symbol that is no input's dim gets a new input."""
    inputs = list(inputs)
    bindings: dict[str, Dim] = {}
    for name in ("b", "s"):
        symbol = Dim.symbol(name)
        places = [(i, axis) for i, v in enumerate(inputs) for axis, d in enumerate(v.shape) if d is symbol]
        if not places:
            inputs.append(Value(F32, (symbol,), None, len(inputs)))
            places = [(len(inputs) - 1, 0)]
        bindings[name] = raw_dim(*places[0])
    names = tuple(f"x{i}" for i in range(len(inputs)))
    return Graph("test", tuple(inputs), names, tuple(outputs), tuple(ops), facts, bindings)
