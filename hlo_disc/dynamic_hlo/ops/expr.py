"""Values with Python's operators, the one language in which formulas are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

BOOL, I32, I64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
U32, U64, F32, F64 = map(np.dtype, (np.uint32, np.uint64, np.float32, np.float64))


class Maker(Protocol):
    """A graph under construction, as formulas see it."""

    def emit(self, name: str, operands: Sequence[Value] = (), **attrs: Unpack[Attributes]) -> Value:
        """Append an op with one result."""

    def constant(self, value: np.ndarray) -> Value:
        """Make a constant."""

    def alike(self, values: Sequence[Value]) -> Sequence[Value]:
        """Bring operands of an elementwise op to one shape."""


class Array:
    """A value with the maker of its graph.

    Operands are brought to one shape. Numbers, sizes and arrays without axes among them take the type of the first one.
    """

    __slots__ = ("r", "value")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy leaves operators to this class

    def __init__(self, r: Maker, value: Value):
        self.r = r
        self.value = value

    def __bool__(self) -> bool:
        raise TypeError("only the run knows the truth of a value")

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def shape(self) -> Shape:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.rank

    def of(self: A, value: Value) -> A:
        """Wrap another value of the same graph."""
        return type(self)(self.r, value)

    def emit(self: A, name: str, *others: Array, **attrs: Unpack[Attributes]) -> A:
        """Emit an op on operands as they are."""
        return self.of(self.r.emit(name, (self.value, *(x.value for x in others)), **attrs))

    def like(self: A, x: Term) -> A:
        """Make a scalar of the same type from a number or a size."""
        return x if isinstance(x, Array) else self.of(scalar(self.r, x, self.dtype))  # type: ignore[return-value]

    def op(self: A, name: str, *others: Term, **attrs: Unpack[Attributes]) -> A:
        """Emit an elementwise op on operands of one shape."""
        r = self.r
        if not others:
            return self.of(r.emit(name, (self.value,), **attrs))
        return self.of(r.emit(name, r.alike([self.value, *(_beside(self, x) for x in others)]), **attrs))

    def __add__(self: A, other: Term) -> A:
        return self.op("add" if self.dtype != BOOL else "or", other)

    def __radd__(self: A, other: Term) -> A:
        return self.like(other) + self

    def __sub__(self: A, other: Term) -> A:
        return self.op("subtract", other)

    def __rsub__(self: A, other: Term) -> A:
        return self.like(other) - self

    def __mul__(self: A, other: Term) -> A:
        return self.op("multiply", other)

    def __rmul__(self: A, other: Term) -> A:
        return self.like(other) * self

    def __truediv__(self: A, other: Term) -> A:
        return self.op("divide", other)

    def __rtruediv__(self: A, other: Term) -> A:
        return self.like(other) / self

    def __neg__(self: A) -> A:
        return self.op("negate")

    def __abs__(self: A) -> A:
        return self if dtype_class(self.dtype) in ("bool", "uint") else self.op("abs")

    def __and__(self: A, other: Term) -> A:
        return self.op("and", other)

    def __or__(self: A, other: Term) -> A:
        return self.op("or", other)

    def __xor__(self: A, other: Term) -> A:
        return self.op("xor", other)

    def __invert__(self: A) -> A:
        return self.op("not")

    def __lshift__(self: A, other: Term) -> A:
        return self.op("shift_left", other)

    def __rshift__(self: A, other: Term) -> A:
        return self.op("shift_right_logical" if self.dtype.kind == "u" else "shift_right_arithmetic", other)

    def __lt__(self: A, other: Term) -> A:
        return self.op("compare", other, direction="LT")

    def __le__(self: A, other: Term) -> A:
        return self.op("compare", other, direction="LE")

    def __gt__(self: A, other: Term) -> A:
        return self.op("compare", other, direction="GT")

    def __ge__(self: A, other: Term) -> A:
        return self.op("compare", other, direction="GE")

    def __eq__(self: A, other: Term) -> A:  # type: ignore[override]
        return self.op("compare", other, direction="EQ")

    def __ne__(self: A, other: Term) -> A:  # type: ignore[override]
        return self.op("compare", other, direction="NE")

    def maximum(self: A, other: Term) -> A:
        return self.op("maximum", other)

    def minimum(self: A, other: Term) -> A:
        return self.op("minimum", other)

    def sqrt(self: A) -> A:
        return self.op("sqrt")

    def exp(self: A) -> A:
        return self.op("exponential")

    def log(self: A) -> A:
        return self.op("log")

    def real(self: A) -> A:
        return self.op("real") if self.dtype.kind == "c" else self

    def conj(self: A) -> A:
        return self.op("real").emit("complex", -self.op("imag")) if self.dtype.kind == "c" else self

    def cast(self: A, dtype: DTypeLike) -> A:
        """Convert to another type. Complex numbers lose their imaginary parts; truth values are true if not 0."""
        dtype = np.dtype(dtype)
        if self.dtype.kind == "c" and dtype.kind != "c":
            return self.op("compare", 0, direction="NE") if dtype == BOOL else self.real().cast(dtype)
        return self if self.dtype == dtype else self.op("convert", dtype=dtype)


A = TypeVar("A", bound=Array)
Term = Array | Dim | complex | np.generic | np.ndarray


def scalar(r: Maker, x: Dim | complex | np.generic | np.ndarray, dtype: np.dtype) -> Value:
    """Make a value without axes from a number or a size."""
    if isinstance(x, Dim):
        if not x.is_const:
            size = r.emit("dim", expr=x, dtype=I64)
            return size if dtype == I64 else r.emit("convert", (size,), dtype=dtype)
        x = x.value
    with np.errstate(all="ignore"):
        return r.constant(np.asarray(x).astype(dtype))


def where(condition: A, yes: Term, no: Term) -> A:
    """Select elements of one value where a condition holds, else of another; at least one of both is an `Array`."""
    some = yes if isinstance(yes, Array) else no
    assert isinstance(some, Array)
    values = [condition.value, _beside(some, yes), _beside(some, no)]
    return condition.of(condition.r.emit("select", condition.r.alike(values)))


def _beside(array: Array, x: Term) -> Value:
    """Convert an operand next to an array: a number, a size or a value without axes takes the array's type."""
    if isinstance(x, Array):
        return x.value if x.shape or x.dtype == array.dtype else x.cast(array.dtype).value
    return scalar(array.r, x, array.dtype)


class PlainMaker:
    """A maker over a builder. It broadcasts only scalars."""

    def __init__(self, builder: GraphBuilder, loc: str = ""):
        self.builder, self.loc = builder, loc

    def emit(self, name: str, operands: Sequence[Value] = (), **attrs: Unpack[Attributes]) -> Value:
        return self.builder.op(name, operands, self.loc, **attrs)

    def constant(self, value: np.ndarray) -> Value:
        return self.emit("constant", value=value)

    def alike(self, values: Sequence[Value]) -> Sequence[Value]:
        shape: Shape = next((x.shape for x in values if x.shape), ())
        return [x if x.shape or not shape else self.emit("broadcast", (x,), shape=shape, dims=()) for x in values]


def formula_region(facts: ShapeFacts, types: Sequence[np.dtype], formula: Callable[..., Sequence[Array]]) -> Region:
    """Make a region over scalars of these types, from a formula that gives its outputs."""

    def build(b: GraphBuilder, inputs: tuple[Value, ...]) -> list[Value]:
        r = PlainMaker(b)
        return [x.value for x in formula(*(Array(r, x) for x in inputs))]

    return make_region(facts, [(dtype, ()) for dtype in types], build)
