"""Shape arithmetic: small integer and truth tensors evaluated symbolically, element by element.

`RULES` defines each StableHLO op that frameworks compute shapes with, on `Symbolic` tensors. Elements that depend on
data are opaque symbols, so that `start + size - start` still has the size `size`. An opaque symbol that remains in a
shape is data-dependent; the reader refuses it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.numbers import holds
from hlo_disc.import_.sizes.elements import ARITHMETIC, Element, Elements, of_numbers
from hlo_disc.import_.stablehlo.decode import Decoder, array, enumerator, integer, ints

if TYPE_CHECKING:
    from hlo_disc.import_.handlers.types import Handler
    from hlo_disc.mlir import ir


# Shapes and the pieces they are made of have few elements; larger integer tensors are data.
LIMIT = 64
_OPAQUE = "%v"


class Symbolic:
    """An integer or truth tensor with known elements, in row-major order.

    exact: no element depends on data. `value` is the same tensor in the graph: always there when it is not exact,
    and when it is, from the first time that it is used as data. wraps: numbers on the way to the elements, with types
    that may not hold them; where one does not, the program has others. source: an op, its operands and its handler, by
    which it is computed as data then.
    """

    __slots__ = ("dtype", "sizes", "elements", "exact", "value", "source", "wraps")

    def __init__(self, dtype: np.dtype, sizes: tuple[int, ...], elements: tuple[Element, ...], exact: bool = True):
        self.dtype = dtype
        self.sizes = sizes
        self.elements = elements
        self.exact = exact
        self.value: Value | None = None
        self.source: tuple[Any, Sequence[Operand], Any] | None = None
        self.wraps: frozenset[tuple[Dim, np.dtype]] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether the elements are right at all calls."""
        return self.exact and not self.wraps

    def may_wrap(
        self, op: object, operands: Sequence[Operand], handler: Handler | None, facts: ShapeFacts | None
    ) -> None:
        """Mark as the result of an op that may be computed as data. facts: about sizes, to check new numbers."""
        self.wraps = self.wraps.union(*(x.wraps for x in operands if type(x) is Symbolic))
        if facts is not None and self.dtype.kind != "b":
            numbers = (e for e in self.elements if isinstance(e, Dim))
            self.wraps |= {(e, self.dtype) for e in numbers if not holds(facts, e, self.dtype)}
        if self.wraps:
            self.source = op, operands, handler


class Token:
    """A token, which orders effects and carries no data."""


class Bundle(tuple["Operand", ...]):
    """A tuple of the program."""


TOKEN = Token()
Operand = Value | Symbolic | Token | Bundle


class Evaluator:
    """Symbolic evaluation of one module's shape arithmetic."""

    def __init__(self, facts: ShapeFacts, decoder: Decoder, scalars_only: bool = False):
        self.scalars_only = scalars_only  # sizes in types say nothing while a module is re-opened
        self.facts = facts
        self.decoder = decoder
        self.scalar = Elements(facts)
        self._opaques: dict[Value, Symbolic | None] = {}
        self.sources: dict[Dim, tuple[Value, int]] = {}  # opaque element -> the tensor and the position it comes from
        self.scalars: dict[
            Dim, Value
        ] = {}  # an element that depends on data -> the scalar that the program computes it as

    def evaluate(self, name: str, op: ir.OpView, operands: Sequence[Operand]) -> Symbolic | None:
        """Evaluate an op; None if it is no shape arithmetic."""
        rule = RULES.get(name)
        if rule is None:
            return None
        exact = True
        if name not in _LEAVES:
            known = name in _STRUCTURAL
            for x in operands:
                if type(x) is Symbolic:
                    known = True
                    exact = exact and x.exact
                else:
                    exact = False
            if not known or (not exact and name not in _WITH_DATA):
                return None
        dtype, sizes = self.decoder.static_tensor(op.results[0].type)
        if dtype.kind not in "iub" or sizes is None or (self.scalars_only and sizes):
            return None
        if not exact:
            if dtype.kind != "b" and dtype.itemsize < 4:
                return None
            symbolic = [self.opaque(x) if isinstance(x, Value) else x for x in operands]
            operands = [x for x in symbolic if x is not None]
            if len(operands) < len(symbolic):
                return None
        elements = rule(self, op, operands, sizes)
        if elements is None or len(elements) > LIMIT:
            return None
        if dtype.kind != "b":
            elements = self.in_range(dtype, elements)
            if elements is None:
                return None
        result = Symbolic(dtype, sizes, elements, exact)
        if exact:
            result.may_wrap(op, operands, None, self.facts if name in _MAY_WRAP else None)
        return result

    def in_range(self, dtype: np.dtype, elements: tuple[Element, ...]) -> tuple[Element, ...] | None:
        """Wrap constants to the type's range; other elements must be sizes in a type that can hold sizes."""
        bits = 8 * dtype.itemsize
        low = 0 if dtype.kind == "u" else -(1 << bits - 1)
        result = []
        for e in elements:
            e = self.scalar.number(e)
            if e.is_const:
                if not low <= e.value < low + (1 << bits):
                    e = Dim.const((e.value - low) % (1 << bits) + low)
            elif bits < 32 or (dtype.kind == "u" and not self.scalar.nonnegative(e)):
                return None
            result.append(e)
        return tuple(result)

    def opaque(self, value: Value) -> Symbolic | None:
        """Return symbols for the elements of a small integer tensor of data, the same ones for the same value."""
        if value not in self._opaques:
            self._opaques[value] = self._opaque(value)
        return self._opaques[value]

    def _opaque(self, value: Value) -> Symbolic | None:
        sizes = tuple(d.value if d.is_const else -1 for d in value.shape)
        count = math.prod(sizes)
        if value.dtype.kind not in "iu" or min(sizes, default=1) < 0 or count > LIMIT:
            return None
        elements = []
        for i in range(count):
            # Symbols are never negative, data may be: an element is a difference of two.
            name = f"{_OPAQUE}{len(self.sources)}"
            element = Dim.symbol(f"{name}.p") - Dim.symbol(f"{name}.n")
            self.sources[element] = value, i
            elements.append(element)
        opaque = Symbolic(value.dtype, sizes, tuple(elements), exact=False)
        opaque.value = value
        return opaque


def is_opaque(dim: Dim) -> bool:
    """Whether a Dim depends on data."""
    return any(name.startswith(_OPAQUE) for name in dim.symbols)


# ------------------------------------------------------------------------------------------------------------ rules

Rule = Callable[[Evaluator, Any, Sequence[Any], tuple[int, ...]], "tuple[Element, ...] | None"]


def _elementwise(function: Callable[..., Element | None]) -> Rule:
    """Make a rule from a function `(Elements, *elements) -> element or None`. Scalars are broadcast."""

    def rule(
        ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
    ) -> tuple[Element, ...] | None:
        result: tuple[Element | None, ...]
        count = max([len(x.elements) for x in operands])
        if count == 1:
            result = (function(ev.scalar, *[x.elements[0] for x in operands]),)
        else:
            columns = (x.elements * count if not x.sizes else x.elements for x in operands)
            result = tuple(function(ev.scalar, *elements) for elements in zip(*columns, strict=False))
        return None if None in result else cast("tuple[Element, ...]", result)

    return rule


def _bits(number: Callable[[int, int], int]) -> Callable[[Elements, Dim, Dim], Element | None]:
    return lambda s, a, b: Dim.const(number(a.value, b.value)) if a.is_const and b.is_const else None


def _shift_left(s: Elements, a: Dim, b: Dim) -> Element | None:
    return a * (1 << b.value) if b.is_const and 0 <= b.value < 31 else None


def _shift_right(s: Elements, a: Dim, b: Dim) -> Element | None:
    return a // (1 << b.value) if b.is_const and 0 <= b.value < 31 and s.nonnegative(a) else None


def _constant(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Operand], sizes: tuple[int, ...]
) -> tuple[Element, ...] | None:
    attribute = op.attributes["value"]
    if math.prod(sizes) > LIMIT:
        return None
    return ev.decoder.attribute(attribute, _constant_elements)


def _constant_elements(attribute: ir.Attribute) -> tuple[Element, ...] | None:
    try:
        values = array(attribute, np.dtype(np.int64)).reshape(-1).tolist()
    except TypeError:  # an integer type that numpy lacks
        return None
    return tuple(v if isinstance(v, bool) else Dim.const(v) for v in values)


def _get_dimension_size(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Operand], sizes: tuple[int, ...]
) -> tuple[Element, ...]:
    (x,) = operands
    axis = ev.decoder.attribute(op.attributes["dimension"], integer)
    return (Dim.const(x.sizes[axis]) if type(x) is Symbolic else x.shape[axis],)  # type: ignore[union-attr]


def _compare(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...] | None:
    order, own = compare_type(ev.decoder, op, operands[0].dtype)
    if order != own:
        return None
    relation = DIRECTIONS[ev.decoder.attribute(op.attributes["comparison_direction"], enumerator)]
    return _elementwise(lambda s, a, b: s.compare(relation, a, b))(ev, op, operands, sizes)


def _convert(ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]) -> tuple[Element, ...]:
    (x,) = operands
    if (x.dtype.kind == "b") == (ev.decoder.tensor(op.results[0].type)[0].kind == "b"):
        return x.elements
    if x.dtype.kind == "b":
        return tuple(ev.scalar.number(e) for e in x.elements)
    return tuple(ev.scalar.compare("!=", e, ZERO) for e in x.elements)


def _picked(x: Symbolic, index: np.ndarray) -> tuple[Element, ...]:
    return tuple(x.elements[i] for i in index.reshape(-1).tolist())


def _index(x: Symbolic) -> np.ndarray:
    return np.arange(len(x.elements)).reshape(x.sizes)


def _concatenate(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...]:
    if len(sizes) == 1:
        return tuple(e for x in operands for e in x.elements)
    axis = ev.decoder.attribute(op.attributes["dimension"], integer)
    parts, offset = [], 0
    for x in operands:
        parts.append(_index(x) + offset)
        offset += len(x.elements)
    every = tuple(e for x in operands for e in x.elements)
    return tuple(every[i] for i in np.concatenate(parts, axis).reshape(-1).tolist())


def _slice(ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]) -> tuple[Element, ...]:
    names = ("start_indices", "limit_indices", "strides")
    ranges = zip(*(ev.decoder.attribute(op.attributes[name], ints) for name in names), strict=True)
    return _picked(operands[0], _index(operands[0])[tuple(slice(*r) for r in ranges)])


def _broadcast_in_dim(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...] | None:
    x = operands[0]
    count = math.prod(sizes)
    if count > LIMIT:
        return None
    if len(x.elements) == 1:
        return x.elements * count
    dims = ev.decoder.attribute(op.attributes["broadcast_dimensions"], ints)
    shape = [1] * len(sizes)
    for axis, size in zip(dims, x.sizes, strict=True):
        shape[axis] = size
    return _picked(x, np.broadcast_to(_index(x).reshape(shape), sizes))


def _transpose(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...]:
    return _picked(operands[0], _index(operands[0]).transpose(ev.decoder.attribute(op.attributes["permutation"], ints)))


def _dynamic_slice(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...] | None:
    x, *starts = operands
    if not all(s.elements[0].is_const for s in starts):  # type: ignore[union-attr]
        return None
    corner = [
        min(max(s.elements[0].value, 0), n - size)  # type: ignore[union-attr]
        for s, n, size in zip(starts, x.sizes, sizes, strict=True)
    ]
    ranges = tuple(slice(low, low + size) for low, size in zip(corner, sizes, strict=True))
    return _picked(x, _index(x)[ranges])


def _reduce(
    ev: Evaluator, op: ir.OpView, operands: Sequence[Symbolic], sizes: tuple[int, ...]
) -> tuple[Element, ...] | None:
    if len(operands) != 2:
        return None
    x, init = operands
    body = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    rule = RULES.get(body[0])
    axes = ev.decoder.attribute(op.attributes["dimensions"], ints)
    if len(body) != 2 or body[0] not in _MONOIDS or rule is None or len(axes) != len(x.sizes):
        return None
    total = init
    for e in x.elements:
        found = rule(ev, op, (total, Symbolic(x.dtype, (), (e,))), ())
        if found is None:
            return None
        total = Symbolic(x.dtype, (), found)
    return total.elements


def compare_type(decoder: Decoder, op: ir.OpView, dtype: np.dtype) -> tuple[str, str]:
    """Return how a `compare` treats its elements: SIGNED, UNSIGNED, FLOAT or TOTALORDER, by attribute or type."""
    own = {"int": "SIGNED", "float": "FLOAT", "complex": "FLOAT"}.get(dtype_class(dtype), "UNSIGNED")
    said = decoder.attribute(op.attributes["compare_type"], enumerator) if "compare_type" in op.attributes else "NOTYPE"
    return own if said == "NOTYPE" else said, own


_MONOIDS = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or"))
# Arithmetic that has a meaning for truth values, too.
_TRUTHS = {"add": Elements.any, "maximum": Elements.any, "minimum": Elements.all, "multiply": Elements.all}

RULES: dict[str, Rule] = {
    "stablehlo.constant": _constant,
    "stablehlo.get_dimension_size": _get_dimension_size,
    **{f"stablehlo.{name}": _elementwise(of_numbers(f, _TRUTHS.get(name))) for name, f in ARITHMETIC.items()},
    "stablehlo.clamp": _elementwise(of_numbers(lambda s, low, x, high: s.minimum(s.maximum(x, low), high))),
    "stablehlo.shift_left": _elementwise(of_numbers(_shift_left)),
    "stablehlo.shift_right_arithmetic": _elementwise(of_numbers(_shift_right)),
    "stablehlo.shift_right_logical": _elementwise(of_numbers(_shift_right)),
    "stablehlo.and": _elementwise(of_numbers(_bits(operator.and_), Elements.all)),
    "stablehlo.or": _elementwise(of_numbers(_bits(operator.or_), Elements.any)),
    "stablehlo.not": _elementwise(lambda s, a: -a - 1 if isinstance(a, Dim) else s.negate(a)),
    "stablehlo.compare": _compare,
    "stablehlo.select": _elementwise(Elements.select),
    "stablehlo.convert": _convert,
    "stablehlo.reshape": lambda ev, op, operands, sizes: operands[0].elements,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.slice": _slice,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.transpose": _transpose,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.reduce": _reduce,
}

# Those whose result may be another number than integers of any length give.
_MAY_WRAP = frozenset(
    f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "negate", "shift_left", "convert", "reduce")
)
# Always evaluated, whatever the operand.
_LEAVES = frozenset(("stablehlo.constant", "stablehlo.get_dimension_size"))
# Pieces of data are followed through these even when nothing symbolic takes part: shapes may cancel them later.
_STRUCTURAL = frozenset(f"stablehlo.{name}" for name in ("reshape", "concatenate", "convert", "broadcast_in_dim"))
_ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum", "negate", "clamp", "slice")
_WITH_DATA = _STRUCTURAL | frozenset(f"stablehlo.{name}" for name in _ARITHMETIC)
